"""Does disagreement predict error: the numbers behind that answer, on data whose returns can be worked out by hand."""

import json
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from uniq_rl.algorithms import IQL, UNIQ, Spec, Uncertainty
from uniq_rl.data import Dataset
from uniq_rl.data.preprocessing import Fitted
from uniq_rl.data.split import Folds
from uniq_rl.evidence import diagnosis
from uniq_rl.evidence.diagnosis import diagnose, in_slices, predicted_error, returns_to_go
from uniq_rl.evidence.statistics import average_ranks, rank_correlation
from uniq_rl.policy import Policy

OBS = 3


def dataset(lengths: tuple[int, ...], terminated: tuple[bool, ...]) -> Dataset:
    rng = np.random.default_rng(0)
    rows, ends = sum(lengths), np.cumsum(lengths) - 1
    end, mask = np.zeros(rows, bool), np.ones(rows, np.float32)
    end[ends], mask[ends] = True, 1 - np.asarray(terminated)
    obs = rng.normal(size=(rows, OBS)).astype(np.float32)
    return Dataset(
        obs=obs,
        action=rng.uniform(-1, 1, (rows, 2)).astype(np.float32),
        reward=rng.normal(size=rows).astype(np.float32),
        next_obs=np.roll(obs, -1, axis=0),
        mask=mask,
        episode_end=end,
    )


def fitted(scale: float = 1.0) -> Fitted:
    return Fitted(scale, 0.0, np.zeros(OBS, np.float32), np.ones(OBS, np.float32), 1.0)


class Known(NamedTuple):
    """A policy that knows what it is told: the value and the disagreement are columns of the observation."""

    algorithm: Any
    state: Any = None

    def normalized(self, obs: Any) -> Any:
        return obs

    def uncertainty(self, obs: np.ndarray) -> Uncertainty:
        sigma = np.abs(obs[:, 1])
        return Uncertainty(sigma, sigma, 0.9 - 0.1 * sigma, sigma)


class KnownValue(UNIQ):
    def value(self, state: Any, obs: Any) -> Any:
        return obs[:, 0]


def known(**options: Any) -> Any:
    return Known(KnownValue(**options))


# Ranks


@given(st.lists(st.tuples(st.integers(-4, 4), st.floats(-1e6, 1e6)), min_size=3, max_size=40))
def test_rank_correlation_is_scipys(pairs: list[tuple[int, float]]) -> None:
    a, b = (np.asarray(column, np.float64) for column in zip(*pairs, strict=True))
    np.testing.assert_allclose(average_ranks(a), stats.rankdata(a))
    ours = rank_correlation(a, b)
    if len(set(a)) == 1 or len(set(b)) == 1:
        assert ours is None
    else:
        assert ours == pytest.approx(stats.spearmanr(a, b).statistic, abs=1e-12)


def test_rank_correlation_of_an_order() -> None:
    rising = np.arange(20.0)
    assert rank_correlation(rising, np.exp(rising)) == pytest.approx(1)
    assert rank_correlation(rising, -(rising**3)) == pytest.approx(-1)


# Returns


def test_returns_by_hand() -> None:
    """Two episodes, the second cut with 8 to come: 4 + 8 / 2 = 8, 2 + 8 / 2 = 6."""
    returns, weight = returns_to_go(np.asarray([1.0, 2.0, 2.0, 4.0]), np.asarray([1, 3]), np.asarray([0.0, 8.0]), 0.5)
    assert returns.tolist() == [2.0, 2.0, 6.0, 8.0]
    assert weight.tolist() == [0.25, 0.5, 0.25, 0.5]


def test_the_error_is_the_distance_to_the_logged_return() -> None:
    """Values that are the returns but for an error of ten sigma: the ranks agree, and so do the ten groups."""
    data, scale, gamma = dataset((30, 50, 20, 25), (True,) * 4), 2.5, 0.9
    returns, _ = returns_to_go(
        data.reward.astype(np.float64) * scale, np.flatnonzero(data.episode_end), np.zeros(4), gamma
    )
    sigma = np.linspace(0, 1, data.size, dtype=np.float32)[::-1]
    told = np.stack([returns + 10 * sigma, sigma, sigma], axis=1).astype(np.float32)
    data = Dataset(told, data.action, data.reward, told, data.mask, data.episode_end)
    rows = np.arange(30, data.size)  # the first episode was trained on
    found = predicted_error(known(gamma=gamma), data, rows, fitted(scale))
    assert (found["rows"], found["left_out"]) == (95, 0)
    assert found["rank_correlation"] == pytest.approx(1, abs=1e-3)
    assert found["sigma"] == sorted(found["sigma"])
    np.testing.assert_allclose(found["error"], 10 * np.asarray(found["sigma"]), rtol=1e-2, atol=1e-3)
    flat = Dataset(told * [1, 0, 1], data.action, data.reward, told, data.mask, data.episode_end)
    assert predicted_error(known(gamma=gamma), flat, rows, fitted(scale))["rank_correlation"] is None


def test_the_tail_of_a_cut_episode() -> None:
    """Rows whose return would hang on a guess are left out: those with gamma^(steps to the end) above the limit."""
    data, gamma = dataset((100, 100), (True, False)), 0.9
    found = predicted_error(known(gamma=gamma), data, np.arange(200), fitted())
    unknown = int(np.floor(np.log(diagnosis.TAIL) / np.log(gamma)))  # 28 steps: 0.9^28 = 0.052
    assert unknown == 28
    assert (found["rows"], found["left_out"]) == (200 - unknown, unknown)
    assert predicted_error(known(gamma=1.0), data, np.arange(100, 200), fitted())["rows"] == 0


@pytest.mark.parametrize("rows", [0, 10])
def test_too_little_to_say_anything(rows: int) -> None:
    found = predicted_error(known(), dataset((10, 10), (True, True)), np.arange(rows), fitted())
    assert found["rank_correlation"] is None
    assert found["sigma"] == found["error"] == []
    assert found["rows"] == rows


def test_slices_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis, "SLICE", 7)
    obs = np.arange(40.0).reshape(20, 2)
    assert in_slices(lambda part: part.sum(axis=1), obs).tolist() == obs.sum(axis=1).tolist()
    assert len(in_slices(lambda part: part.sum(axis=1), obs[:0])) == 0


# A real policy


def policy(method: Any) -> Policy:
    import jax

    spec = Spec(OBS, 2)
    one = jnp.ones(2)
    state = method.deployed(method.init(jax.random.key(0), spec))
    return Policy(method, state, jnp.zeros(OBS), jnp.ones(OBS), -one, one, spec)


@pytest.mark.parametrize("reading", ["effective", "primary"])
@pytest.mark.parametrize("ensemble", ["independent", "low_rank"])
def test_a_diagnosis_is_small_and_plain(reading: Any, ensemble: Any) -> None:
    data = dataset((20,) * 60, (True,) * 60)
    folds = Folds(np.arange(600), np.arange(600, 700), np.arange(700, 1200))
    ours = policy(UNIQ(hidden=(8,), reading=reading, ensemble=ensemble))
    found = diagnose(ours, data, folds, fitted())
    assert found["error"]["rows"] == 500
    assert -1 <= found["error"]["rank_correlation"] <= 1
    where = found["map"]
    assert where["states"] == "held-out"
    assert len(where["axes"]) == 2
    assert {len(where[name]) for name in ("x", "y", "tau", "sigma")} == {400}
    sigma = ours.uncertainty(data.obs[700:702]).sigma
    assert where["sigma"][:2] == [pytest.approx(float(sigma[0]), rel=1e-3), pytest.approx(float(sigma[1]), rel=1e-3)]
    assert len(json.dumps(found, allow_nan=False)) < 20_000


def test_without_held_out_episodes_the_map_shows_training_states() -> None:
    data = dataset((20,) * 3, (True,) * 3)
    folds = Folds(np.arange(50), np.arange(50, 60), np.arange(0))
    found = diagnose(policy(UNIQ(hidden=(8,))), data, folds, fitted())
    assert found["map"]["states"] == "training"
    assert len(found["map"]["x"]) == 50
    assert found["error"]["rows"] == 0


def test_the_value_is_what_the_members_disagree_about() -> None:
    method = UNIQ(hidden=(8,))
    ours, obs = policy(method), np.random.default_rng(0).normal(size=(5, OBS)).astype(np.float32)
    members = method.by_level(ours.state.ensemble.net(jnp.asarray(obs)))[1]
    np.testing.assert_allclose(diagnosis.values(ours, obs), np.asarray(members).mean(axis=0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(ours.uncertainty(obs).sigma, np.asarray(members).std(axis=0), rtol=1e-4, atol=1e-6)


def test_methods_without_uncertainty_have_no_diagnosis() -> None:
    data = dataset((20,) * 3, (True,) * 3)
    assert diagnose(policy(IQL(hidden=(8,))), data, Folds(np.arange(60), np.arange(0), np.arange(0)), fitted()) == {}
