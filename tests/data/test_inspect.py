"""The summary a person reads before training."""

import json

import numpy as np
import pytest
from logged import chain, random_dataset

from uniq_rl.data import Dataset, from_arrays
from uniq_rl.data.inspect import inspect_dataset


def test_numbers_by_hand() -> None:
    summary = inspect_dataset(from_arrays(chain(), name="hand", task="hopper"))
    assert {key: summary[key] for key in ("name", "task", "transitions", "episodes", "terminated", "truncated")} == {
        "name": "hand",
        "task": "hopper",
        "transitions": 9,
        "episodes": 3,
        "terminated": 2,
        "truncated": 1,
    }
    assert summary["length"] == {"min": 2, "median": 3.0, "max": 4}
    assert summary["return"] == {"min": 3.0, "mean": 12.0, "max": 26.0}  # 0+1+2, 3+4, 5+6+7+8
    assert summary["reward"] == {"min": 0.0, "mean": 4.0, "max": 8.0, "zero_share": pytest.approx(1 / 9)}
    assert summary["action"] == [{"min": -1.0, "mean": 0.0, "max": 1.0, "share_at_bound": pytest.approx(2 / 9)}]
    assert [column["max"] for column in summary["obs"]] == [203.0, 3.0]
    assert len(summary["fingerprint"]) == 64
    assert summary["suspicious"] == {
        "rows_not_continuing": 0,
        "first_row_not_continuing": None,
        "cut_rows_that_continue": 0,
        "rows_standing_still": 0,
        "duplicate_rows": 0,
        "constant_obs_columns": [],
        "constant_action_columns": [],
        "constant_infos": [],
    }
    assert json.loads(json.dumps(summary)) == summary


def suspicious() -> Dataset:
    columns = chain((4, 3, 2), (False, False, False))
    columns["next_observations"][1, 0] = 50  # row 1 leads elsewhere
    columns["next_observations"][3] = columns["observations"][4]  # cut off, then recorded after the reset
    columns["observations"][7:] = [[-0.0, 0]] * 2
    columns["next_observations"][7:] = [[0.0, 0]] * 2
    columns["actions"][:] = 0.5
    columns["rewards"][:] = 0
    return from_arrays(columns | {"qpos": np.ones((9, 2))})


def test_suspicious_rows_are_found() -> None:
    summary = inspect_dataset(suspicious())
    assert summary["suspicious"] == {
        "rows_not_continuing": 1,
        "first_row_not_continuing": 1,
        "cut_rows_that_continue": 1,
        "rows_standing_still": 2,
        "duplicate_rows": 2,  # rows 7 and 8 repeat row 0, whose zero has the other sign
        "constant_obs_columns": [],
        "constant_action_columns": [0],
        "constant_infos": ["qpos"],
    }
    sentences = " ".join(summary["warnings"])
    for part in ("3 episodes are too few", "returns are equal", "first: row 1", "after the reset", "2 rows repeat"):
        assert part in sentences


def test_constant_columns_are_named() -> None:
    data = Dataset(np.ones((4, 2)), np.zeros((4, 1)), np.zeros(4), np.ones((4, 2)), np.ones(4), np.zeros(4))
    summary = inspect_dataset(data)
    assert summary["suspicious"]["constant_obs_columns"] == [0, 1]
    assert summary["regions"]["counts"][0][0] == 4
    assert any("[0, 1] never change" in sentence for sentence in summary["warnings"])


def test_regions_of_uniform_data_are_evenly_filled() -> None:
    rng = np.random.default_rng(0)
    obs = rng.uniform(size=(20_000, 2))
    data = Dataset(obs, np.zeros((20_000, 1)), np.zeros(20_000), obs, np.ones(20_000), np.zeros(20_000))
    regions = inspect_dataset(data)["regions"]
    counts = np.array(regions["counts"])
    assert counts.shape == (8, 8)
    assert counts.sum() == 20_000
    assert regions["share_nonempty"] == 1 - (counts == 0).mean()
    assert regions["share_below_10"] == (counts < 10).mean()


def test_two_clusters_leave_most_regions_empty() -> None:
    obs = np.repeat([[0.0, 0.0, 1.0], [1.0, 2.0, -1.0]], 50, axis=0)
    data = Dataset(obs, np.zeros((100, 1)), np.zeros(100), obs, np.ones(100), np.zeros(100))
    regions = inspect_dataset(data)["regions"]
    counts = np.array(regions["counts"])
    assert sorted(counts[counts > 0].tolist()) == [50, 50]
    assert regions["share_nonempty"] == 2 / 64
    assert regions["share_below_10"] == 62 / 64


def test_one_observation_column_is_enough() -> None:
    data = random_dataset(4)
    narrow = Dataset(data.obs[:, :1], data.action, data.reward, data.next_obs[:, :1], data.mask, data.episode_end)
    assert np.array(inspect_dataset(narrow)["regions"]["counts"]).sum() == 20
