"""Action ranges other than [-1, 1]."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from logged import Columns, chain

from uniq_rl.data import Bounds, Dataset, from_arrays, load_dataset, load_npz, save_npz
from uniq_rl.errors import UniqError


def with_actions(values: Any) -> Columns:
    return chain() | {"actions": np.asarray(values)}


ACTIONS = np.stack([np.linspace(0, 4, 9), np.linspace(-3, 3, 9)], axis=1)


def test_rescaled_and_restored() -> None:
    data = from_arrays(with_actions(ACTIONS), action_range=([0, -3], [4, 3]))
    np.testing.assert_allclose(data.action, np.stack([np.linspace(-1, 1, 9)] * 2, axis=1), atol=1e-7)
    assert data.action_low is not None
    assert data.action_high is not None
    assert (data.action_low.tolist(), data.action_high.tolist()) == ([0, -3], [4, 3])
    np.testing.assert_allclose(Bounds(data.action_low, data.action_high).restore(data.action), ACTIONS, atol=1e-6)


def test_one_number_for_all_dimensions() -> None:
    data = from_arrays(with_actions(ACTIONS), action_range=(-4, 4))
    np.testing.assert_allclose(data.action, ACTIONS / 4, atol=1e-7)
    assert data.action_high is not None
    assert data.action_high.tolist() == [4, 4]


def test_the_range_of_the_data() -> None:
    data = from_arrays(with_actions(ACTIONS + 1e6 + 0.01), action_range="data")  # float32 rounds these to 1/16
    assert (data.action.min(), data.action.max()) == pytest.approx((-1, 1), abs=0.05)
    assert np.abs(data.action).max() <= 1


def test_the_usual_range_changes_nothing() -> None:
    data = from_arrays(chain(), action_range=(-1, [1.0]))
    assert data.fingerprint == from_arrays(chain()).fingerprint
    assert data.action_low is None


def test_bounds_beside_the_actions() -> None:
    beside = from_arrays(with_actions(ACTIONS) | {"action_low": [0, -3], "action_high": [4, 3]})
    assert beside.fingerprint == from_arrays(with_actions(ACTIONS), action_range=([0, -3], [4, 3])).fingerprint


def test_integers_are_continuous_once_their_range_is_given() -> None:
    data = from_arrays(with_actions(np.arange(9)[:, None]), action_range=(0, 8))
    np.testing.assert_allclose(data.action[:, 0], np.linspace(-1, 1, 9), atol=1e-7)


def test_bounds_are_part_of_the_data() -> None:
    plain = from_arrays(chain())
    scaled = from_arrays(with_actions(chain()["actions"] * 2), action_range=(-2, 2))
    assert np.array_equal(plain.action, scaled.action)
    assert plain.fingerprint != scaled.fingerprint
    taken = scaled.take_episodes([0, 2])
    assert taken.action_low is not None
    assert taken.action_low.tolist() == [-2]


def test_save_and_load_are_exact(tmp_path: Path) -> None:
    data = from_arrays(with_actions(ACTIONS / 3 + 1e-9), action_range=(-1.1, 1.7))
    save_npz(data, tmp_path / "own.npz")
    again = load_npz(tmp_path / "own.npz")
    assert again.fingerprint == data.fingerprint
    assert again.action_high is not None
    assert again.action_high.tolist() == np.full(2, 1.7, np.float32).tolist()
    with pytest.raises(UniqError, match="given by both `action_range` and `original_action_low`"):
        load_npz(tmp_path / "own.npz", action_range=(-1, 1))


def test_files_take_a_range_too(tmp_path: Path) -> None:
    np.savez(tmp_path / "own.npz", **with_actions(ACTIONS))
    assert load_dataset(tmp_path / "own.npz", action_range=(-4, 4)).action_high is not None


@pytest.mark.parametrize(
    ("action_range", "sentence"),
    [
        (None, r"reaches 4 at row 8, column 0, outside \[-1, 1\]; .* give its bounds as action_range=\(low, high\)"),
        ((-2, 2), r"`actions` is 4 at row 8, column 0, outside the action range \[-2, 2\]"),
        ((4, -4), r"dimension 0 is \[4, -4\]; give finite bounds, the lower one first"),
        (([-9, 0], [9, 0]), r"dimension 1 is \[0, 0\]"),
        ((-9, np.inf), r"dimension 0 is \[-9, inf\]"),
        (([1, 2, 3], 9), r"action_low has shape \(3,\) but the actions have 2 dimensions"),
        ("auto", r"""'auto' but must be \(low, high\) or "data\""""),
        ((1, 2, 3), r"must be \(low, high\)"),
        (("a", "b"), "action_low holds <U1 values"),
    ],
)
def test_faults(action_range: Any, sentence: str) -> None:
    with pytest.raises(UniqError, match=sentence) as caught:
        from_arrays(with_actions(ACTIONS), action_range=action_range)
    assert str(caught.value).endswith(".")


def test_faults_of_the_data() -> None:
    with pytest.raises(UniqError, match="never changes in column 0"):
        from_arrays(with_actions(np.ones((9, 1))), action_range="data")
    with pytest.raises(UniqError, match="look discrete"):
        from_arrays(with_actions(np.arange(9)[:, None]), action_range="data")
    with pytest.raises(UniqError, match="only one of `action_low` and `action_high`"):
        from_arrays(with_actions(ACTIONS) | {"action_low": 3})
    with pytest.raises(UniqError, match="given by both"):
        from_arrays(with_actions(ACTIONS) | {"action_low": 0, "action_high": 4}, action_range=(0, 4))
    with pytest.raises(UniqError, match="both action_low and action_high, or neither"):
        Dataset(*[from_arrays(chain()).__dict__[key] for key in FIELDS], action_low=np.zeros(1))


FIELDS = ("obs", "action", "reward", "next_obs", "mask", "episode_end")
