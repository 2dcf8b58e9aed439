"""Expectile regression, by hand and against SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import expectile

from uniq_rl.conservatism import expectile_loss


@pytest.mark.usefixtures("x64")
def test_by_hand() -> None:
    difference = jnp.array([-2.0, -1.0, 0.0, 1.0, 3.0])
    # Below the prediction the weight is 1 - tau = 0.3, above it tau = 0.7.
    np.testing.assert_allclose(expectile_loss(difference, 0.7), [1.2, 0.3, 0.0, 0.7, 6.3], atol=1e-15)
    # Half of the squared error at tau = 1/2.
    np.testing.assert_allclose(expectile_loss(difference, 0.5), [2.0, 0.5, 0.0, 0.5, 4.5], atol=1e-15)


@pytest.mark.usefixtures("x64")
def test_one_expectile_per_state() -> None:
    difference = jnp.array([-1.0, 2.0])
    np.testing.assert_allclose(expectile_loss(difference, jnp.array([0.9, 0.25])), [0.1, 1.0], atol=1e-15)


@jax.jit
def slope(prediction: jax.Array, sample: jax.Array, tau: jax.Array) -> jax.Array:
    return jax.grad(lambda v: jnp.mean(expectile_loss(sample - v, tau)))(prediction)


numbers = st.floats(-50, 50).map(lambda x: round(x, 3))


@given(st.lists(numbers, min_size=9, max_size=9), st.floats(0.02, 0.98))
def test_minimiser_is_scipys_expectile(sample: list[float], tau: float) -> None:
    with jax.enable_x64(True):
        at = expectile(sample, alpha=tau)
        values, level = jnp.asarray(sample), jnp.asarray(tau)
        # The loss is strictly convex, so the sign of its slope on both sides locates its only minimum.
        assert abs(float(slope(jnp.asarray(at), values, level))) < 1e-7
        assert float(slope(jnp.asarray(at + 1e-3), values, level)) > 0
        assert float(slope(jnp.asarray(at - 1e-3), values, level)) < 0
