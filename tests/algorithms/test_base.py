"""The steps that methods share, by hand."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from probes import drawn
from uniq_rl.algorithms import ALGORITHMS, Spec
from uniq_rl.algorithms.base import (
    Learner,
    advantage_weights,
    cosine_decay,
    critic_ensemble,
    moved_towards,
    q_values,
    td_loss,
)

pytestmark = pytest.mark.usefixtures("x64")


def test_td_loss_is_a_mean_over_the_batch_and_a_sum_over_critics() -> None:
    q, target = jnp.array([[1.0, 2.0], [4.0, 0.0]]), jnp.array([0.0, 2.0])
    # First critic (1 + 0) / 2, second (16 + 4) / 2.
    assert float(td_loss(q, target)) == 10.5


def test_weights_are_capped() -> None:
    weights = advantage_weights(jnp.array([-1.0, 0.0, 1.0, 1.5, 2.0, 1e4]), 3.0, 100.0)
    np.testing.assert_allclose(weights, [math.exp(-3), 1.0, math.exp(3), math.exp(4.5), 100.0, 100.0], rtol=1e-14)


def test_average_moves_by_its_step() -> None:
    target, online = {"w": jnp.array([1.0, -2.0])}, {"w": jnp.array([3.0, 2.0])}
    np.testing.assert_allclose(moved_towards(target, online, 0.005)["w"], [1.01, -1.98], rtol=1e-14)


def test_cosine_from_one_to_zero() -> None:
    decay = cosine_decay(jnp.array([0, 250, 500, 1000, 1500]), 1000.0)
    np.testing.assert_allclose(decay, [1.0, 0.5 + 0.25 * math.sqrt(2), 0.5, 0.0, 0.0], atol=1e-15)


def test_adam_by_hand() -> None:
    learner = Learner.of(jnp.array([1.0, -3.0]))
    # The first step of Adam has the length of the rate in every coordinate, whatever the gradient's size.
    learner, value = learner.descend(lambda p: (jnp.sum(p**2), p[0]), 0.1)
    np.testing.assert_allclose(learner.net, [0.9, -2.9], atol=1e-8)
    assert float(value) == 1.0
    # Second step: gradients 2, then 1.8, with decays 0.9 and 0.999 and their bias corrections.
    learner, _ = learner.descend(lambda p: (jnp.sum(p**2), None), 0.1)
    first = (0.9 * 0.1 * 2 + 0.1 * 1.8) / (1 - 0.9**2)
    second = (0.999 * 0.001 * 4 + 0.001 * 1.8**2) / (1 - 0.999**2)
    assert float(learner.net[0]) == pytest.approx(0.9 - 0.1 * first / (math.sqrt(second) + 1e-8), abs=1e-7)


def test_clip_and_weight_decay_by_hand() -> None:
    """The gradient (6, 8) has norm 10; clipped to 5 it is (3, 4). Adam's moments see that, and not the decay."""
    learner, _ = Learner.of(jnp.array([3.0, 4.0])).descend(lambda p: (jnp.sum(p**2), None), 0.1, clip=5.0)
    np.testing.assert_allclose(learner.moments.mu, [0.3, 0.4], rtol=1e-12)
    np.testing.assert_allclose(learner.moments.nu, [0.009, 0.016], rtol=1e-12)
    np.testing.assert_allclose(learner.net, [2.9, 3.9], rtol=1e-8)
    short, _ = Learner.of(jnp.array([3.0, 4.0])).descend(lambda p: (jnp.sum(p**2), None), 0.1, clip=50.0)
    np.testing.assert_allclose(short.moments.mu, [0.6, 0.8], rtol=1e-12)
    decayed, _ = Learner.of(jnp.array([3.0, 4.0])).descend(lambda p: (jnp.sum(p**2), None), 0.1, weight_decay=0.5)
    np.testing.assert_allclose(decayed.moments.mu, [0.6, 0.8], rtol=1e-12)
    np.testing.assert_allclose(decayed.net, [3 - 0.1 - 0.1 * 0.5 * 3, 4 - 0.1 - 0.1 * 0.5 * 4], rtol=1e-8)


def test_critics_see_observation_then_action() -> None:
    critic = drawn(lambda: critic_ensemble(jax.random.key(0), 2, Spec(2, 1), (4,)))
    obs, action = jnp.array([[1.0, 2.0]]), jnp.array([[3.0]])
    values = q_values(critic, obs, action)
    assert values.shape == (2, 1)
    np.testing.assert_array_equal(values, critic(jnp.array([[1.0, 2.0, 3.0]])))
    assert float(values[0, 0]) != float(values[1, 0])


def test_published_budgets() -> None:
    budgets = {name: method.published_steps for name, method in ALGORITHMS.items()}
    assert {name for name, steps in budgets.items() if steps != 1_000_000} == {"sac_n", "edac", "dt"}
    assert (budgets["sac_n"], budgets["edac"], budgets["dt"]) == (3_000_000, 3_000_000, 100_000)
