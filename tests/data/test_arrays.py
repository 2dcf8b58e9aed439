"""Data of one's own: mappings and .npz files, and `load_dataset` in front of all."""

import contextlib
import io
import os
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from logged import Columns, chain, random_dataset

from uniq_rl.data import Dataset, from_arrays, load_dataset, load_npz, save_npz
from uniq_rl.errors import UniqError

SHORT = {
    "observations": "obs",
    "next_observations": "next_obs",
    "actions": "action",
    "rewards": "reward",
    "terminals": "terminated",
    "timeouts": "truncated",
}


def own(**kwargs: Any) -> Columns:
    """The chain under this library's names."""
    return {SHORT[key]: value for key, value in chain(**kwargs).items()}


def without(columns: Columns, *names: str) -> Columns:
    return {key: value for key, value in columns.items() if key not in names}


def test_both_vocabularies_mean_the_same() -> None:
    assert from_arrays(own()).fingerprint == from_arrays(chain()).fingerprint


def test_columns_by_hand() -> None:
    data = from_arrays(own(), name="mine", task="hopper")
    assert (data.name, data.task, data.size) == ("mine", "hopper", 9)
    assert data.mask.tolist() == [1, 1, 0, 1, 1, 1, 1, 1, 0]
    assert data.episode_bounds.tolist() == [[0, 3], [3, 5], [5, 9]]


def test_next_obs_is_reconstructed_within_episodes_never_across() -> None:
    data = from_arrays(without(own(), "next_obs"))
    assert data.next_obs[:, 0].tolist() == [1, 2, 2, 101, 201, 202, 203, 203]
    assert data.episode_bounds.tolist() == [[0, 3], [3, 4], [4, 8]]


def test_mask_and_episode_end_in_place_of_the_flags() -> None:
    flags = {"mask": 1 - own()["terminated"], "episode_end": own()["terminated"] | own()["truncated"]}
    data = from_arrays(without(own(), "terminated", "truncated") | flags)
    assert data.fingerprint == from_arrays(own()).fingerprint


def test_without_truncated_a_jump_ends_the_episode() -> None:
    assert from_arrays(without(own(), "truncated")).episodes == 3


def test_with_truncated_noise_in_next_obs_is_no_end() -> None:
    columns = own()
    columns["next_obs"] = columns["next_obs"] + np.float32(0.01)
    assert from_arrays(columns).episode_bounds.tolist() == [[0, 3], [3, 5], [5, 9]]


def test_plain_lists_will_do() -> None:
    lists = {key: value.tolist() for key, value in own().items()}
    assert from_arrays(lists).fingerprint == from_arrays(own()).fingerprint


def test_extras() -> None:
    extras = {"qpos": np.arange(18.0).reshape(9, 2), "infos/action_log_probs": np.arange(9.0), "timestamp": np.zeros(4)}
    data = from_arrays(without(own(), "next_obs") | extras)
    assert set(data.infos) == {"qpos", "action_log_prob"}
    assert data.infos["action_log_prob"].tolist() == data.reward.tolist()  # the same rows were kept


FAULTS: list[tuple[Columns, str]] = [
    (without(own(), "action"), r"mine has no column `action` \(found: next_obs, obs, reward, terminated, truncated\)"),
    ({}, r"no column `obs` \(found: nothing\)"),
    (own() | {"observations": own()["obs"]}, "has both `obs` and `observations`"),
    (own() | {"mask": 1 - own()["terminated"]}, "has both `mask` and `terminated`, which say the same in two ways"),
    (own() | {"episode_end": own()["truncated"]}, "has both `episode_end` and `truncated`"),
    (without(own(), "terminated", "truncated"), "has neither a `terminated` nor a `truncated` column; add"),
    (without(own(), "terminated"), "has no `terminated` column; add"),
    (without(own(), "terminated", "truncated") | {"done": own()["terminated"]}, "`done` does not say whether the task"),
    (own() | {"truncate": own()["truncated"]}, "column `truncate` is unknown; rename it to `truncated`"),
    (own() | {"action": np.zeros(9, dtype=np.int64)}, "int64 values, so the actions look discrete; only continuous"),
    (own() | {"action": np.ones((9, 1), dtype=bool)}, "bool values, so the actions look discrete"),
    (own() | {"action": np.full((9, 1), 2.0)}, r"`action` reaches 2 at row 0, column 0, outside \[-1, 1\]"),
    (own() | {"reward": np.zeros(3)}, "`reward` has 3 rows but `obs` has 9"),
    (own() | {"reward": 1.0}, "`reward` has 1 rows but `obs` has 9"),
    (own() | {"obs": np.full((9, 2), np.nan)}, "`obs` is nan at row 0, column 0"),
    (own() | {"next_obs": np.full((9, 2), -np.inf)}, "`next_obs` is -inf at row 0, column 0"),
    (own() | {"obs": np.array([[None, 1]] * 9)}, "`obs` holds object values"),
    (own() | {"obs": [[1, 2]] * 8 + [[1]]}, "`obs` is not a rectangular array"),
    (own() | {"qpos": np.zeros((3, 2))}, r"`qpos` has shape \(3, 2\) but needs one entry per row"),
    ({key: value[:0] for key, value in own().items()}, "mine holds 0 transitions; at least 2 are needed"),
    ({key: value[:1] for key, value in own().items()}, "mine holds 1 transition; at least 2 are needed"),
    (
        {key: value[5:8] for key, value in own().items()},
        "no episode end is marked anywhere in 3 rows; set `truncated` to true on the last row of each episode",
    ),
    (without(own(lengths=(6,), terminated=(False,)), "truncated"), "no episode end is marked anywhere in 6 rows"),
]


@pytest.mark.parametrize(("columns", "sentence"), FAULTS)
def test_faults_are_one_sentence(columns: Columns, sentence: str) -> None:
    with pytest.raises(UniqError, match=sentence) as caught:
        from_arrays(columns, name="mine")
    assert str(caught.value).startswith("mine")
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz(tmp_path: Path, save: Callable[..., None]) -> None:
    path = tmp_path / "walker2d_medium_replay.npz"
    save(path, **own(), note=np.array("hello"))
    data = load_dataset(path)
    assert (data.name, data.task) == ("walker2d-medium-replay", "walker2d")
    assert data.fingerprint == from_arrays(own()).fingerprint


def test_save_npz_round_trip_is_exact_and_reproducible(tmp_path: Path) -> None:
    data = from_arrays(own() | {"qpos": np.arange(9.0)})
    save_npz(data, tmp_path / "a.npz")
    save_npz(data, tmp_path / "b.npz")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    again = load_npz(tmp_path / "a.npz")
    assert again.fingerprint == data.fingerprint
    np.testing.assert_array_equal(again.infos["qpos"], np.arange(9.0))
    with np.load(tmp_path / "a.npz") as file:  # an ordinary .npz for everyone else
        np.testing.assert_array_equal(file["reward"], data.reward)


def test_a_data_set_without_continuity_survives_the_round_trip(tmp_path: Path) -> None:
    data = random_dataset(3)  # its next_obs never continue, but its ends are marked
    save_npz(data, tmp_path / "a.npz")
    assert load_npz(tmp_path / "a.npz").fingerprint == data.fingerprint


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.7, 0.98])
def test_a_truncated_npz(tmp_path: Path, keep: float) -> None:
    path = tmp_path / "data.npz"
    np.savez(path, **own())
    path.write_bytes(path.read_bytes()[: int(keep * path.stat().st_size)])
    with pytest.raises(UniqError, match=r"cannot be read as \.npz: it is damaged, cut short"):
        load_npz(path)


def test_a_flipped_byte(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    np.savez_compressed(path, **own())
    content = bytearray(path.read_bytes())
    content[content.index(b"obs.npy") + 60] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(UniqError, match=r"cannot be read as \.npz|does not hold them"):
        load_npz(path)


class Trap:
    """Unpickling this would make a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    trapped = np.array([Trap(tmp_path / "sprung")] * 9, dtype=object)
    np.savez(path, **own() | {"reward": trapped})
    with pytest.raises(UniqError, match="`reward` holds pickled Python objects, which are never loaded"):
        load_npz(path)
    assert not (tmp_path / "sprung").exists()


def npy(shape: tuple[int, ...], payload: bytes, descr: str = "<f4") -> bytes:
    """An .npy member that declares any shape it likes."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"shape": shape, "fortran_order": False, "descr": descr})
    return file.getvalue() + payload


def zipped(path: Path, member: bytes, compression: int = zipfile.ZIP_STORED) -> Path:
    np.savez(path, **without(own(), "obs"))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("obs.npy", member, compress_type=compression)
    return path


@pytest.mark.parametrize("shape", [(2**40, 2), (3, 2), (-9, 2), (2**70, 2**70)])
def test_a_forged_shape_is_not_allocated(tmp_path: Path, shape: tuple[int, ...]) -> None:
    path = zipped(tmp_path / "data.npz", npy(shape, bytes(72)))
    with pytest.raises(UniqError, match=r"`obs` declares -?[0-9]+ bytes but the file does not hold them"):
        load_npz(path)


def test_a_forged_zip_size_is_not_believed(tmp_path: Path) -> None:
    path = zipped(tmp_path / "data.npz", npy((2**28, 2), bytes(72)))
    content = bytearray(path.read_bytes())
    entry = content.rindex(b"PK\x01\x02")  # the last entry of the directory: obs
    header = len(npy((2**28, 2), b""))
    content[entry + 24 : entry + 28] = struct.pack("<I", header + 2**31)
    path.write_bytes(content)
    with pytest.raises(UniqError, match="`obs` declares 2147483648 bytes but the file does not hold them"):
        load_npz(path)


@pytest.mark.parametrize(
    ("member", "compression", "sentence"),
    [
        (npy((9, 2), bytes(72)), zipfile.ZIP_BZIP2, "compressed in a way NumPy never does"),
        (b"\x93NUMPY\x03\x00" + bytes(80), zipfile.ZIP_STORED, "no plain array of numbers"),
        (b"not an array", zipfile.ZIP_STORED, r"cannot be read as \.npz"),
        (b"\x93NUMPY\x01\x00\x05\x00{{{{{", zipfile.ZIP_STORED, r"cannot be read as \.npz"),
        (npy((9, 2), bytes(18), descr="|S1"), zipfile.ZIP_STORED, r"`obs` holds \|S1 values"),
    ],
)
def test_strange_members(tmp_path: Path, member: bytes, compression: int, sentence: str) -> None:
    with pytest.raises(UniqError, match=sentence):
        load_npz(zipped(tmp_path / "data.npz", member, compression))


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.data())
def test_a_damaged_npz_never_ends_in_another_error(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.npz"
    np.savez_compressed(path, **own())
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    with contextlib.suppress(UniqError):
        assert isinstance(load_npz(path), Dataset)  # a byte that does not matter, or that was right by chance


def test_load_dataset_takes_mappings_and_data_sets() -> None:
    data = load_dataset(own(), task="hopper")
    assert (data.name, data.task) == ("data", "hopper")
    assert load_dataset(data) is data
    assert load_dataset(data, task="ant").task == "ant"


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("hopper-medium-v3", "hopper-medium-v3 is not a data file or name .* knows; did you mean hopper-medium-v2?"),
        ("data.txt", r"data.txt is not a data file.*\.hdf5 or \.h5.*\.npz.*, a mapping of arrays.* or a Dataset"),
        ("missing.hdf5", "missing.hdf5 does not exist or is not a file"),
        ("missing.npz", "missing.npz does not exist or is not a file"),
        (3, "data of type int cannot be loaded"),
        (np.zeros(3), "data of type ndarray cannot be loaded"),
    ],
)
def test_load_dataset_says_what_it_accepts(source: Any, sentence: str) -> None:
    with pytest.raises(UniqError, match=sentence):
        load_dataset(source)


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    (tmp_path / "data.hdf5").mkdir()
    with pytest.raises(UniqError, match="is not a file"):
        load_dataset(tmp_path / "data.hdf5")


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(1, 5), st.booleans()), min_size=1, max_size=8))
def test_reconstruction_agrees_with_the_stored_successors(episodes: list[tuple[int, bool]]) -> None:
    columns = own(lengths=tuple(n for n, _ in episodes), terminated=tuple(dies for _, dies in episodes))
    known = sum(n if dies else n - 1 for n, dies in episodes)
    if known < 2:
        with pytest.raises(UniqError):
            from_arrays(without(columns, "next_obs"))
        return
    data, full = from_arrays(without(columns, "next_obs")), from_arrays(columns)
    assert data.size == known
    assert data.episodes == sum(dies or n > 1 for n, dies in episodes)
    alive = data.mask == 1
    rows = data.reward.astype(int)  # the reward is the row's number
    np.testing.assert_array_equal(data.next_obs[alive], full.next_obs[rows][alive])
    np.testing.assert_array_equal(data.mask, full.mask[rows])
