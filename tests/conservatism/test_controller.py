"""sigma, Delta, u, tau and V_pess: by hand, and the properties the paper claims (and where it errs)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from uniq_rl.conservatism import (
    EPSILON,
    LEVELS,
    adaptive_expectile,
    calibrated_uncertainty,
    disagreement,
    pessimistic_value,
    spread,
)

CONFIG_A = {"tau_min": 0.5, "tau_max": 0.95, "beta_tau": 5.0}
CONFIG_B = {"tau_min": 0.5, "tau_max": 0.90, "beta_tau": 5.0}


def test_levels_are_the_papers() -> None:
    assert LEVELS == (0.5, 0.7, 0.9)


@pytest.mark.usefixtures("x64")
def test_disagreement_divides_by_the_number_of_members() -> None:
    members = jnp.array([[1.0, 5.0], [2.0, 5.0], [6.0, 5.0]])
    # Mean 3, squared deviations 4 + 1 + 9 = 14, over 3 members (the sample deviation would divide by 2).
    np.testing.assert_allclose(disagreement(members), [np.sqrt(14 / 3), 0.0], atol=1e-15)


def test_one_member_never_disagrees() -> None:
    np.testing.assert_array_equal(disagreement(jnp.array([[1.5, -7.0, 1e6]])), [0.0, 0.0, 0.0])


@pytest.mark.usefixtures("x64")
def test_spread_is_upper_mean_minus_lower_mean() -> None:
    upper, lower = jnp.array([[4.0, 1.0], [8.0, 1.0]]), jnp.array([[1.0, 2.0], [2.0, 4.0]])
    np.testing.assert_allclose(spread(upper, lower), [4.5, -2.0], atol=1e-15)


@pytest.mark.usefixtures("x64")
def test_uncertainty_is_in_units_of_the_quantile() -> None:
    u = calibrated_uncertainty(jnp.array([0.0, 3.0]), jnp.array(1.5))
    np.testing.assert_allclose(u, [0.0, 3.0 / (1.5 + 1e-6)], rtol=1e-15)
    # All calibration scores zero: large, but finite.
    assert EPSILON == 1e-6
    np.testing.assert_allclose(calibrated_uncertainty(jnp.array([2.0]), 0.0), [2e6], rtol=1e-12)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("config", "at_zero", "midpoint"), [(CONFIG_A, 0.9470, 0.725), (CONFIG_B, 0.8973, 0.7)])
def test_expectile_at_landmarks(config: dict[str, float], at_zero: float, midpoint: float) -> None:
    tau = adaptive_expectile(jnp.array([0.0, 1.0, jnp.inf]), **config)
    exact = config["tau_min"] + (config["tau_max"] - config["tau_min"]) / (1 + np.exp(-config["beta_tau"]))
    np.testing.assert_allclose(tau, [exact, midpoint, config["tau_min"]], atol=1e-15)
    assert round(float(tau[0]), 4) == at_zero


@pytest.mark.usefixtures("x64")
def test_equal_bounds_switch_the_controller_off() -> None:
    np.testing.assert_array_equal(adaptive_expectile(jnp.array([0.0, 0.3, 40.0]), 1.0, 1.0, 5.0), [1.0, 1.0, 1.0])


level = st.floats(0.0, 1.0)
uncertainty = st.floats(0.0, 4.0)


@given(level, level, st.floats(0.1, 6.0), st.lists(uncertainty, min_size=8, max_size=8, unique=True))
def test_expectile_falls_strictly_within_its_bounds(a: float, b: float, beta: float, us: list[float]) -> None:
    low, high = min(a, b), max(a, b)
    assume(high - low > 1e-3)
    us = sorted(us)
    with jax.enable_x64(True):
        tau = np.asarray(adaptive_expectile(jnp.asarray([*us, 1.0]), low, high, beta))
    assert np.all((tau > low) & (tau < high))
    distinct = np.diff(us) > 1e-6
    assert np.all(np.diff(tau[:-1])[distinct] < 0)
    assert tau[-1] == pytest.approx((low + high) / 2, abs=1e-12)


def test_sharpness_makes_a_step_at_one() -> None:
    tau = adaptive_expectile(jnp.array([0.99, 1.01]), 0.5, 0.9, 1e4)
    np.testing.assert_allclose(tau, [0.9, 0.5], atol=1e-6)


@pytest.mark.usefixtures("x64")
def test_pessimism_takes_kappa_sigma_off() -> None:
    value, sigma = jnp.array([2.0, -1.0]), jnp.array([0.5, 3.0])
    np.testing.assert_allclose(pessimistic_value(value, sigma, 0.5), [1.75, -2.5], atol=1e-15)
    np.testing.assert_array_equal(pessimistic_value(value, sigma, 0.0), value)
