"""Logged transitions: load them, check them, split them, prepare them."""

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from uniq_rl.data.arrays import from_arrays, load_npz, save_npz
from uniq_rl.data.d4rl import load_d4rl
from uniq_rl.data.dataset import Dataset
from uniq_rl.data.preprocessing import Fitted, Preprocessing
from uniq_rl.data.split import Folds, Split
from uniq_rl.errors import UniqError

__all__ = [
    "Dataset",
    "Fitted",
    "Folds",
    "Preprocessing",
    "Split",
    "from_arrays",
    "load_d4rl",
    "load_dataset",
    "load_npz",
    "save_npz",
]

ACCEPTED = "a D4RL file (.hdf5 or .h5), an .npz file, a mapping of arrays or a Dataset"


def load_dataset(source: str | os.PathLike[str] | Mapping[str, Any] | Dataset, task: str | None = None) -> Dataset:
    """Data from wherever they are. The task is read from a file's name unless given."""
    if isinstance(source, Dataset):
        return source if task is None else dataclasses.replace(source, task=task)
    if isinstance(source, Mapping):
        return from_arrays(source, task=task)
    if not isinstance(source, str | os.PathLike):
        raise UniqError(f"data of type {type(source).__name__} cannot be loaded; give {ACCEPTED}.")
    path = Path(source).expanduser()
    if path.suffix.lower() not in (".hdf5", ".h5", ".npz"):
        raise UniqError(f"{source!s} is not a data file this library knows; give {ACCEPTED}.")
    if not path.is_file():
        raise UniqError(f"{source!s} does not exist or is not a file; check the path, or give {ACCEPTED}.")
    return load_npz(path, task=task) if path.suffix.lower() == ".npz" else load_d4rl(path, task=task)
