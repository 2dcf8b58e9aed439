"""Arrays on the disk: what comes back, what is refused, what a failure leaves behind."""

import os
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import save_file

from uniq_rl.errors import UniqError
from uniq_rl.storage import load_header, load_tree, only_process_in, save_tree, write_atomically


class Pair(NamedTuple):
    left: Any
    right: Any


TREE = {
    "scalar": jnp.float32(1.5),
    "count": jnp.int32(7),
    "flags": np.array([True, False]),
    "pair": Pair([np.arange(6, dtype=np.float32).reshape(2, 3)], None),
    "transposed": np.arange(6, dtype=np.float32).reshape(2, 3).T,
    "empty": np.zeros((0, 4), np.float32),
    "not finite": np.array([np.nan, np.inf, -np.inf], np.float32),
}


def shapes(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), tree)


def test_a_tree_comes_back_bit_for_bit(tmp_path: Path) -> None:
    path = tmp_path / "tree.safetensors"
    save_tree(path, TREE, {"format": "test", "numbers": [1, 0.1]})
    loaded = load_tree(path, shapes(TREE))
    assert jax.tree.structure(loaded) == jax.tree.structure(TREE)
    for ours, theirs in zip(jax.tree.leaves(TREE), jax.tree.leaves(loaded), strict=True):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        assert np.asarray(ours).tobytes() == np.asarray(theirs).tobytes()
    assert load_header(path) == {"format": "test", "numbers": [1, 0.1]}
    assert os.listdir(tmp_path) == [path.name]


def test_equal_trees_make_equal_files(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    save_tree(one, TREE, {"a": 1, "b": 2})
    save_tree(two, TREE, {"b": 2, "a": 1})
    assert one.read_bytes() == two.read_bytes()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"more": np.zeros(2, np.float32)}, "has no array"),
        ({"count": np.float32(7)}, "int32"),
        ({"transposed": np.zeros((2, 3), np.float32)}, r"\[3, 2\]"),
        ({"scalar": np.zeros(1, np.float32)}, "scalar"),
    ],
)
def test_another_configuration_is_refused(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    path = tmp_path / "tree.safetensors"
    save_tree(path, TREE, {})
    with pytest.raises(UniqError, match=reason) as refusal:
        load_tree(path, shapes(TREE | change))
    assert "another configuration" in str(refusal.value)


def test_what_is_no_file_of_ours_is_refused(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    save_tree(whole, TREE, {"format": "test"})
    content = whole.read_bytes()
    contents = {"empty": b"", "text": b"not a policy\n" * 20, "short": content[:5], "header": content[:60]}
    contents |= {"half": content[: len(content) // 2], "one byte less": content[:-1], "zeros": bytes(200)}
    for name, damaged in contents.items():
        path = tmp_path / name
        path.write_bytes(damaged)
        for read in (load_header, lambda path: load_tree(path, shapes(TREE))):
            with pytest.raises(UniqError, match="cannot be read as a safetensors file"):
                read(path)
    with pytest.raises(UniqError, match="There is no file"):
        load_header(tmp_path / "absent")
    with pytest.raises(UniqError):
        load_header(tmp_path)


@pytest.mark.parametrize("metadata", [None, {}, {"format": "pt"}, {"uniq-rl": "not JSON"}, {"uniq-rl": "[1, 2]"}])
def test_safetensors_of_others_are_refused(tmp_path: Path, metadata: dict[str, str] | None) -> None:
    path = tmp_path / "foreign.safetensors"
    save_file({"weight": np.zeros(3, np.float32)}, path, metadata=metadata)
    with pytest.raises(UniqError, match="not one that uniq-rl wrote"):
        load_header(path)


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(UniqError, match="No space left on device"):
            write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UniqError, match="cannot be written"):
        write_atomically(tmp_path / "absent" / "file", b"content")


def test_one_process_at_a_time(tmp_path: Path) -> None:
    second = only_process_in(tmp_path)
    with only_process_in(tmp_path), pytest.raises(UniqError, match="Another process is training"):
        second.__enter__()
    with only_process_in(tmp_path):
        assert not list(tmp_path.iterdir())
