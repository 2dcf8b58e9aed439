"""How arrays reach the disk and come back: one safetensors file, written atomically, read without running any code."""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_safetensors

from uniq_rl.errors import UniqError

Tree = TypeVar("Tree")
HEADER = "uniq-rl"
"""The single metadata key: with several, their order in the file would differ from process to process."""


def save_tree(path: Path, tree: Any, header: Mapping[str, Any]) -> None:
    metadata = {HEADER: json.dumps(header, sort_keys=True)}
    write_atomically(path, to_safetensors(named_leaves(tree), metadata=metadata))


def load_header(path: Path) -> dict[str, Any]:
    with _opened(path) as file:
        try:
            header = json.loads((file.metadata() or {})[HEADER])
        except (KeyError, ValueError):
            raise UniqError(f"{path} is a safetensors file, but not one that uniq-rl wrote.") from None
    if not isinstance(header, dict):
        raise UniqError(f"{path} is a safetensors file, but not one that uniq-rl wrote.")
    return header


def load_tree(path: Path, template: Tree) -> Tree:
    """The arrays of `path` in the structure of `template`, whose shapes and types they must have."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(template)
    with _opened(path) as file:
        stored = set(file.keys())
        values = []
        for key, leaf in leaves:
            name = jax.tree_util.keystr(key)
            if name not in stored:
                raise UniqError(f"{path} has no array {name}; it was written for another configuration.")
            value = file.get_tensor(name)
            if value.shape != leaf.shape or value.dtype != leaf.dtype:
                raise UniqError(
                    f"{path}: array {name} is {value.dtype}{list(value.shape)}, "
                    f"but {leaf.dtype}{list(leaf.shape)} is needed; it was written for another configuration."
                )
            values.append(value)
    return jax.tree.unflatten(structure, values)


def named_leaves(tree: Any) -> dict[str, np.ndarray]:
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(key): np.asarray(leaf, order="C") for key, leaf in leaves}


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, framework="numpy") as file:
            yield file
    except FileNotFoundError:
        raise UniqError(f"There is no file {path}.") from None
    except (SafetensorError, OSError) as error:
        raise UniqError(
            f"{path} cannot be read as a safetensors file ({error}); it is damaged or something else."
        ) from None


def write_atomically(path: Path, content: bytes) -> None:
    """All of `content` under `path`, or nothing: a temporary name, synced, renamed, and the rename synced.

    The temporary name is always the same: what a killed process leaves behind is overwritten by the next.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    with disk_errors(path):
        try:
            with open(temporary, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)


@contextlib.contextmanager
def only_process_in(folder: Path | None) -> Iterator[None]:
    """Two processes that write one training would spoil it: the second is told so. The lock ends with its process."""
    if folder is None:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise UniqError(f"Another process is training in {folder}; wait for it, or stop it first.") from None
    try:
        yield
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn what a disk may answer into one sentence."""
    try:
        yield
    except OSError as error:
        raise UniqError(
            f"{path} cannot be written: {error.strerror or error}; free some space or choose another folder."
        ) from None
