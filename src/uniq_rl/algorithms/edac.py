"""EDAC (An et al., 2021): SAC-N whose critics are kept different, so that fewer of them are as cautious.

Critics that rise in the same direction of the action leave a way out of the data that their minimum does not see. So
their gradients in the action are pushed apart.
"""

import dataclasses
from typing import ClassVar, Self

import jax
import jax.numpy as jnp
from jax import Array

from uniq_rl.algorithms.base import Batch, Metrics, td_loss
from uniq_rl.algorithms.sac_n import SACN, critic_metrics
from uniq_rl.networks import IndependentEnsemble, TanhGaussianPolicy

SETTINGS = {
    ("halfcheetah", "medium"): (10, 1.0),
    ("halfcheetah", "medium-replay"): (10, 1.0),
    ("halfcheetah", "medium-expert"): (10, 5.0),
    ("hopper", "medium"): (50, 1.0),
    ("hopper", "medium-replay"): (50, 1.0),
    ("hopper", "medium-expert"): (50, 1.0),
    ("walker2d", "medium"): (10, 1.0),
    ("walker2d", "medium-replay"): (10, 1.0),
    ("walker2d", "medium-expert"): (10, 5.0),
}
"""Critics and eta that the paper takes for a task and kind of data."""


class EDAC(SACN):
    """SAC-N with fewer critics, whose gradients in the action are pushed apart."""

    name: ClassVar[str] = "edac"

    eta: float = 1.0
    """Weight of the diversity of the critics' gradients; 0 is SAC-N."""

    def __check_init__(self) -> None:
        self.require("eta", self.eta, at_least=0)

    @classmethod
    def preset(cls, name: str, task: str | None, kind: str | None) -> Self:
        """The paper's number of critics and eta for the task."""
        defaults = super().preset(name, None, None)
        critics, eta = SETTINGS.get((task or "", kind or ""), (defaults.critics, defaults.eta))
        return dataclasses.replace(defaults, critics=critics, eta=eta)

    def critic_loss(
        self, net: IndependentEnsemble, batch: Batch, target: Array, policy: TanhGaussianPolicy, key: Array
    ) -> tuple[Array, Metrics]:
        q, slopes = values_and_slopes(net, batch.obs, batch.action, self.critics)
        loss, similarity = td_loss(q, target), gradient_similarity(slopes)
        return loss + self.eta * similarity, critic_metrics(loss, q) | {"similarity": similarity / self.critics}


def values_and_slopes(net: IndependentEnsemble, obs: Array, action: Array, critics: int) -> tuple[Array, Array]:
    """`Q(s, a)` of every critic `[N, B]`, and their gradients in the action `[N, B, action]`, in one pass and back."""

    def total(actions: Array) -> tuple[Array, Array]:
        copies = jnp.broadcast_to(obs[None], (critics, *obs.shape))
        q = net.each(jnp.concatenate([copies, actions], axis=-1))
        return jnp.sum(q), q  # each critic has a copy of the action of its own: the sum keeps them apart

    slopes, q = jax.grad(total, has_aux=True)(jnp.broadcast_to(action[None], (critics, *action.shape)))
    return q, slopes


def gradient_similarity(slopes: Array) -> Array:
    """Cosine of the critics' gradients `[N, B, action]`, over all ordered pairs, over `N - 1`; mean over the batch.

    Pairs need no matrix: with unit vectors `u_n` their sum is `|sum u_n|^2 - sum |u_n|^2`.
    """
    units = directions(slopes)
    pairs = jnp.sum(jnp.square(jnp.sum(units, axis=0)), axis=-1) - jnp.sum(jnp.square(units), axis=(0, 2))
    return jnp.mean(pairs) / max(len(slopes) - 1, 1)


def directions(slopes: Array) -> Array:
    """Gradients at length 1; one shorter than 1e-10 has no direction: it becomes zero, and nothing is learned from it.

    To unit length twice, first as if by a number: then the derivative, which only turns, is that of a vector of length
    1, and rounding is not divided by a short length. With one dimension of action it is exactly zero.
    """
    sloping = squared_length(slopes) > 1e-20
    nearly = slopes / jax.lax.stop_gradient(jnp.sqrt(jnp.where(sloping, squared_length(slopes), 1)))
    return jnp.where(sloping, nearly / jnp.sqrt(jnp.where(sloping, squared_length(nearly), 1)), 0)


def squared_length(vectors: Array) -> Array:
    return jnp.sum(jnp.square(vectors), axis=-1, keepdims=True)
