"""Reward scale, observation statistics, best episodes: numbers worked out by hand."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from logged import random_dataset

from uniq_rl.data import Dataset, Fitted, Preprocessing
from uniq_rl.errors import UniqError


def episodes_of(*rewards: list[float], task: str | None = None) -> Dataset:
    """Episodes with these rewards; obs is (row, 5)."""
    flat = np.concatenate(rewards)
    rows = len(flat)
    end = np.zeros(rows, dtype=bool)
    end[np.cumsum([len(episode) for episode in rewards]) - 1] = True
    obs = np.stack([np.arange(rows), np.full(rows, 5)], axis=1).astype(np.float32)
    action = np.linspace(-1, 1, rows)[:, None]
    return Dataset(obs, action, flat, obs + 1, np.ones(rows), end, name="hand", task=task)


def test_the_returns_span_a_thousand() -> None:
    data = episodes_of([1.0, 2.0], [10.0], [0.5, 0.5, -3.0])  # returns 3, 10, -2
    fitted = Preprocessing(reward="return_range").fit(data)
    assert fitted.reward_scale == pytest.approx(1000 / 12)
    assert (fitted.reward_shift, fitted.note) == (0, None)
    np.testing.assert_allclose(fitted.apply(data)["reward"][:3], [83.33333, 166.66667, 833.33333], rtol=1e-6)


def test_the_scale_belongs_to_the_whole_data_set_not_to_the_training_rows() -> None:
    data = episodes_of([1.0, 2.0], [10.0], [-2.0])
    wanted = Preprocessing(reward="return_range", top_fraction=0.34)
    assert wanted.fit(data, np.array([0, 1])).reward_scale == pytest.approx(1000 / 12)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (episodes_of([1.0, 2.0], [3.0]), "data set hand: all episode returns are equal"),
        (episodes_of([0.3] * 3, [0.9]), "all episode returns are equal"),  # equal up to float32 rounding
        (episodes_of([1.0, 2.0, 3.0]), "data set hand has a single episode"),
    ],
)
def test_rewards_that_cannot_be_scaled_are_left_and_said_so(data: Dataset, sentence: str) -> None:
    fitted = Preprocessing(reward="return_range").fit(data)
    assert (fitted.reward_scale, fitted.reward_shift) == (1, 0)
    assert fitted.note is not None
    assert sentence in fitted.note
    np.testing.assert_array_equal(fitted.apply(data)["reward"], data.reward)


def test_antmaze_rewards_lose_one() -> None:
    data = episodes_of([0.0, 1.0], [0.0], task="antmaze")
    fitted = Preprocessing(reward="return_range").fit(data)
    assert fitted.note is None
    assert fitted.apply(data)["reward"].tolist() == [-1, 0, -1]
    assert Preprocessing().fit(data).apply(data)["reward"].tolist() == [0, 1, 0]


def test_by_default_nothing_changes() -> None:
    data = random_dataset(4)
    arrays = Preprocessing().fit(data).apply(data)
    assert set(arrays) == {"obs", "action", "reward", "next_obs", "mask"}
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, getattr(data, name))
        assert array.dtype == np.float32


def test_observation_statistics_of_the_training_rows() -> None:
    data = episodes_of([0.0] * 4, [1.0] * 4)
    fitted = Preprocessing(normalize_obs=True).fit(data, np.array([0, 2, 4]))
    np.testing.assert_allclose(fitted.obs_mean, [2, 5])
    np.testing.assert_allclose(fitted.obs_std, [np.sqrt(8 / 3) + 1e-3, 1e-3], rtol=1e-6)
    arrays = fitted.apply(data)
    np.testing.assert_allclose(arrays["obs"][2], [0, 0])
    np.testing.assert_allclose(arrays["next_obs"][1], [0, 1000], rtol=1e-5)  # next_obs by the same numbers


def test_actions_are_clipped() -> None:
    data = episodes_of([0.0, 0.0], [1.0])
    clipped = Preprocessing(clip_action=1 - 1e-5).fit(data).apply(data)["action"]
    np.testing.assert_allclose(clipped[:, 0], [-0.99999, 0, 0.99999], rtol=1e-7)
    assert np.abs(clipped).max() < 1


def test_the_best_episodes() -> None:
    data = episodes_of([1.0, 1.0], [5.0], [3.0, 1.0], [0.0])  # returns 2, 5, 4, 0
    assert Preprocessing(top_fraction=0.5).keep(data).tolist() == [2, 3, 4]
    assert Preprocessing(top_fraction=0.01).keep(data).tolist() == [2]
    assert Preprocessing().keep(data).tolist() == list(range(6))
    # Best among those there are to train on, not among those held out.
    assert Preprocessing(top_fraction=0.5).keep(data, np.array([0, 3, 5])).tolist() == [0, 3]
    fitted = Preprocessing(top_fraction=0.5, normalize_obs=True).fit(data)
    np.testing.assert_allclose(fitted.obs_mean[0], 3)


@pytest.mark.parametrize("note", [None, "a sentence."])
def test_json_round_trip_is_exact(note: str | None) -> None:
    data = random_dataset(7)
    fitted = Preprocessing("return_range", normalize_obs=True, clip_action=1 - 1e-5).fit(data)
    fitted = Fitted(fitted.reward_scale, 0.0, fitted.obs_mean, fitted.obs_std, fitted.clip_action, note)
    again = Fitted.from_json(json.loads(json.dumps(fitted.to_json())))
    assert again.to_json() == fitted.to_json()
    for name, array in again.apply(data).items():
        np.testing.assert_array_equal(array, fitted.apply(data)[name])


@pytest.mark.parametrize("values", [{}, {"reward_scale": "x"}, {"reward_scale": None}])
def test_damaged_json(values: dict[str, Any]) -> None:
    with pytest.raises(UniqError, match="stored preprocessing is damaged"):
        Fitted.from_json(values)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"reward": "max"}, "`reward` is 'max' but must be 'none' or 'return_range'"),
        ({"top_fraction": 0.0}, "`top_fraction` is 0.0"),
        ({"clip_action": 1.5}, "`clip_action` is 1.5"),
    ],
)
def test_faults_are_one_sentence(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UniqError, match=sentence):
        Preprocessing(**arguments)


@settings(derandomize=True, deadline=None, max_examples=40)
@given(st.lists(st.integers(-50, 50), min_size=2, max_size=10, unique=True))
def test_scaled_returns_always_span_a_thousand(returns: list[int]) -> None:
    data = episodes_of(*[[float(value) / 2] * 2 for value in returns])
    arrays = Preprocessing(reward="return_range").fit(data).apply(data)
    scaled = arrays["reward"].astype(np.float64).reshape(-1, 2).sum(axis=1)
    assert np.ptp(scaled) == pytest.approx(1000, rel=1e-5)
    assert np.argsort(scaled).tolist() == np.argsort(returns).tolist()
