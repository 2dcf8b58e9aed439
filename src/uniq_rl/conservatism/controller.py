"""From disagreement to conservatism: `sigma(s)`, `u(s)`, `tau(s)`, `V_pess(s)` and the diagnostic `Delta(s)`."""

import jax
import jax.numpy as jnp
from jax import Array

LEVELS = (0.5, 0.7, 0.9)
"""The expectile levels of the ensemble; the middle one carries disagreement, the outer two the spread."""

EPSILON = 1e-6
"""Keeps `u` finite when every calibration score is zero."""


def disagreement(members: Array) -> Array:
    """`sigma(s)`: population standard deviation over the members, the leading axis (`eq:sigma_app`)."""
    return jnp.std(members, axis=0)


def spread(upper: Array, lower: Array) -> Array:
    """`Delta(s)`: mean of the 0.9 members minus mean of the 0.5 members (`eq:delta`); a diagnostic."""
    return jnp.mean(upper, axis=0) - jnp.mean(lower, axis=0)


def calibrated_uncertainty(sigma: Array, q_hat: Array | float, epsilon: float = EPSILON) -> Array:
    """`u(s) = sigma(s) / (q_hat + eps)` (`eq:u_full`)."""
    return sigma / (q_hat + epsilon)


def adaptive_expectile(u: Array, tau_min: Array | float, tau_max: Array | float, beta_tau: Array | float) -> Array:
    """`tau(s)`: from near `tau_max` where `u` is small to `tau_min` where it is large (`eq:tau_s`)."""
    return tau_min + (tau_max - tau_min) * jax.nn.sigmoid(-beta_tau * (u - 1))


def pessimistic_value(value: Array, sigma: Array, kappa: Array | float) -> Array:
    """`V_pess(s) = V(s) - kappa sigma(s)` (`eq:vpess`)."""
    return value - kappa * sigma
