"""The type: its checks, its episodes, its fingerprint."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uniq_rl.data import Dataset
from uniq_rl.errors import UniqError


def fields(**changes: Any) -> dict[str, Any]:
    values = {
        "obs": np.arange(10.0).reshape(5, 2),
        "action": np.array([[-1.0], [-0.5], [0.0], [0.5], [1.0]]),
        "reward": np.array([1.0, 2.0, 3.0, 4.0, 5.0]),
        "next_obs": np.arange(10.0).reshape(5, 2) + 2,
        "mask": np.array([1.0, 0.0, 1.0, 1.0, 1.0]),
        "episode_end": np.array([False, True, False, False, True]),
    }
    return values | changes


def make(**changes: Any) -> Dataset:
    return Dataset(**fields(**changes))


def test_types_and_sizes() -> None:
    data = make()
    assert (data.size, data.obs_dim, data.action_dim, data.episodes) == (5, 2, 1, 2)
    assert {name: getattr(data, name).dtype.name for name in fields()} == {
        "obs": "float32",
        "action": "float32",
        "reward": "float32",
        "next_obs": "float32",
        "mask": "float32",
        "episode_end": "bool",
    }


def test_episodes_by_hand() -> None:
    data = make()
    assert data.episode_bounds.tolist() == [[0, 2], [2, 5]]
    assert data.episode_starts.tolist() == [0, 2]
    assert data.episode_lengths.tolist() == [2, 3]
    assert data.episode_returns.tolist() == [3.0, 12.0]
    assert data.episode_returns.dtype == np.float64


def test_the_last_row_and_terminated_rows_end_an_episode() -> None:
    data = make(episode_end=np.zeros(5, dtype=bool))
    assert data.episode_end.tolist() == [False, True, False, False, True]


def test_a_continuing_task_is_one_episode() -> None:
    data = make(mask=np.ones(5), episode_end=np.zeros(5))
    assert data.episode_bounds.tolist() == [[0, 5]]
    assert data.mask.tolist() == [1] * 5


def test_arrays_are_read_only_and_independent_of_the_caller() -> None:
    values = fields(obs=np.zeros((5, 2), dtype=np.float32))
    data = Dataset(**values, infos={"qpos": np.arange(5.0)})
    for name in values:
        with pytest.raises(ValueError, match="read-only"):
            getattr(data, name)[0] = 0
    with pytest.raises(ValueError, match="read-only"):
        data.infos["qpos"][0] = 1
    values["obs"][0] = 7  # the caller's own array stays writable and is not ours
    assert data.obs[0, 0] == 0
    with pytest.raises(dataclasses.FrozenInstanceError):
        data.name = "other"  # type: ignore[misc]


def test_actions_within_rounding_are_clipped() -> None:
    data = make(action=np.array([[1.00005], [-1.00005], [0.0], [0.0], [0.0]]))
    assert data.action[:2, 0].tolist() == [1.0, -1.0]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"obs": np.zeros(5)}, r"data set data: column `obs` has shape \(5,\) but must be \(rows, dimensions\)"),
        ({"obs": np.zeros((5, 4, 4))}, r"`obs` has shape \(5, 4, 4\).*flat vector per row"),
        ({"action": np.zeros((5, 0))}, r"`action` has shape \(5, 0\)"),
        ({"reward": np.zeros((5, 2))}, r"`reward` has shape \(5, 2\) but must hold one number per row"),
        ({"reward": np.zeros(4)}, "column `reward` has 4 rows but `obs` has 5"),
        ({"next_obs": np.zeros((5, 3))}, "`next_obs` has 3 columns but `obs` has 2"),
        ({"reward": np.array([0, 0, np.nan, 0, 0])}, "column `reward` is nan at row 2; remove"),
        ({"obs": np.where(np.arange(10).reshape(5, 2) == 7, np.inf, 0)}, "column `obs` is inf at row 3, column 1"),
        ({"next_obs": np.full((5, 2), 1e300)}, "column `next_obs` is inf at row 0, column 0.*fit a float32"),
        ({"action": np.array([[0.0], [2.0], [-3.5], [0], [0]])}, r"reaches -3.5 at row 2, column 0, outside \[-1, 1\]"),
        ({"action": np.ones((5, 1), dtype=np.int32)}, "int32 values, so the actions look discrete"),
        ({"mask": np.array([1, 1, 0.5, 1, 1])}, "column `mask` is 0.5 at row 2 but may only be 0 or 1"),
        ({"obs": np.array([["a", "b"]] * 5)}, "column `obs` holds <U1 values; store plain numbers"),
        ({"obs": np.array([[object(), 1]] * 5)}, "column `obs` holds object values"),
        ({"obs": [[1, 2], [3]]}, "column `obs` is not a rectangular array"),
        ({"infos": {"qpos": np.zeros(3)}}, r"column `qpos` has shape \(3,\) but needs 5 rows"),
        ({name: value[:1] for name, value in fields().items()}, "holds 1 transition; at least 2 are needed"),
        ({name: value[:0] for name, value in fields().items()}, "holds 0 transitions; at least 2 are needed"),
    ],
)
def test_faults_are_one_sentence(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UniqError, match=sentence) as caught:
        make(**changes)
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".")


def test_take_episodes() -> None:
    data = make(infos={"qpos": np.arange(5)})
    taken = data.take_episodes([1, 0])
    assert taken.reward.tolist() == [3, 4, 5, 1, 2]
    assert taken.episode_bounds.tolist() == [[0, 3], [3, 5]]
    assert taken.infos["qpos"].tolist() == [2, 3, 4, 0, 1]
    assert data.take_episodes(np.array([0, 1])).fingerprint == data.fingerprint
    for wrong in ([], [2], [-1]):
        with pytest.raises(UniqError, match="choose episodes between 0 and 1"):
            data.take_episodes(wrong)


def test_fingerprint_is_the_same_everywhere() -> None:
    # A literal: the same data must have the same fingerprint on every machine and in every version.
    assert make().fingerprint == "6a72576ba91200f3c696ba8fb15395c30017dcb7df1a32ef46caf18ee167993a"


def test_fingerprint_ignores_what_is_not_data() -> None:
    other = make(
        name="other", task="hopper", infos={"qpos": np.zeros(5)}, obs=np.asfortranarray(fields()["obs"].astype(">f8"))
    )
    assert other.fingerprint == make().fingerprint


@settings(derandomize=True, deadline=None, max_examples=50)
@given(st.sampled_from(sorted(fields())), st.data())
def test_fingerprint_sees_every_number(name: str, draw: st.DataObject) -> None:
    changed = fields()[name].copy()
    row = draw.draw(st.integers(0, 3))  # the last row always ends an episode
    if name in ("mask", "episode_end"):
        row = 0 if name == "mask" else 2  # rows whose other flags leave this one free
        changed[row] = not changed[row]
    else:
        changed[row] = changed[row] * 0.5 + 0.125
    assert make(**{name: changed}).fingerprint != make().fingerprint


def test_fingerprint_sees_the_shape() -> None:
    flat = fields(obs=np.zeros((5, 2)), next_obs=np.zeros((5, 2)), action=np.zeros((5, 1)))
    wide = fields(obs=np.zeros((5, 1)), next_obs=np.zeros((5, 1)), action=np.zeros((5, 3)))
    assert Dataset(**flat).fingerprint != Dataset(**wide).fingerprint


@settings(derandomize=True, deadline=None, max_examples=50)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=12).filter(lambda lengths: sum(lengths) > 1))
def test_episodes_tile_the_rows(lengths: list[int]) -> None:
    rows = sum(lengths)
    end = np.zeros(rows, dtype=bool)
    end[np.cumsum(lengths) - 1] = True
    reward = np.arange(rows) % 7
    data = Dataset(np.zeros((rows, 1)), np.zeros((rows, 1)), reward, np.zeros((rows, 1)), np.ones(rows), end)
    assert data.episode_lengths.tolist() == lengths
    assert data.episode_returns.sum() == reward.sum()
    assert data.episode_returns.tolist() == [float(reward[a:b].sum()) for a, b in data.episode_bounds]
    assert data.take_episodes(range(len(lengths))).fingerprint == data.fingerprint
