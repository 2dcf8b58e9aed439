"""D4RL's HDF5 files, with everything in which they differ from each other."""

import math
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from uniq_rl.data import checks
from uniq_rl.data.bounds import ActionRange
from uniq_rl.data.checks import Array
from uniq_rl.data.dataset import Dataset
from uniq_rl.data.episodes import assemble
from uniq_rl.data.names import name_of_file, task_of
from uniq_rl.errors import UniqError

REQUIRED = {"obs": "observations", "action": "actions", "reward": "rewards", "terminated": "terminals"}
OPTIONAL = {"next_obs": "next_observations", "truncated": "timeouts"}
INFOS = {"qpos": "infos/qpos", "qvel": "infos/qvel", "action_log_prob": "infos/action_log_probs"}

# Deflate cannot shrink data more than 1032 times, so a larger ratio is a forged header. The allowance lets small or
# never-written (all zero) columns pass and is harmless to allocate.
MAX_COMPRESSION = 1100
ALLOWANCE = 64 * 2**20


def load_d4rl(
    path: str | os.PathLike[str],
    name: str | None = None,
    task: str | None = None,
    action_range: ActionRange = None,
) -> Dataset:
    """Read a D4RL file. Every row is used, except rows whose next observation nobody recorded."""
    path = Path(path)
    with _opened(path) as file:
        columns = _read_columns(file, path)
        infos = _read_infos(file, path, len(columns["obs"]) if columns["obs"].ndim else 0)
    return assemble(
        columns,
        REQUIRED | OPTIONAL,
        source=str(path),
        name=name or name_of_file(path),
        task=task or task_of(path.name),
        infos=infos,
        end_at_jumps=True,  # files before v2 have no `timeouts`, and joined files may lack one at the seam
        how_to_mark="set `timeouts` to true on the last row of each episode that was cut off, or `terminals` where "
        "the task itself ended",
        action_range=action_range,
    )


def read_extras(path: str | os.PathLike[str], labels: Iterable[str]) -> dict[str, Array | str]:
    """What else a file holds under these names, numbers as arrays, words as text; absent names are left out."""
    path = Path(path)
    found: dict[str, Array | str] = {}
    with _opened(path) as file:
        for label in labels:
            node = _find(file, label, path)
            if node is not None:
                word = node.dtype.kind == "S" and node.shape == ()
                found[label] = bytes(node[()]).decode("ascii", "replace") if word else _read(node, label, path)
    return found


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """The open file; whatever HDF5 says about a damaged one becomes one sentence."""
    try:
        with h5py.File(path, "r") as file:
            yield file
    except (OSError, RuntimeError, ValueError, KeyError, TypeError) as error:
        reason = " ".join(str(error).split())
        raise UniqError(
            f"{path} cannot be read as HDF5: it is damaged, cut short or of another format ({reason}); "
            "fetch or write it again."
        ) from error


def _read_columns(file: Any, path: Path) -> dict[str, Array]:
    nodes = {key: _find(file, label, path) for key, label in (REQUIRED | OPTIONAL).items()}
    if nodes["terminated"] is None and nodes["truncated"] is None:
        raise UniqError(
            f"{path} has neither a `terminals` nor a `timeouts` column, so nothing marks where episodes end; add "
            "`terminals` (the task ended) and `timeouts` (the episode was cut off)."
        )
    for key, label in REQUIRED.items():
        if nodes[key] is None:
            found = checks.listed(sorted(file))
            advice = " (all zero if the task never ends by itself)" if key == "terminated" else ""
            raise UniqError(f"{path} has no column `{label}` (found: {found}); add it{advice}.")
    labels = REQUIRED | OPTIONAL
    return {key: _read(node, labels[key], path) for key, node in nodes.items() if node is not None}


def _read_infos(file: Any, path: Path, rows: int) -> dict[str, Array]:
    """The extras that have one entry per row; others are of no use to anyone and are left out."""
    nodes = {key: _find(file, label, path) for key, label in INFOS.items()}
    return {
        key: _read(node, INFOS[key], path)
        for key, node in nodes.items()
        if node is not None and node.shape and node.shape[0] == rows
    }


def _find(file: Any, label: str, path: Path) -> Any:
    """The HDF5 data set of that name, or None. Only plain links are followed: others may lead into other files."""
    node = file
    steps = label.split("/")
    for depth, step in enumerate(steps):
        link = node.get(step, getlink=True)
        if link is None:
            return None
        if not isinstance(link, h5py.HardLink):
            raise UniqError(f"{path}: `{label}` is a link to elsewhere, which is not followed; store the data itself.")
        node = node[step]
        last = depth == len(steps) - 1
        if not isinstance(node, h5py.Dataset if last else h5py.Group):
            kind = "an HDF5 data set" if last else "an HDF5 group"
            raise UniqError(f"{path}: `{'/'.join(steps[: depth + 1])}` must be {kind} but is something else.")
    if node.is_virtual or node.external:
        raise UniqError(
            f"{path}: `{label}` keeps its data in other files, which are not opened; store the data itself."
        )
    return node


def _read(node: Any, label: str, path: Path) -> Array:
    """The whole column, once its declared size is believable for the bytes the file really has."""
    if node.shape is None:
        raise UniqError(f"{path}: column `{label}` is empty; store one row per transition.")
    if node.dtype.kind not in "biuf":
        raise UniqError(f"{path}: column `{label}` holds {node.dtype} values; store plain numbers (float32) instead.")
    declared = math.prod(node.shape) * node.dtype.itemsize
    stored = min(node.id.get_storage_size(), path.stat().st_size)
    if declared > MAX_COMPRESSION * stored + ALLOWANCE:
        raise UniqError(
            f"{path}: column `{label}` declares {declared} bytes but the file holds {stored} for it; the file is "
            "damaged, so fetch or write it again."
        )
    return np.asarray(node[()])
