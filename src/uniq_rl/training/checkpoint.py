"""A complete checkpoint in one file: everything that training changes, and where the records stood."""

from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp

from uniq_rl.errors import UniqError
from uniq_rl.storage import load_header, load_tree, save_tree
from uniq_rl.training.cohort import Cohort, Progress

NAME = "checkpoint/state.safetensors"
FORMAT = "checkpoint-1"


class Position(NamedTuple):
    """How far a training is, on disk."""

    step: int
    records: int
    """Bytes of `records.jsonl` that belong to this state."""
    episodes: int
    """Bytes of `episodes.jsonl` that belong to this state."""
    finished: bool


def save(folder: Path, progress: Progress, position: Position) -> None:
    path = folder / NAME
    path.parent.mkdir(exist_ok=True)
    save_tree(path, progress, {"format": FORMAT, **position._asdict()})


def position(folder: Path) -> Position | None:
    """Where the checkpoint of a folder stands; None when the run was stopped before the first."""
    path = folder / NAME
    if not path.exists():
        return None
    header = load_header(path)
    if header.pop("format", None) != FORMAT:
        raise UniqError(f"{path} is not a checkpoint this version reads ('{FORMAT}').")
    try:
        return Position(**header)
    except TypeError:
        raise UniqError(f"{path} does not say how far it is; it is damaged.") from None


def load(folder: Path, cohort: Cohort) -> Progress:
    return jax.tree.map(jnp.asarray, load_tree(folder / NAME, cohort.template()))
