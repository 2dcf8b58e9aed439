"""D4RL files replayed, and more data from the policy they carry."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from uniq_rl.data import load_d4rl
from uniq_rl.errors import UniqError
from uniq_rl.physics.scores import score
from uniq_rl.suite.regenerate import regenerate, verify

SLICES = Path(__file__).parents[3] / "shared" / "data" / "d4rl"
PUBLISHED = {"hopper": 44.3, "walker2d": 62.0, "halfcheetah": 40.7}

needs_slices = pytest.mark.skipif(not SLICES.is_dir(), reason="the slices of D4RL are not here")


def medium(task: str) -> Path:
    return SLICES / f"{task}_medium-v2.hdf5"


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    """A small hopper file with a policy that does as little as possible, with changes: label -> array or None."""

    def write(name: str = "hopper_medium-v2.hdf5", **changes: Any) -> Path:
        rng = np.random.default_rng(0)
        states = rng.normal(size=(7, 11))
        content: dict[str, Any] = {
            "observations": states[:6],
            "next_observations": states[1:],
            "actions": rng.uniform(-1, 1, size=(6, 3)),
            "rewards": np.zeros(6),
            "terminals": np.zeros(6),
            "timeouts": np.arange(6) == 5,
            "infos/qpos": rng.normal(size=(6, 6)),
            "infos/qvel": rng.normal(size=(6, 6)),
        }
        widths = {"fc0": (11, 8), "fc1": (8, 8), "last_fc": (8, 3), "last_fc_log_std": (8, 3)}
        for layer, (fan_in, fan_out) in widths.items():
            content[f"metadata/policy/{layer}/weight"] = rng.normal(size=(fan_out, fan_in)).astype(np.float32) / 9
            content[f"metadata/policy/{layer}/bias"] = np.zeros(fan_out, np.float32)
        content |= {"metadata/policy/nonlinearity": np.bytes_("relu")}
        path = tmp_path / name
        with h5py.File(path, "w") as file:
            for key, value in (content | changes).items():
                if value is not None:
                    file[key] = value
        return path

    return write


# --- verify ---


@needs_slices
@pytest.mark.parametrize("task", list(PUBLISHED))
def test_genuine_transitions_replay_under_the_physics_of_their_time(task: str) -> None:
    then, now = verify(medium(task))
    assert (then.physics, now.physics) == ("d4rl", "gymnasium-v4")
    assert then.median_qpos < 1e-6
    assert then.p99_qpos < 1e-6
    assert now.median_qpos > 100 * then.median_qpos
    assert then.rows == now.rows > 700


@needs_slices
def test_files_without_useful_states() -> None:
    with pytest.raises(UniqError, match="repeats one state on every row, so nothing can be replayed"):
        verify(SLICES / "hopper_medium_replay-v1.hdf5")
    with pytest.raises(UniqError, match="is from pen, which is not simulated here; give a file of one of hopper"):
        verify(SLICES / "pen-human-v1.hdf5")


def test_verify_says_what_is_missing(written: Callable[..., Path]) -> None:
    with pytest.raises(UniqError, match=r"has no simulator states \(infos/qpos\)"):
        verify(written(**{"infos/qpos": None}))
    with pytest.raises(UniqError, match=r"has no simulator states \(infos/qvel\)"):
        verify(written(**{"infos/qvel": np.zeros((4, 6))}))  # not one per row: left out on reading
    with pytest.raises(UniqError, match=r"infos/qvel has rows of shape \(5,\) but hopper has 6"):
        verify(written(**{"infos/qvel": np.zeros((6, 5))}))
    with pytest.raises(UniqError, match="infos/qpos is nan at row 0, column 0"):
        verify(written(**{"infos/qpos": np.full((6, 6), np.nan)}))
    with pytest.raises(UniqError, match="does not say which task it is from"):
        verify(written("own.hdf5"))
    assert verify(written("own.hdf5"), task="hopper")[0].rows == 5


# --- regenerate ---


def test_exactly_as_many_rows_and_the_same_again(written: Callable[..., Path]) -> None:
    path, seen = written(), []
    data = regenerate(path, 700, seed=3, progress=lambda done, total: seen.append((done, total)))
    assert (data.size, data.name, data.task) == (700, "hopper-medium-v2-regenerated", "hopper")
    assert data.infos["action_log_prob"].shape == (700,)
    assert seen[-1] == (700, 700)
    assert seen == sorted(seen)
    again = regenerate(shutil.copy(path, path.with_name("hopper_copy.hdf5")), 700, seed=3)
    assert again.fingerprint == data.fingerprint
    assert regenerate(path, 700, seed=4).fingerprint != data.fingerprint


def test_episodes_are_whole_but_for_the_last(written: Callable[..., Path]) -> None:
    data = regenerate(written(), 900)
    ends = np.flatnonzero(data.episode_end)
    assert (data.mask[ends[:-1]] == 0).all()  # this policy falls over, long before the time is up
    inside = ~data.episode_end
    np.testing.assert_array_equal(data.next_obs[inside], data.obs[1:][inside[:-1]])
    assert np.abs(data.obs[data.episode_starts, 1:]).max() < 0.01  # every episode starts upright


@needs_slices
@pytest.mark.parametrize("task", list(PUBLISHED))
def test_log_densities_are_those_of_the_file(task: str) -> None:
    """The policy read from the file gives the file's actions the densities that are stored beside them."""
    from uniq_rl.suite.regenerate import _policy

    data = load_d4rl(medium(task))
    policy, _ = _policy(medium(task), task)
    mean, log_std = np.split(policy._forward(data.obs).astype(np.float64), 2, axis=1)
    inner = np.abs(data.action).max(axis=1) < 0.99  # beyond, float32 cannot undo the tanh
    raw = np.arctanh(data.action[inner].astype(np.float64))
    gaussian = -0.5 * ((raw - mean[inner]) / np.exp(log_std[inner])) ** 2 - log_std[inner] - 0.5 * np.log(2 * np.pi)
    expected = (gaussian - np.log1p(-(np.tanh(raw) ** 2))).sum(axis=1)
    np.testing.assert_allclose(expected, data.infos["action_log_prob"][inner], atol=1e-3)


def published(task: str, size: int) -> tuple[float, float]:
    """Mean score of whole episodes, less the published one, and its standard error.

    The last episode is cut off. Leaving it out prefers shorter episodes a little: by less than one in their number.
    """
    data = regenerate(medium(task), size)
    scores = np.asarray(score(task, data.episode_returns[:-1]))
    return float(scores.mean()) - PUBLISHED[task], float(scores.std() / np.sqrt(len(scores)))


@needs_slices
@pytest.mark.parametrize("task", list(PUBLISHED))
def test_a_small_set_scores_as_published(task: str) -> None:
    difference, error = published(task, 20_000)
    assert abs(difference) < 3 + 3 * error


@pytest.mark.slow
@needs_slices
@pytest.mark.parametrize("task", list(PUBLISHED))
def test_a_large_set_scores_as_published(task: str) -> None:
    difference, error = published(task, 1_000_000)
    assert error < 0.8
    assert abs(difference) < 3


def test_regenerate_says_what_is_missing(written: Callable[..., Path]) -> None:
    label = "metadata/policy/fc1/weight"
    for changes, sentence in (
        ({label: None}, f"carries no behaviour policy \\({label} is missing\\)"),
        ({label: np.zeros((8, 7))}, r"shapes .*\(8, 7\).* do not lead from hopper's 11 observations to its 3 actions"),
        ({label: np.zeros(8)}, "do not lead"),
        ({label: 1.0}, "do not lead"),
        ({label: np.full((8, 8), np.nan)}, "is nan at row 0"),
        ({label: np.bytes_("word")}, "is a word but must hold numbers"),
        ({"metadata/policy/nonlinearity": np.bytes_("tanh")}, "nonlinearity is 'tanh'; only relu"),
    ):
        with pytest.raises(UniqError, match=sentence):
            regenerate(written(**changes), 100)
    with pytest.raises(UniqError, match="is from pen"):
        regenerate(written("pen-human-v1.hdf5"), 100)
    for size, seed in ((0, 0), (1, 0), (100, -1)):
        with pytest.raises(UniqError, match="ask for 2 or more"):
            regenerate(written(), size, seed)
    with pytest.raises(UniqError, match="cannot be read as HDF5"):
        regenerate("hopper-missing.hdf5", 100)
