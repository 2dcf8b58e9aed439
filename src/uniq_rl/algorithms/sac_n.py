"""SAC-N (An et al., 2021): soft actor-critic with so many critics that the smallest of them is cautious enough.

The critics agree where the data are and differ where they are not, so their minimum is low there, and the policy,
which climbs it, has a reason to stay. Nothing else keeps it near the data.
"""

import dataclasses
from abc import abstractmethod
from typing import ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
from jax import Array

from uniq_rl.algorithms.base import (
    Algorithm,
    Batch,
    Learner,
    Memory,
    Metrics,
    Spec,
    critic_ensemble,
    moved_towards,
    only,
    q_values,
    static,
    td_loss,
)
from uniq_rl.networks import LOG_STD, IndependentEnsemble, TanhGaussianPolicy

CRITICS = {
    ("halfcheetah", "medium"): 10,
    ("halfcheetah", "medium-replay"): 10,
    ("halfcheetah", "medium-expert"): 10,
    ("hopper", "medium"): 500,
    ("hopper", "medium-replay"): 200,
    ("hopper", "medium-expert"): 200,
    ("walker2d", "medium"): 20,
    ("walker2d", "medium-replay"): 20,
    ("walker2d", "medium-expert"): 20,
}
"""How many critics the paper takes for a task and kind of data."""


class SoftState(NamedTuple):
    log_alpha: Learner[Array]
    actor: Learner[TanhGaussianPolicy]
    critic: Learner[IndependentEnsemble]
    target_critic: IndependentEnsemble


class SoftActorCritic(Algorithm):
    """What SAC-N, EDAC and CQL share: a random policy that climbs the smallest critic, at a temperature that adapts."""

    log_std: ClassVar[tuple[float, float]] = LOG_STD

    hidden: tuple[int, ...] = static((256, 256, 256))
    """Widths of the hidden layers of every network."""
    critics: int = static(2)
    """Critics; the smallest of their values counts."""
    gamma: float = 0.99
    """Discount."""
    ema: float = 0.005
    """Step of the moving average that the target critics follow."""
    learning_rate: float = 3e-4
    """Adam's, for the critics."""
    actor_learning_rate: float = 3e-4
    """Adam's, for the policy."""
    alpha_learning_rate: float = 3e-4
    """Adam's, for the logarithm of the temperature alpha; 0 keeps alpha as it begins."""
    initial_alpha: float = 1.0
    """Temperature at the beginning: what a unit of the policy's entropy is worth."""
    target_entropy: float | None = None
    """The entropy that alpha steers the policy to; None: minus the width of an action."""

    def __check_init__(self) -> None:
        for width in (self.critics, *self.hidden):
            self.require("critics and every hidden width", width, at_least=1)
        for field in ("learning_rate", "actor_learning_rate", "alpha_learning_rate"):
            self.require(field, getattr(self, field), at_least=0)
        for field in ("gamma", "ema"):
            self.require(field, getattr(self, field), at_least=0, at_most=1)
        self.require("initial_alpha", self.initial_alpha, at_least=1e-8)

    def init(self, key: Array, spec: Spec) -> SoftState:
        actor_key, critic_key = jax.random.split(key)
        actor = TanhGaussianPolicy.init(actor_key, *spec, self.hidden, last=1e-3, log_std=self.log_std)
        critic = critic_ensemble(critic_key, self.critics, spec, self.hidden, last=3e-3)
        return SoftState(
            log_alpha=Learner.of(jnp.zeros(()) + jnp.log(self.initial_alpha)),
            actor=Learner.of(actor),
            critic=Learner.of(critic),
            target_critic=critic,
        )

    def update(self, state: SoftState, batch: Batch, key: Array) -> tuple[SoftState, Metrics]:
        alpha_key, actor_key, next_key, loss_key = jax.random.split(key, 4)
        log_alpha = self.tune_temperature(state, batch.obs, alpha_key)
        alpha = jnp.exp(log_alpha.net)
        actor, actor_metrics = self.improve_policy(state, batch.obs, alpha, actor_key)
        next_value = self.next_value(state.target_critic, actor.net, batch.next_obs, alpha, next_key)
        target = batch.reward + self.gamma * batch.mask * next_value

        def critic_loss(net: IndependentEnsemble) -> tuple[Array, Metrics]:
            return self.critic_loss(net, batch, target, actor.net, loss_key)

        critic, critic_metrics = state.critic.descend(critic_loss, self.learning_rate)
        target_critic = moved_towards(state.target_critic, critic.net, self.ema)
        return SoftState(log_alpha, actor, critic, target_critic), {"alpha": alpha} | actor_metrics | critic_metrics

    def tune_temperature(self, state: SoftState, obs: Array, key: Array) -> Learner[Array]:
        """Alpha rises while the policy's entropy is below its target, and falls while it is above."""
        action, log_prob = state.actor.net.sample(obs, key)
        target_entropy = -action.shape[-1] if self.target_entropy is None else self.target_entropy

        def loss(log_alpha: Array) -> tuple[Array, None]:
            return -log_alpha * jnp.mean(log_prob + target_entropy), None

        return state.log_alpha.descend(loss, self.alpha_learning_rate)[0]

    def improve_policy(
        self, state: SoftState, obs: Array, alpha: Array, key: Array
    ) -> tuple[Learner[TanhGaussianPolicy], Metrics]:
        """Towards what the smallest critic values, and towards entropy: `alpha log pi(a|s) - min Q(s, a)`."""

        def loss(policy: TanhGaussianPolicy) -> tuple[Array, Metrics]:
            action, log_prob = policy.sample(obs, key)
            q = q_values(state.critic.net, obs, action)
            value = jnp.mean(alpha * log_prob - jnp.min(q, axis=0))
            return value, {
                "actor_loss": value,
                "entropy": -jnp.mean(log_prob),
                "q_policy": jnp.mean(jnp.min(q, axis=0)),
                "q_spread": jnp.mean(jnp.std(q, axis=0)),
            }

        return state.actor.descend(loss, self.actor_learning_rate)

    def next_value(
        self, target_critic: IndependentEnsemble, policy: TanhGaussianPolicy, obs: Array, alpha: Array, key: Array
    ) -> Array:
        """Of the policy's action, by the smallest target critic, with its entropy: `min Q'(s', a') - alpha log pi`."""
        action, log_prob = policy.sample(obs, key)
        return jnp.min(q_values(target_critic, obs, action), axis=0) - alpha * log_prob

    @abstractmethod
    def critic_loss(
        self, net: IndependentEnsemble, batch: Batch, target: Array, policy: TanhGaussianPolicy, key: Array
    ) -> tuple[Array, Metrics]: ...

    def act(self, state: SoftState, obs: Array, memory: Memory) -> tuple[Array, Memory]:
        return state.actor.net.mode(obs), memory

    def deployed(self, state: SoftState) -> SoftState:
        return only(state, actor=state.actor.frozen())


def critic_metrics(loss: Array, q: Array) -> Metrics:
    """The TD error and, of the logged actions, the mean value by the smallest critic."""
    return {"critic_loss": loss, "q": jnp.mean(jnp.min(q, axis=0))}


class SACN(SoftActorCritic):
    """Soft actor-critic with N critics: the smallest of their values counts."""

    name: ClassVar[str] = "sac_n"
    published_steps: ClassVar[int] = 3_000_000

    critics: int = static(10)
    """N, how many critics: the more, the more cautious is their smallest value."""

    @classmethod
    def preset(cls, name: str, task: str | None, kind: str | None) -> Self:
        """As many critics as the paper takes for the task."""
        defaults = super().preset(name, task, kind)
        return dataclasses.replace(defaults, critics=CRITICS.get((task or "", kind or ""), defaults.critics))

    def critic_loss(
        self, net: IndependentEnsemble, batch: Batch, target: Array, policy: TanhGaussianPolicy, key: Array
    ) -> tuple[Array, Metrics]:
        q = q_values(net, batch.obs, batch.action)
        loss = td_loss(q, target)
        return loss, critic_metrics(loss, q)
