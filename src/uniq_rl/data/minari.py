"""Minari's data sets by id (extra `minari`): local first, else downloaded by Minari."""

import contextlib
import io
import json
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from uniq_rl.data.arrays import from_episodes
from uniq_rl.data.bounds import ActionRange
from uniq_rl.data.dataset import Dataset
from uniq_rl.errors import UniqError

PREFIX = "minari:"


def load_minari(
    dataset_id: str, task: str | None = None, download: bool = True, action_range: ActionRange = None
) -> Dataset:
    """Read a Minari data set, for example "minari:mujoco/hopper/medium-v0".

    The task stays unknown unless given: Minari's data are others than D4RL's under similar names (its hopper "medium"
    scores 108 on D4RL's scale), so they must never share a column. Actions are rescaled from the bounds of the action
    space; observations made of parts (goal-conditioned tasks) become one vector, the parts in the order of their names.
    """
    dataset_id = dataset_id.removeprefix(PREFIX)
    name = PREFIX + dataset_id
    minari = _library(name)
    try:
        # Minari prints while it downloads, and warns of newer versions.
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = _opened(minari, dataset_id, name, download)
            spaces, stored = (found.observation_space, found.action_space), list(found.iterate_episodes())
    except UniqError:
        raise
    except Exception as error:  # Minari reads with several libraries, local and remote, and passes on what they raise
        raise _unreadable(name, error) from error
    episodes = [
        {
            "obs": _flat(episode.observations, f"{name}: observations"),
            "action": _actions(episode.actions, spaces[1], name),
            "reward": episode.rewards,
            "terminated": episode.terminations[-1:],
            "truncated": episode.truncations[-1:],
        }
        for episode in stored
    ]
    return from_episodes(episodes, name=name, task=task, action_range=action_range or _range(spaces[1]))


def _library(name: str) -> Any:
    try:
        import minari
    except ImportError:
        raise UniqError(f"{name} is read by Minari; install it with the extra uniq-rl[minari].") from None
    return minari


def _opened(minari: Any, dataset_id: str, name: str, download: bool) -> Any:
    from minari.storage.datasets_root_dir import get_dataset_path

    folder = get_dataset_path(dataset_id) / "data"
    if not folder.exists():
        if not download:
            raise UniqError(f"{name} is not on this machine; allow the download, or check the id.")
        minari.download_dataset(dataset_id)
    # Where the spaces are not stored, Minari would make the environment that the file names: code of its choice.
    metadata = json.loads((folder / "metadata.json").read_text(encoding="utf-8"))
    if not {"observation_space", "action_space"} <= set(metadata):
        raise UniqError(f"{name} does not say what its observations and actions are; write it again with Minari.")
    return minari.load_dataset(dataset_id)


def _unreadable(name: str, error: Exception) -> UniqError:
    reason = " ".join(str(error).split()) or type(error).__name__
    reason = reason if len(reason) < 300 else reason[:300] + " ..."
    return UniqError(f"{name} cannot be had from Minari ({reason}); check the id and the network, or use a local copy.")


def _actions(values: Any, space: Any, name: str) -> np.ndarray:
    from gymnasium import spaces

    if not isinstance(space, spaces.Box):
        raise UniqError(
            f"{name} has actions of kind {type(space).__name__}; only continuous actions in one box are supported."
        )
    return np.asarray(values).reshape(len(values), -1)


def _range(space: Any) -> ActionRange:
    """The bounds of the action space; without finite ones the data must lie in [-1, 1]."""
    low, high = np.ravel(space.low), np.ravel(space.high)
    return (low, high) if np.isfinite(low).all() and np.isfinite(high).all() else None


def _flat(values: Any, where: str) -> np.ndarray:
    """One vector per step out of arrays, mappings and tuples of them."""
    if isinstance(values, Mapping):
        return np.concatenate([_flat(values[key], where) for key in sorted(values)], axis=1)
    if isinstance(values, tuple):
        return np.concatenate([_flat(value, where) for value in values], axis=1)
    array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        raise UniqError(f"{where} hold {array.dtype} values; only numbers are supported.")
    return array.reshape(len(array), -1)
