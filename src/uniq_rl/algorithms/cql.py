"""Conservative Q-learning (Kumar et al., 2020), the variant CQL(H): actions that nobody logged are talked down.

To the TD error comes, times a weight, how far the critics' soft maximum over all actions lies above their value of the
logged one. The soft maximum, the logarithm of an integral, is estimated from sampled actions.
"""

import dataclasses
from typing import ClassVar, Literal, Self

import jax
import jax.numpy as jnp
from jax import Array

from uniq_rl.algorithms.base import Batch, Metrics, q_values, static, td_loss
from uniq_rl.algorithms.sac_n import SoftActorCritic, critic_metrics
from uniq_rl.networks import IndependentEnsemble, TanhGaussianPolicy


class CQL(SoftActorCritic):
    """Conservative Q-learning: the critics' soft maximum over all actions is pushed down to the logged ones."""

    name: ClassVar[str] = "cql"
    log_std: ClassVar[tuple[float, float]] = (-20.0, 2.0)

    normalize_obs: bool = static(True)
    """Observations to mean 0 and standard deviation 1."""
    actor_learning_rate: float = 3e-5
    """Adam's, for the policy."""
    alpha_learning_rate: float = 3e-5
    """Adam's, for the logarithm of the temperature alpha; 0 keeps alpha as it begins."""
    conservative_weight: float = 10.0
    """Weight of the conservative term beside the TD error; 0 turns it off."""
    sampled_actions: int = static(10)
    """Actions drawn per state from each of: all actions alike, the policy there, the policy at the next state."""

    def __check_init__(self) -> None:
        self.require("conservative_weight", self.conservative_weight, at_least=0)
        self.require("sampled_actions", self.sampled_actions, at_least=1)

    @classmethod
    def preset(cls, name: str, task: str | None, kind: str | None) -> Self:
        """The same everywhere, but for the scaled rewards of hopper-medium."""
        defaults = super().preset(name, task, kind)
        scaling: Literal["none", "return_range"] = "return_range" if (task, kind) == ("hopper", "medium") else "none"
        return dataclasses.replace(defaults, reward_scaling=scaling)

    def next_value(
        self, target_critic: IndependentEnsemble, policy: TanhGaussianPolicy, obs: Array, alpha: Array, key: Array
    ) -> Array:
        """Of the policy's action, by the smaller target critic; its entropy earns nothing."""
        return jnp.min(q_values(target_critic, obs, policy.sample(obs, key)[0]), axis=0)

    def critic_loss(
        self, net: IndependentEnsemble, batch: Batch, target: Array, policy: TanhGaussianPolicy, key: Array
    ) -> tuple[Array, Metrics]:
        sampled, log_density = self.proposals(policy, batch, key)
        # The logged action and all sampled ones in one product.
        actions = jnp.concatenate([batch.action[None], sampled])
        obs = jnp.broadcast_to(batch.obs[None], (len(actions), *batch.obs.shape))
        q = q_values(net, obs.reshape(-1, obs.shape[-1]), actions.reshape(-1, actions.shape[-1]))
        q = q.reshape(self.critics, len(actions), -1)
        logged, others = q[:, 0], q[:, 1:]
        loss = td_loss(logged, target)
        gap = jnp.mean(soft_maximum(others, log_density) - logged, axis=-1)
        metrics = critic_metrics(loss, logged) | {"conservative_gap": jnp.mean(gap)}
        return loss + self.conservative_weight * jnp.sum(gap), metrics

    def proposals(self, policy: TanhGaussianPolicy, batch: Batch, key: Array) -> tuple[Array, Array]:
        """Sampled actions `[3 n, B, action]` and their log-densities `[3 n, B]`.

        The policy does not learn from them: only the critics' parameters are differentiated.
        """
        uniform_key, here_key, there_key = jax.random.split(key, 3)
        count, (rows, width) = self.sampled_actions, batch.action.shape
        uniform = jax.random.uniform(uniform_key, (count, rows, width), batch.action.dtype, -1, 1)
        here, log_here = policy.samples(batch.obs, here_key, count)
        there, log_there = policy.samples(batch.next_obs, there_key, count)
        log_uniform = jnp.full((count, rows), width * jnp.log(0.5), log_here.dtype)
        return jnp.concatenate([uniform, here, there]), jnp.concatenate([log_uniform, log_here, log_there])


def soft_maximum(q: Array, log_density: Array) -> Array:
    """`log sum exp(Q(s, a) - log density(a))` over sampled actions, `[critics, n, B]` to `[critics, B]`.

    Each action counts for the room it stands for: the sum estimates `n` times the integral of `exp Q`, from wherever
    the actions were drawn.
    """
    return jax.nn.logsumexp(q - log_density[None], axis=1)
