"""The folds: disjoint, exhaustive, of the right size, the same every time."""

from itertools import combinations
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from logged import random_dataset

from uniq_rl.data import Dataset, Folds, Split
from uniq_rl.errors import UniqError


def parts(folds: Folds) -> list[Any]:
    return [folds.train, folds.calibration, folds.heldout]


def of_lengths(lengths: list[int]) -> Dataset:
    rows = sum(lengths)
    end = np.zeros(rows, dtype=bool)
    end[np.cumsum(lengths) - 1] = True
    zeros = np.zeros((rows, 1))
    return Dataset(zeros, zeros, np.zeros(rows), zeros, np.ones(rows), end)


def test_shares_by_hand() -> None:
    folds = Split().folds(random_dataset(episodes=100, length=5))
    # 5 of 100 episodes held out: 25 rows; 20 % of the other 475: 95.
    assert [len(part) for part in parts(folds)] == [380, 95, 25]


@pytest.mark.parametrize(("episodes", "heldout"), [(39, 0), (40, 2), (41, 2), (50, 2), (100, 5)])
def test_episodes_are_held_out_from_forty_on(episodes: int, heldout: int) -> None:
    assert len(Split().folds(random_dataset(episodes, length=3)).heldout) == 3 * heldout


def test_a_tiny_share_still_holds_one_episode_out() -> None:
    assert len(Split(heldout=0.001).folds(random_dataset(40, length=3)).heldout) == 3


def test_zero_shares_give_empty_folds() -> None:
    folds = Split(calibration=0, heldout=0).folds(random_dataset(50))
    assert [len(part) for part in parts(folds)] == [250, 0, 0]
    assert all(part.dtype == np.int64 for part in parts(folds))
    assert len(Split(calibration=0, by="episode").folds(random_dataset(10)).calibration) == 0


@settings(derandomize=True, deadline=None, max_examples=80)
@given(
    lengths=st.lists(st.integers(1, 9), min_size=2, max_size=60).filter(lambda lengths: sum(lengths) >= 4),
    calibration=st.floats(0, 0.5),
    heldout=st.floats(0, 0.3),
    by=st.sampled_from(["transition", "episode"]),
    seed=st.integers(0, 5),
)
def test_folds_divide_the_rows(
    lengths: list[int], calibration: float, heldout: float, by: Literal["transition", "episode"], seed: int
) -> None:
    data = of_lengths(lengths)
    split = Split(calibration, heldout, by, seed)
    try:
        folds = split.folds(data)
    except UniqError:
        assert by == "episode"  # one long episode can fill the share and more
        return
    everything = np.concatenate(parts(folds))
    assert sorted(everything.tolist()) == list(range(data.size))
    for part in parts(folds):
        assert (np.diff(part) > 0).all()
    for one, other in combinations(parts(folds), 2):
        assert not np.intersect1d(one, other).size
    episode_of = np.repeat(np.arange(data.episodes), data.episode_lengths)
    assert not set(episode_of[folds.heldout]) & set(episode_of[np.concatenate([folds.train, folds.calibration])])
    rest = data.size - len(folds.heldout)
    if by == "transition":
        assert len(folds.calibration) == round(calibration * rest)
    else:
        assert not set(episode_of[folds.train]) & set(episode_of[folds.calibration])
        assert calibration * rest <= len(folds.calibration) < calibration * rest + max(lengths)
    for part, again in zip(parts(folds), parts(split.folds(data)), strict=True):
        np.testing.assert_array_equal(part, again)


def test_folds_depend_on_the_episodes_and_the_seed_alone() -> None:
    one, other = random_dataset(50, seed=1), random_dataset(50, seed=2)
    np.testing.assert_array_equal(Split().folds(one).calibration, Split().folds(other).calibration)
    assert (Split(seed=1).folds(one).calibration[:20] != Split().folds(one).calibration[:20]).any()


def test_a_literal() -> None:
    # The same on every machine: a change here silently changes every published run.
    folds = Split(calibration=0.25).folds(random_dataset(4, length=3))
    assert folds.calibration.tolist() == [4, 7, 10]
    assert Split().folds(random_dataset(40, length=1)).heldout.tolist() == [3, 11]


def test_the_held_out_episodes_do_not_move_with_the_calibration_share() -> None:
    data = random_dataset(60)
    np.testing.assert_array_equal(
        Split(calibration=0.1).folds(data).heldout, Split(calibration=0.4).folds(data).heldout
    )


def test_calibration_rows_are_spread_over_the_episodes() -> None:
    data = random_dataset(30, length=100)
    per_episode = np.bincount(Split().folds(data).calibration // 100, minlength=30)
    assert per_episode.min() > 5  # 20 expected, binomial
    assert per_episode.max() < 40


@pytest.mark.parametrize(
    ("split", "episodes", "length"),
    [
        (Split(by="episode"), 1, 10),
        (Split(calibration=0.9, by="transition"), 1, 2),
        (Split(calibration=0.95, by="episode"), 3, 2),
    ],
)
def test_nothing_left_to_train_on(split: Split, episodes: int, length: int) -> None:
    with pytest.raises(UniqError, match=r"data set random: a calibration share of .* leaves no row to train on"):
        split.folds(random_dataset(episodes, length))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"calibration": 1.0}, "`calibration` is 1.0 but must be a share"),
        ({"calibration": float("nan")}, "`calibration` is nan"),
        ({"heldout": -0.1}, "`heldout` is -0.1"),
        ({"by": "row"}, "`by` is 'row' but must be 'transition' or 'episode'"),
        ({"seed": -1}, "`seed` is -1"),
    ],
)
def test_faults_are_one_sentence(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UniqError, match=sentence):
        Split(**arguments)
