"""TD3+BC (Fujimoto and Gu, 2021): TD3 as it is, and one more term that keeps the policy near the logged actions."""

from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar, NamedTuple

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
    fit_critics,
    moved_towards,
    only,
    q_values,
    static,
)
from uniq_rl.networks import DeterministicPolicy, IndependentEnsemble


class TD3State(NamedTuple):
    actor: Learner[DeterministicPolicy]
    critic: Learner[IndependentEnsemble]
    target_actor: DeterministicPolicy
    target_critic: IndependentEnsemble


class TD3(Algorithm):
    """What TD3+BC and ReBRAC share: twin critics, a deterministic policy that learns less often, smoothed targets."""

    hidden: tuple[int, ...] = static((256, 256))
    """Widths of the hidden layers of every network."""
    critics: int = static(2)
    """Critics; the smallest of their values counts."""
    delay: int = static(2)
    """The policy and the targets move once in so many updates, the critics in every one."""
    gamma: float = 0.99
    """Discount."""
    learning_rate: float = 3e-4
    """Adam's, for every network."""
    ema: float = 0.005
    """Step of the moving average that the targets follow."""
    policy_noise: float = 0.2
    """Standard deviation of the noise on the target policy's actions."""
    noise_clip: float = 0.5
    """Largest such noise."""

    def __check_init__(self) -> None:
        for width in (self.critics, *self.hidden):
            self.require("critics and every hidden width", width, at_least=1)
        self.require("delay", self.delay, at_least=1)
        for field in ("learning_rate", "policy_noise", "noise_clip"):
            self.require(field, getattr(self, field), at_least=0)
        for field in ("gamma", "ema"):
            self.require(field, getattr(self, field), at_least=0, at_most=1)

    @abstractmethod
    def policy_loss(self, critic: IndependentEnsemble, batch: Batch, action: Array) -> tuple[Array, Array]:
        """The loss of the policy that does `action` in the batch's states, and the values `[B]` it climbs."""

    def networks(self, key: Array, spec: Spec) -> tuple[DeterministicPolicy, IndependentEnsemble]:
        """The policy and the critics as they begin."""
        actor_key, critic_key = jax.random.split(key)
        return (
            DeterministicPolicy.init(actor_key, spec.obs_dim, spec.action_dim, self.hidden),
            critic_ensemble(critic_key, self.critics, spec, self.hidden),
        )

    def init(self, key: Array, spec: Spec) -> TD3State:
        actor, critic = self.networks(key, spec)
        return TD3State(Learner.of(actor), Learner.of(critic), target_actor=actor, target_critic=critic)

    def cycle(self) -> tuple[Callable[[TD3State, Batch, Array], tuple[TD3State, Metrics]], ...]:
        return (self.update_critics,) * (self.delay - 1) + (self.update,)

    def update_critics(self, state: TD3State, batch: Batch, key: Array) -> tuple[TD3State, Metrics]:
        """The critics alone: their targets move with the policy."""
        action = state.target_actor.mode(batch.next_obs)
        noise = self.policy_noise * jax.random.normal(key, action.shape, action.dtype)
        next_value = self.next_value(state, batch, smoothed(action, noise, self.noise_clip))
        critic, critic_loss = fit_critics(state.critic, batch, next_value, self.gamma, self.learning_rate)
        return state._replace(critic=critic), {"critic_loss": critic_loss}

    def next_value(self, state: TD3State, batch: Batch, action: Array) -> Array:
        """What the next state is worth if `action` follows."""
        return jnp.min(q_values(state.target_critic, batch.next_obs, action), axis=0)

    def update(self, state: TD3State, batch: Batch, key: Array) -> tuple[TD3State, Metrics]:
        """The critics, then the policy by the new critics, then the targets."""
        state, metrics = self.update_critics(state, batch, key)
        critic = state.critic.net

        def loss(policy: DeterministicPolicy) -> tuple[Array, Metrics]:
            action = policy.mode(batch.obs)
            value, q = self.policy_loss(critic, batch, action)
            distance = jnp.mean(jnp.square(action - batch.action))
            return value, {"actor_loss": value, "q": jnp.mean(q), "distance": distance}

        actor, of_actor = state.actor.descend(loss, self.learning_rate)
        state = state._replace(
            actor=actor,
            target_actor=moved_towards(state.target_actor, actor.net, self.ema),
            target_critic=moved_towards(state.target_critic, critic, self.ema),
        )
        return state, metrics | of_actor

    def act(self, state: TD3State, obs: Array, memory: Memory) -> tuple[Array, Memory]:
        return state.actor.net.mode(obs), memory

    def deployed(self, state: TD3State) -> TD3State:
        return only(state, actor=state.actor.frozen())


class TD3BC(TD3):
    """TD3 plus behaviour cloning: the policy climbs the first critic, and pays for its distance from the log."""

    name: ClassVar[str] = "td3_bc"

    normalize_obs: bool = static(True)
    """Observations to mean 0 and standard deviation 1."""
    alpha: float = 2.5
    """Weight of the critic against imitation: 0 is behaviour cloning."""

    def __check_init__(self) -> None:
        self.require("alpha", self.alpha, at_least=0)

    def policy_loss(self, critic: IndependentEnsemble, batch: Batch, action: Array) -> tuple[Array, Array]:
        q = q_values(critic.members(0, 1), batch.obs, action)[0]
        imitation = jnp.mean(jnp.square(action - batch.action))
        return imitation - self.alpha / magnitude(q) * jnp.mean(q), q


def smoothed(action: Array, noise: Array, limit: Array | float) -> Array:
    """An action shaken by at most `limit`, and no further than actions go: a narrow peak of a critic counts less."""
    return jnp.clip(action + jnp.clip(noise, -limit, limit), -1, 1)


def magnitude(q: Array) -> Array:
    """Mean absolute value of a batch; a number to divide by, through which nothing is learned."""
    return jax.lax.stop_gradient(jnp.mean(jnp.abs(q)))
