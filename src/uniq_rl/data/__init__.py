"""Logged transitions: load them, check them, split them, prepare them."""

import dataclasses
import difflib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from uniq_rl.data.arrays import from_arrays, from_episodes, load_npz, save_npz
from uniq_rl.data.bounds import ActionRange, Bounds
from uniq_rl.data.d4rl import load_d4rl
from uniq_rl.data.dataset import Dataset
from uniq_rl.data.download import FILES, Progress, fetch, is_d4rl_name
from uniq_rl.data.minari import PREFIX, load_minari
from uniq_rl.data.names import task_of
from uniq_rl.data.preprocessing import Fitted, Preprocessing
from uniq_rl.data.split import Folds, Split
from uniq_rl.data.tables import SUFFIXES, Columns, load_table
from uniq_rl.errors import UniqError

__all__ = [
    "Bounds",
    "Columns",
    "Dataset",
    "Fitted",
    "Folds",
    "Preprocessing",
    "Split",
    "fetch",
    "from_arrays",
    "from_episodes",
    "is_d4rl_name",
    "load_d4rl",
    "load_dataset",
    "load_minari",
    "load_npz",
    "load_table",
    "save_npz",
]

ACCEPTED = (
    "a D4RL name or file (.hdf5 or .h5), an .npz, .parquet or .csv file, minari:ID, a mapping of arrays, a list of "
    "episodes or a Dataset"
)

Source = str | os.PathLike[str] | Mapping[str, Any] | Sequence[Mapping[str, Any]] | Dataset


def load_dataset(
    source: Source,
    task: str | None = None,
    *,
    columns: Columns | Mapping[str, Any] | str | os.PathLike[str] | None = None,
    action_range: ActionRange = None,
    mirror: str | None = None,
    progress: Progress | None = None,
) -> Dataset:
    """Data from wherever they are. The task is read from a file's name unless given.

    `columns` says which columns of a table mean what, `action_range` what to rescale actions from, (low, high) or
    "data"; `mirror` and `progress(done_bytes, total_bytes)` serve the download of a D4RL name.
    """
    if isinstance(source, Dataset):
        return source if task is None else dataclasses.replace(source, task=task)
    if isinstance(source, Mapping):
        return from_arrays(source, task=task, action_range=action_range)
    if isinstance(source, list | tuple):
        return from_episodes(source, task=task, action_range=action_range)
    if not isinstance(source, str | os.PathLike):
        raise UniqError(f"data of type {type(source).__name__} cannot be loaded; give {ACCEPTED}.")
    if isinstance(source, str) and source.startswith(PREFIX):
        return load_minari(source, task=task, action_range=action_range)
    path = _expanded(source)
    suffix = path.suffix.lower()
    if suffix not in (".hdf5", ".h5", ".npz", *SUFFIXES):
        return _load_by_name(str(source), task, action_range, mirror, progress)
    if not path.is_file():
        raise UniqError(f"{source!s} does not exist or is not a file; check the path, or give {ACCEPTED}.")
    if columns is not None and suffix not in SUFFIXES:
        raise UniqError(f"{source!s} is no table, so its columns cannot be chosen; give them their usual names.")
    if suffix in SUFFIXES:
        return load_table(path, columns, task=task, action_range=action_range)
    load = load_npz if suffix == ".npz" else load_d4rl
    return load(path, task=task, action_range=action_range)


def _expanded(source: str | os.PathLike[str]) -> Path:
    try:
        return Path(source).expanduser()
    except RuntimeError:
        raise UniqError(f"{source!s} names the home of a user this machine does not know; check the path.") from None


def _load_by_name(
    name: str, task: str | None, action_range: ActionRange, mirror: str | None, progress: Progress | None
) -> Dataset:
    if not is_d4rl_name(name):
        close = difflib.get_close_matches(name, FILES, n=1, cutoff=0.75)
        advice = f"did you mean {close[0]}?" if close else f"give {ACCEPTED}."
        raise UniqError(f"{name} is not a data file or name this library knows; {advice}")
    return load_d4rl(fetch(name, mirror, progress), name=name, task=task or task_of(name), action_range=action_range)
