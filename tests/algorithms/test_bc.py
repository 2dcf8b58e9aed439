"""Behaviour cloning by hand, and its settings."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from probes import BEST, HERE, bandit, drawn
from uniq_rl.algorithms import BC, Batch, Spec
from uniq_rl.algorithms.base import Learner
from uniq_rl.algorithms.bc import BCState
from uniq_rl.data import Dataset, Preprocessing
from uniq_rl.errors import UniqError
from uniq_rl.networks import MLP, Dense, DeterministicPolicy
from uniq_rl.training.cohort import Cohort, Run


def test_defaults_are_the_published_ones() -> None:
    method = BC()
    assert (method.hidden, method.batch_size, method.learning_rate) == ((256, 256), 256, 3e-4)
    assert method.preprocessing == Preprocessing(reward="none", normalize_obs=True, top_fraction=1.0)
    assert BC(top_fraction=0.1).preprocessing.top_fraction == 0.1
    assert BC.preset("paper", "hopper", "medium") == method


@pytest.mark.parametrize("share", [0.0, -0.1, 1.1, float("nan")])
def test_a_share_of_the_episodes_lies_between_nothing_and_all(share: float) -> None:
    with pytest.raises(UniqError, match="top_fraction"):
        BC(top_fraction=share)


def test_loss_is_the_mean_over_rows_and_dimensions() -> None:
    """A policy of one layer, `tanh(obs)` in both dimensions; the first step of Adam has the length of the rate."""
    policy = DeterministicPolicy(MLP((Dense(jnp.ones((1, 2)), jnp.zeros(2)),)))
    obs = jnp.array([[0.0], [1.0]])
    action = jnp.array([[0.5, 0.0], [0.0, 1.0]])
    unused: Any = None
    batch = Batch(obs, action, unused, unused, unused)
    state, metrics = BC(learning_rate=0.1).update(BCState(Learner.of(policy)), batch, jax.random.key(0))
    t = np.tanh(1.0)
    assert float(metrics["actor_loss"]) == pytest.approx((0.25 + 0 + t**2 + (t - 1) ** 2) / 4, rel=1e-5)
    # Slopes of the weights: the first dimension overshoots in the second row, the second falls short.
    layer = state.actor.net.mean.layers[0]
    np.testing.assert_allclose(layer.weight, [[1 - 0.1, 1 + 0.1]], rtol=1e-4)


def test_only_the_best_episodes_are_drawn() -> None:
    """Ten episodes with returns 0 to 9 in a shuffled order; three tenths of them are the last three."""
    returns = np.random.default_rng(0).permutation(10)
    rows = 40
    data = Dataset(
        obs=np.zeros((rows, 2)),
        action=np.zeros((rows, 1)),
        reward=np.repeat(returns, 4) / 4,
        next_obs=np.zeros((rows, 2)),
        mask=np.ones(rows),
        episode_end=np.arange(rows) % 4 == 3,
    )
    cohort = Cohort([Run(BC(top_fraction=0.3, hidden=(4,)), data, 0, "0")])
    train = cohort.rows.train
    drawable = np.asarray(cohort.store.data)[int(train.offset[0]) :][: int(train.size[0])]
    np.testing.assert_array_equal(np.unique(drawable[:, -2] * 4), [7, 8, 9])
    assert len(drawable) == 12


def test_clones_the_mean_action_and_not_the_best() -> None:
    data = bandit()
    cohort = Cohort([Run(BC(hidden=(16,), batch_size=64, learning_rate=3e-3, normalize_obs=False), data, 0, "0")])
    progress = cohort.advance(cohort.start(), 300)
    action = cohort.policy(cohort.policies(progress), 0)(HERE)[0]
    assert action == pytest.approx(data.action.mean(), abs=0.06)
    assert action < BEST - 0.3


def test_state_is_the_actor_alone() -> None:
    state = drawn(lambda: BC(hidden=(4,)).init(jax.random.key(0), Spec(2, 1)))
    assert state._fields == ("actor",)
    assert BC().deployed(state).actor.moments is None
