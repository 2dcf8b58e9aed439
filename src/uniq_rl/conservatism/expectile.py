"""Expectile regression: the loss whose minimiser sits above the mean for tau > 1/2 (`eq:iql_loss`)."""

import jax.numpy as jnp
from jax import Array


def expectile_loss(difference: Array, tau: Array | float) -> Array:
    """`|tau - 1(difference < 0)| difference^2`, elementwise; `difference` is target minus prediction."""
    weight = jnp.abs(tau - (difference < 0))
    return weight * jnp.square(difference)
