"""Implicit Q-learning (Kostrikov et al., 2022), after the official implementation.

Never asks the critics about an action outside the data: an expectile of Q over the logged actions stands in for
their maximum.
"""

import dataclasses
from typing import ClassVar, Literal, NamedTuple, Self

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
    advantage_weights,
    cosine_decay,
    critic_ensemble,
    fit_critics,
    moved_towards,
    only,
    q_values,
    static,
)
from uniq_rl.conservatism import expectile_loss
from uniq_rl.data.preprocessing import Preprocessing
from uniq_rl.networks import GaussianPolicy, IndependentEnsemble


class IQLState(NamedTuple):
    value: Learner[IndependentEnsemble]
    critic: Learner[IndependentEnsemble]
    target_critic: IndependentEnsemble
    actor: Learner[GaussianPolicy]
    step: Array


class ImplicitActorCritic(Algorithm):
    """What IQL and its descendants share: twin critics and a policy by advantage-weighted regression."""

    reward_scaling: Literal["none", "return_range"] = static("return_range")
    """return_range: rewards times 1000 / (largest minus smallest episode return), as official IQL."""
    hidden: tuple[int, ...] = static((256, 256))
    """Widths of the hidden layers of every network."""
    critics: int = static(2)
    """Critics; the smallest of their values counts."""
    gamma: float = 0.99
    """Discount."""
    learning_rate: float = 3e-4
    """Adam's, for every network."""
    ema: float = 0.005
    """Step of the moving average that the targets follow."""
    beta_pi: float = 3.0
    """Inverse temperature of the advantage weights: 0 is behaviour cloning."""
    weight_cap: float = 100.0
    """Largest advantage weight."""
    decay_steps: float | None = None
    """Updates over which the actor's learning rate falls to zero (cosine); None: the whole budget."""

    def __check_init__(self) -> None:
        for width in (self.critics, *self.hidden):
            self.require("critics and every hidden width", width, at_least=1)
        for field in ("learning_rate", "beta_pi", "weight_cap"):
            self.require(field, getattr(self, field), at_least=0)
        for field in ("gamma", "ema"):
            self.require(field, getattr(self, field), at_least=0, at_most=1)
        self.require("decay_steps", self.decay_steps, at_least=1)

    @property
    def preprocessing(self) -> Preprocessing:
        # The policy is a Gaussian around a tanh mean: an action of exactly 1 would pull the mean to infinity.
        return dataclasses.replace(super().preprocessing, clip_action=1 - 1e-5)

    def budgeted(self, steps: int) -> Self:
        return self if self.decay_steps is not None else dataclasses.replace(self, decay_steps=float(steps))

    def extract_policy(
        self, actor: Learner[GaussianPolicy], batch: Batch, advantage: Array, step: Array
    ) -> tuple[Learner[GaussianPolicy], Array]:
        """Advantage-weighted regression (`eq:policy_loss_app`)."""
        weights = advantage_weights(advantage, self.beta_pi, self.weight_cap)

        def loss(policy: GaussianPolicy) -> tuple[Array, Array]:
            value = -jnp.mean(weights * policy.log_prob(batch.obs, batch.action))
            return value, value

        rate = (
            self.learning_rate
            if self.decay_steps is None
            else self.learning_rate * cosine_decay(step, self.decay_steps)
        )
        return actor.descend(loss, rate)

    def fit_critics(
        self, critic: Learner[IndependentEnsemble], batch: Batch, next_value: Array
    ) -> tuple[Learner[IndependentEnsemble], Array]:
        return fit_critics(critic, batch, next_value, self.gamma, self.learning_rate)


class IQL(ImplicitActorCritic):
    """Implicit Q-learning: one expectile for all states."""

    name: ClassVar[str] = "iql"

    expectile: float = 0.7
    """Level of the value function: 0.5 is the behaviour's value, towards 1 the best logged action's."""

    def __check_init__(self) -> None:
        self.require("expectile", self.expectile, at_least=0, below=1)

    def init(self, key: Array, spec: Spec) -> IQLState:
        value_key, critic_key, actor_key = jax.random.split(key, 3)
        critic = critic_ensemble(critic_key, self.critics, spec, self.hidden)
        return IQLState(
            value=Learner.of(IndependentEnsemble.init(value_key, 1, spec.obs_dim, self.hidden)),
            critic=Learner.of(critic),
            target_critic=critic,
            actor=Learner.of(GaussianPolicy.init(actor_key, spec.obs_dim, spec.action_dim, self.hidden)),
            step=jnp.zeros((), jnp.int32),
        )

    def update(self, state: IQLState, batch: Batch, key: Array) -> tuple[IQLState, Metrics]:
        q = jnp.min(q_values(state.target_critic, batch.obs, batch.action), axis=0)

        def value_loss(net: IndependentEnsemble) -> tuple[Array, Array]:
            loss = jnp.mean(expectile_loss(q - net(batch.obs)[0], self.expectile))
            return loss, loss

        value, v_loss = state.value.descend(value_loss, self.learning_rate)
        v, next_v = jnp.split(value.net(jnp.concatenate([batch.obs, batch.next_obs]))[0], 2)
        actor, actor_loss = self.extract_policy(state.actor, batch, q - v, state.step)
        critic, critic_loss = self.fit_critics(state.critic, batch, next_v)
        target_critic = moved_towards(state.target_critic, critic.net, self.ema)
        metrics = {
            "value_loss": v_loss,
            "critic_loss": critic_loss,
            "actor_loss": actor_loss,
            "q": jnp.mean(q),
            "v": jnp.mean(v),
        }
        return IQLState(value, critic, target_critic, actor, state.step + 1), metrics

    def act(self, state: IQLState, obs: Array, memory: Memory) -> tuple[Array, Memory]:
        return state.actor.net.mode(obs), memory

    def deployed(self, state: IQLState) -> IQLState:
        return only(state, actor=state.actor.frozen())
