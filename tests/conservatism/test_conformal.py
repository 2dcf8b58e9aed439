"""The conformal quantile: its rank exactly, its coverage by simulation, the same scores in MAPIE and NumPy."""

import math
import re
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mapie.regression import SplitConformalRegressor
from sklearn.base import BaseEstimator, RegressorMixin

from uniq_rl.conservatism import bellman_score, conformal_quantile, conformal_rank, coverage
from uniq_rl.errors import UniqError

DELTAS = ("0.01", "0.05", "0.1", "0.15", "0.18", "0.2", "0.25", "0.3", "0.5", "0.7", "0.9", "0.333", "1e-3")


@pytest.mark.parametrize("delta", DELTAS)
def test_rank_is_exact_and_refusal_names_the_smallest_fold(delta: str) -> None:
    miscoverage, usable = Fraction(delta), []
    for n in range(1201):
        exact = math.ceil((1 - miscoverage) * (n + 1))
        if exact <= n:
            usable.append(n)
            assert conformal_rank(n, float(delta)) == exact
        else:
            with pytest.raises(UniqError) as refusal:
                conformal_rank(n, float(delta))
            named = int(re.search(r"at least (\d+) calibration rows", str(refusal.value))[1])
            assert math.ceil((1 - miscoverage) * (named + 1)) <= named
            assert math.ceil((1 - miscoverage) * named) > named - 1
    assert usable[0] == named


def test_rank_by_hand() -> None:
    assert conformal_rank(9, 0.1) == 9  # 0.9 * 10 is exactly 9
    assert conformal_rank(149, 0.18) == 123  # 0.82 * 150 is exactly 123; in floats, a little more
    assert conformal_rank(999, 0.1) == 900
    assert conformal_rank(20, 0.1) == 19  # 18.9 rounds up
    with pytest.raises(UniqError, match=r"has 8 rows, too few for delta = 0\.1: use at least 9 "):
        conformal_rank(8, 0.1)
    with pytest.raises(UniqError, match="has 0 rows"):
        conformal_rank(0, 0.1)


@pytest.mark.parametrize("delta", [0.0, 1.0, -0.1, 1.5, float("nan")])
def test_delta_must_be_a_probability(delta: float) -> None:
    with pytest.raises(UniqError, match="between 0 and 1"):
        conformal_rank(100, delta)


def test_quantile_is_an_order_statistic_and_padding_sorts_last() -> None:
    scores = jnp.array([3.0, jnp.inf, 1.0, 2.0, jnp.inf, 5.0])
    assert [float(conformal_quantile(scores, rank)) for rank in (1, 2, 3, 4)] == [1.0, 2.0, 3.0, 5.0]
    ranks = jnp.array([4, 2])
    stacked = jnp.stack([scores, scores * 10])
    np.testing.assert_array_equal(jax.vmap(conformal_quantile)(stacked, ranks), [5.0, 20.0])


@pytest.mark.parametrize(("n", "delta"), [(24, 0.1), (33, 0.25)])
def test_coverage_is_as_promised_and_no_other_rank_delivers_it(n: int, delta: float) -> None:
    draws = 40_000
    scores = np.random.default_rng(7).exponential(size=(draws, n + 1))
    calibration, fresh = jnp.asarray(scores[:, :n], jnp.float32), np.float32(scores[:, n])
    quantile = jax.jit(jax.vmap(conformal_quantile, in_axes=(0, None)))
    # Three standard deviations of the observed share. A rank more or less moves coverage by 1 / (n + 1), half of
    # which lies beyond the window's edge: more than twice the tolerance.
    tolerance = 3 * math.sqrt(delta * (1 - delta) / draws)

    def holds(rank: int) -> bool:
        share = np.mean(fresh <= np.asarray(quantile(calibration, rank)))
        return 1 - delta - tolerance <= share <= 1 - delta + 1 / (n + 1) + tolerance

    rank = conformal_rank(n, delta)
    assert [holds(rank + off) for off in (-1, 0, 1)] == [False, True, False]


class Zero(RegressorMixin, BaseEstimator):
    """Predicts nothing, so that the absolute residual of a row is its score."""

    def fit(self, x: np.ndarray, y: np.ndarray) -> "Zero":
        self.fitted_ = True
        return self

    def predict(self, x: np.ndarray) -> np.ndarray:
        return np.zeros(len(x))


@pytest.mark.parametrize(("n", "delta"), [(20, 0.1), (24, 0.1), (57, 0.25), (101, 0.05), (333, 0.2)])
def test_agrees_with_mapie_and_numpy(n: int, delta: float) -> None:
    scores = np.random.default_rng(n).gamma(2.0, size=n)
    rows = np.zeros((n, 1))
    mapie = SplitConformalRegressor(Zero().fit(rows, scores), confidence_level=1 - delta, prefit=True)
    mapie.conformalize(rows, scores)
    _, interval = mapie.predict_interval(rows[:1])
    rank = conformal_rank(n, delta)
    with jax.enable_x64(True):
        ours = float(conformal_quantile(jnp.asarray(scores), rank))
    assert ours == pytest.approx(float(interval[0, 1, 0]), abs=1e-12)
    # NumPy counts from 0 to n - 1; half a place short of ours, it must go up to ours and no further.
    assert ours == np.quantile(scores, (rank - 1.5) / (n - 1), method="higher")


@pytest.mark.usefixtures("x64")
def test_bellman_score_by_hand() -> None:
    score = bellman_score(
        reward=jnp.array([1.0, 1.0, -2.0]),
        mask=jnp.array([1.0, 0.0, 1.0]),
        value=jnp.array([3.0, 3.0, 0.0]),
        next_value=jnp.array([4.0, 4.0, 1.0]),
        gamma=0.5,
    )
    # 1 + 2 - 3; a terminal: 1 - 3 whatever follows; -2 + 0.5 - 0.
    np.testing.assert_allclose(score, [0.0, 2.0, 1.5], atol=1e-15)


def test_coverage_counts_ties_as_covered() -> None:
    assert float(coverage(jnp.array([1.0, 2.0, 3.0, 4.0]), 2.0)) == 0.5
