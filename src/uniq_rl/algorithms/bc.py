"""Behaviour cloning: imitate the logged actions, whatever they were worth; the yardstick for everything else."""

import dataclasses
from typing import ClassVar, NamedTuple

import jax.numpy as jnp
from jax import Array

from uniq_rl.algorithms.base import Algorithm, Batch, Learner, Memory, Metrics, Spec, only, static
from uniq_rl.data.preprocessing import Preprocessing
from uniq_rl.networks import DeterministicPolicy


class BCState(NamedTuple):
    actor: Learner[DeterministicPolicy]


class BC(Algorithm):
    """Behaviour cloning: squared error to the logged action."""

    name: ClassVar[str] = "bc"

    normalize_obs: bool = static(True)
    """Observations to mean 0 and standard deviation 1."""
    hidden: tuple[int, ...] = static((256, 256))
    """Widths of the hidden layers."""
    learning_rate: float = 3e-4
    """Adam's."""
    top_fraction: float = static(1.0)
    """Imitate only this share of the episodes, the best by return; 0.1 is 10 %-BC."""

    def __check_init__(self) -> None:
        self.require("learning_rate", self.learning_rate, at_least=0)
        for width in self.hidden:
            self.require("every hidden width", width, at_least=1)
        _ = self.preprocessing  # which refuses a share of the episodes that is none

    @property
    def preprocessing(self) -> Preprocessing:
        return dataclasses.replace(super().preprocessing, top_fraction=self.top_fraction)

    def init(self, key: Array, spec: Spec) -> BCState:
        return BCState(Learner.of(DeterministicPolicy.init(key, spec.obs_dim, spec.action_dim, self.hidden)))

    def update(self, state: BCState, batch: Batch, key: Array) -> tuple[BCState, Metrics]:
        def loss(policy: DeterministicPolicy) -> tuple[Array, Array]:
            value = jnp.mean(jnp.square(policy.mode(batch.obs) - batch.action))
            return value, value

        actor, actor_loss = state.actor.descend(loss, self.learning_rate)
        return BCState(actor), {"actor_loss": actor_loss}

    def act(self, state: BCState, obs: Array, memory: Memory) -> tuple[Array, Memory]:
        return state.actor.net.mode(obs), memory

    def deployed(self, state: BCState) -> BCState:
        return only(state, actor=state.actor.frozen())
