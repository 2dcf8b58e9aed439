"""ReBRAC (Tarasov et al., 2023): TD3+BC with a penalty in the critics' target too, and what deep critics need."""

import dataclasses
from typing import ClassVar, Self

import jax
import jax.numpy as jnp
from jax import Array

from uniq_rl.algorithms.base import Batch, Spec, critic_ensemble, q_values, static
from uniq_rl.algorithms.td3_bc import TD3, TD3State, magnitude
from uniq_rl.networks import DeterministicPolicy, IndependentEnsemble

PENALTIES = {
    ("halfcheetah", "medium"): (0.001, 0.01),
    ("halfcheetah", "medium-replay"): (0.01, 0.001),
    ("halfcheetah", "medium-expert"): (0.01, 0.1),
    ("hopper", "medium"): (0.01, 0.01),
    ("hopper", "medium-replay"): (0.05, 0.5),
    ("hopper", "medium-expert"): (0.1, 0.01),
    ("walker2d", "medium"): (0.05, 0.1),
    ("walker2d", "medium-replay"): (0.05, 0.01),
    ("walker2d", "medium-expert"): (0.01, 0.01),
}
"""Published `beta1` and `beta2`."""


class ReBRAC(TD3):
    """TD3 with a behaviour-cloning penalty on the policy and one on the critics' target, each with its own weight."""

    name: ClassVar[str] = "rebrac"
    wants_next_action: ClassVar[bool] = True

    batch_size: int = static(1024)
    """Transitions per update."""
    hidden: tuple[int, ...] = static((256, 256, 256))
    """Widths of the hidden layers of every network."""
    layer_norm: bool = static(True)
    """Whether the critics normalise every hidden layer."""
    learning_rate: float = 1e-3
    """Adam's, for every network."""
    beta1: float = 0.01
    """Penalty on the policy for its distance from the logged action."""
    beta2: float = 0.01
    """Penalty on the next state's value for the target policy's distance from the next logged action."""

    def __check_init__(self) -> None:
        for field in ("beta1", "beta2"):
            self.require(field, getattr(self, field), at_least=0)

    @classmethod
    def preset(cls, name: str, task: str | None, kind: str | None) -> Self:
        """The published penalties, chosen for each data set."""
        method = super().preset(name, task, kind)
        beta1, beta2 = PENALTIES.get((task or "", kind or ""), (method.beta1, method.beta2))
        return dataclasses.replace(method, beta1=beta1, beta2=beta2)

    def networks(self, key: Array, spec: Spec) -> tuple[DeterministicPolicy, IndependentEnsemble]:
        actor_key, critic_key = jax.random.split(key)
        return (
            DeterministicPolicy.init(actor_key, spec.obs_dim, spec.action_dim, self.hidden, last=1e-3),
            critic_ensemble(critic_key, self.critics, spec, self.hidden, last=3e-3, layer_norm=self.layer_norm),
        )

    def next_value(self, state: TD3State, batch: Batch, action: Array) -> Array:
        assert batch.next_action is not None
        # NaN, where the log does not say what was done next, counts as no distance: there is no penalty there.
        distance = jnp.nansum(jnp.square(action - batch.next_action), axis=-1)
        return super().next_value(state, batch, action) - self.beta2 * distance

    def policy_loss(self, critic: IndependentEnsemble, batch: Batch, action: Array) -> tuple[Array, Array]:
        q = jnp.min(q_values(critic, batch.obs, action), axis=0)
        distance = jnp.sum(jnp.square(action - batch.action), axis=-1)
        return jnp.mean(self.beta1 * distance - q / magnitude(q)), q
