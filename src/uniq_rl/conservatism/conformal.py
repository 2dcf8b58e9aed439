"""Split conformal prediction: from calibration scores to a quantile that holds on new data (`eq:qhat_finite`)."""

import math
from fractions import Fraction
from typing import Literal

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from uniq_rl.errors import UniqError

Calibration = Literal["bellman", "disagreement", "none"]


def conformal_rank(n: int, delta: float) -> int:
    """The rank `ceil((1 - delta)(n + 1))` of the score that covers a new one with probability at least `1 - delta`.

    When the rank exceeds `n` only infinity would be honest, so this refuses and names the smallest usable `n`.
    """
    if not 0 < delta < 1:
        raise UniqError(f"delta is {delta:g}, but a miscoverage must lie strictly between 0 and 1; 0.1 is customary.")
    miscoverage = Fraction(str(delta))  # decimal as written: 0.9 * 10 must be 9, not the 9.000000000000002 of floats
    rank = math.ceil((1 - miscoverage) * (n + 1))
    if rank > n:
        smallest = math.ceil(1 / miscoverage) - 1
        raise UniqError(
            f"The calibration fold has {n} rows, too few for delta = {delta:g}: "
            f"use at least {smallest} calibration rows, more data, or a larger delta."
        )
    return rank


def conformal_quantile(scores: Array, rank: Array | int) -> Array:
    """`q_hat`: the `rank`-th smallest score. Pad with infinity for fewer scores than slots: padding sorts last."""
    return jnp.take(jnp.sort(scores), rank - 1)


def bellman_score(reward: Array, mask: Array, value: Array, next_value: Array, gamma: Array | float) -> Array:
    """Nonconformity `alpha = |r + gamma (1 - d) V(s') - V(s)|` (`eq:nonconf_full`, terminals masked)."""
    return jnp.abs(reward + gamma * mask * next_value - value)


def coverage(scores: ArrayLike, q_hat: ArrayLike) -> Array:
    """Share of fresh scores that `q_hat` covers; about `1 - delta` when they are exchangeable with calibration's."""
    return jnp.mean(jnp.asarray(scores) <= jnp.asarray(q_hat))
