"""Whatever is fed to the loaders, they answer with data or with the library's own error: no crash, no hang, no other.

The cases run in subprocesses, this file being their program, so that the death of one is a finding and not the end.
"""

import faulthandler
import json
import resource
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from logged import chain

from uniq_rl.data import Dataset, from_arrays, from_episodes, load_dataset
from uniq_rl.errors import UniqError

FILE_CASES = 1200
ARRAY_CASES = 1200
SHARDS = 2
HANG_S = 20  # for a single case; each takes milliseconds
MEMORY = 8 * 2**30  # address space: a forged size must not be believed
FORMATS = ("hdf5", "npz", "csv", "parquet")


@pytest.mark.parametrize(("kind", "cases"), [("files", FILE_CASES), ("arrays", ARRAY_CASES)])
def test_nothing_but_data_or_the_own_error(kind: str, cases: int, tmp_path: Path) -> None:
    if kind == "files":
        pytest.importorskip("pyarrow")
    found: dict[str, int] = {}
    faults: list[str] = []
    shards = [Shard(kind, shard, cases, tmp_path) for shard in range(SHARDS)]
    for shard in shards:
        shard.start(shard.first)
    for shard in shards:
        shard.finish(found, faults)
    assert not faults, "\n".join(faults[:10])
    assert found.pop("data") > cases // 20  # some mutants are harmless,
    assert found.pop("refused") > cases // 4  # many are not,
    assert not found  # and nothing else exists


class Shard:
    """Every SHARDS-th case, in a subprocess that is started again after a case that kills it."""

    def __init__(self, kind: str, first: int, cases: int, folder: Path) -> None:
        self.kind, self.first, self.cases = kind, first, cases
        self.journal = folder / f"{kind}-{first}.jsonl"
        self.journal.touch()

    def start(self, first: int) -> None:
        command = [sys.executable, __file__, self.kind, str(first), str(self.cases), str(self.journal)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def finish(self, found: dict[str, int], faults: list[str]) -> None:
        for _ in range(10):  # deaths, at most
            try:
                _, errors = self.process.communicate(timeout=240)
            except subprocess.TimeoutExpired:
                self.process.kill()
                errors = self.process.communicate()[1]
            lines = [json.loads(line) for line in self.journal.read_text().splitlines()]
            if self.process.returncode == 0:
                break
            last = lines[-1]["case"] if lines else self.first
            faults.append(f"{self.kind} case {last}: died with {self.process.returncode}: {errors[-1500:]}")
            self.start(last + SHARDS)
        for line in lines:
            if "outcome" in line:
                found[line["outcome"]] = found.get(line["outcome"], 0) + 1
            if "fault" in line:
                faults.append(f"{self.kind} case {line['case']}: {line['fault']}")


# --- in the subprocess ---


def main(kind: str, first: int, cases: int, journal: Path) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    warnings.simplefilter("error")
    with tempfile.TemporaryDirectory() as name, open(journal, "a", encoding="utf-8") as out:
        folder = Path(name)
        originals = {suffix: valid_files(suffix, folder) for suffix in FORMATS} if kind == "files" else {}
        for case in range(first, cases, SHARDS):
            faulthandler.dump_traceback_later(HANG_S, exit=True)
            out.write(json.dumps({"case": case}) + "\n")
            out.flush()
            rng = np.random.default_rng((case, 2024))
            with warnings.catch_warnings(action="ignore"):  # casts that make the case
                attempt = file_case(rng, case, originals, folder) if kind == "files" else array_case(rng)
            out.write(json.dumps({"case": case} | outcome(attempt)) + "\n")
            faulthandler.cancel_dump_traceback_later()


def outcome(attempt: Callable[[], Dataset]) -> dict[str, str]:
    try:
        dataset = attempt()
        assert np.isfinite(dataset.obs).all()
        assert dataset.episode_lengths.sum() == dataset.size >= 2
    except UniqError as error:
        sentence = str(error)
        return {"outcome": "refused"} | ({"fault": f"not one line: {sentence!r}"} if "\n" in sentence else {})
    except BaseException as error:
        return {"outcome": "fault", "fault": repr(error)}
    return {"outcome": "data"}


# --- mutated files ---


def valid_files(suffix: str, folder: Path) -> list[bytes]:
    """Small files: a random byte then often belongs to the structure and not to the numbers."""
    columns = chain((7, 4, 9), (True, False, True))
    flat = {
        "obs_0": columns["observations"][:, 0],
        "obs_1": columns["observations"][:, 1],
        "action_0": columns["actions"][:, 0],
        "reward": columns["rewards"],
        "terminated": columns["terminals"],
        "truncated": columns["timeouts"],
    }
    path = folder / f"valid.{suffix}"
    found = []
    for variant in range(3):
        if suffix == "hdf5":
            with h5py.File(path, "w", libver="latest" if variant == 2 else "earliest") as file:
                for key, value in columns.items():
                    file.create_dataset(key, data=value, compression="gzip" if variant == 1 else None)
        elif suffix == "npz":
            (np.savez_compressed if variant == 1 else np.savez)(path, **columns)
        elif suffix == "csv":
            rows = zip(*(value.tolist() for value in flat.values()), strict=True)
            lines = [",".join(flat), *(",".join(map(str, row)) for row in rows)]
            path.write_text(("\r\n" if variant == 1 else "\n").join(lines) + "\n")
        else:
            import pyarrow
            from pyarrow import parquet

            table = pyarrow.table(flat)
            compression = ("snappy", "none", "zstd")[variant]
            parquet.write_table(table, path, compression=compression, use_dictionary=variant != 1)
        found.append(path.read_bytes())
    return found


def file_case(
    rng: np.random.Generator, case: int, originals: dict[str, list[bytes]], folder: Path
) -> Callable[[], Dataset]:
    suffix = FORMATS[case // SHARDS % len(FORMATS)]
    content = bytearray(originals[suffix][rng.integers(3)])
    donor = originals[suffix][rng.integers(3)]
    for _ in range(rng.integers(1, 4)):
        content = MUTATIONS[rng.integers(len(MUTATIONS))](rng, content, donor)
    path = folder / f"mutant.{suffix}"
    path.write_bytes(content)
    return lambda: load_dataset(path)


def _somewhere(rng: np.random.Generator, content: bytearray) -> int:
    """Anywhere, but half of the time where formats keep their headers and footers."""
    near = int(rng.integers(0, min(len(content), 300))) if content else 0
    return [int(rng.integers(0, max(len(content), 1))), near, max(len(content) - 1 - near, 0)][
        rng.choice(3, p=[0.5, 0.25, 0.25])
    ]


def flip(rng: np.random.Generator, content: bytearray, donor: bytes) -> bytearray:
    for _ in range(rng.integers(1, 9)):
        if content:
            content[_somewhere(rng, content)] ^= 1 << int(rng.integers(8))
    return content


def truncate(rng: np.random.Generator, content: bytearray, donor: bytes) -> bytearray:
    at = _somewhere(rng, content)
    return content[:at] if rng.random() < 0.7 else content[at:]


def splice(rng: np.random.Generator, content: bytearray, donor: bytes) -> bytearray:
    length, source, target = int(rng.integers(1, 200)), int(rng.integers(len(donor))), _somewhere(rng, content)
    piece = donor[source : source + length]
    keep = target + (len(piece) if rng.random() < 0.7 else 0)  # overwrite or insert
    return content[:target] + piece + content[keep:]


def extreme(rng: np.random.Generator, content: bytearray, donor: bytes) -> bytearray:
    """A number at the edge of its type: lengths, offsets and counts look like this when they are wrong."""
    width = int(rng.choice([1, 2, 4, 8]))
    value = int(rng.choice([0, 1, 2 ** (8 * width - 1) - 1, 2 ** (8 * width) - 1], shuffle=False)) if width < 8 else -1
    at = _somewhere(rng, content)
    content[at : at + width] = value.to_bytes(width, "little", signed=value < 0)
    return content


def words(rng: np.random.Generator, content: bytearray, donor: bytes) -> bytearray:
    """Edit what a person might edit."""
    old, new = [
        (b"obs", b"ops"),
        (b"reward", b"rewind"),
        (b"true", b"maybe"),
        (b"False", b""),
        (b",", b""),
        (b"1", b"nan"),
        (b"<f4", b"<f8"),
        (b"<f4", b"|O8"),
        (b"(20,", b"(-2,"),
        (b"\n", b"\n\n\x00"),
        (b"0.", b"1e999"),
        (b"PK", b"KP"),
    ][rng.integers(12)]
    return bytearray(bytes(content).replace(old, new, int(rng.integers(1, 4))))


def noise(rng: np.random.Generator, content: bytearray, donor: bytes) -> bytearray:
    at, length = _somewhere(rng, content), int(rng.integers(1, 65))
    content[at : at + length] = rng.bytes(length)
    return content


MUTATIONS = (flip, flip, truncate, splice, extreme, words, noise)


# --- random and structured arrays ---


def array_case(rng: np.random.Generator) -> Callable[[], Dataset]:
    way = rng.integers(3)
    lengths = tuple(int(length) for length in rng.integers(1, 9, size=rng.integers(1, 5)))
    columns = chain(lengths, tuple(bool(flag) for flag in rng.integers(0, 2, size=len(lengths))))
    action_range: Any = [None, None, "data", (-1, 1), (-5, [5.0]), ("a", 1), (np.nan, 1), (2, 1), 7, "none"][
        rng.integers(10)
    ]
    if way == 0:
        for _ in range(rng.integers(0, 4)):
            damage(rng, columns)
        return lambda: from_arrays(columns, action_range=action_range)
    if way == 1:
        fields: dict[str, Any] = {
            "obs": columns["observations"],
            "action": columns["actions"],
            "reward": columns["rewards"],
            "next_obs": columns["next_observations"],
            "mask": 1.0 - columns["terminals"],
            "episode_end": columns["terminals"] | columns["timeouts"],
            "infos": {"qpos": columns["observations"]},
        }
        if rng.random() < 0.3:
            fields |= {"action_low": np.full(1, -2.0), "action_high": np.full(1, 2.0)}
        names = set(fields)
        for _ in range(rng.integers(0, 4)):
            damage(rng, fields)
        kept = {key: fields.get(key, values(rng, None)) for key in names}  # a field must be there, whatever it holds
        kept["infos"] = kept["infos"] if isinstance(kept["infos"], dict) else {"qpos": kept["infos"]}
        return lambda: Dataset(**kept)
    episodes: list[Any] = []
    for _ in range(rng.integers(1, 4)):
        length = int(rng.integers(1, 6))
        episode: dict[str, Any] = {
            "obs": rng.normal(size=(length + int(rng.integers(2)), 2)),
            "action": rng.uniform(-1, 1, size=(length, 1)),
            "reward": rng.normal(size=length),
            "terminated": bool(rng.integers(2)),
            "truncated": np.arange(length) == length - 1,
        }
        for _ in range(rng.integers(0, 2)):
            damage(rng, episode)
        episodes.append(episode if rng.random() < 0.97 else values(rng, None))
    return lambda: from_episodes(episodes, action_range=action_range)


def damage(rng: np.random.Generator, columns: dict[str, Any]) -> None:
    key = list(columns)[rng.integers(len(columns))] if columns else "obs"
    choice = rng.integers(4)
    if choice == 0:
        columns.pop(key, None)
    elif choice == 1:
        columns[f"{key}s" if rng.random() < 0.5 else str(rng.choice(["done", "mask", "action_low", "obs"]))] = (
            columns.get(key)
        )
    else:
        columns[key] = values(rng, columns.get(key))


def values(rng: np.random.Generator, current: Any) -> Any:
    """Something else in place of a column; often nearly the same."""
    if isinstance(current, np.ndarray) and current.dtype.kind in "biuf" and current.size and rng.random() < 0.7:
        changed = current.astype(np.float64)
        at = tuple(int(rng.integers(size)) for size in changed.shape)
        changes: list[Callable[[], Any]] = [
            lambda: _put(changed, at, np.nan),
            lambda: _put(changed, at, -np.inf),
            lambda: _put(changed, at, 1e300),
            lambda: _put(changed, at, 2.0),
            lambda: changed[:-1],
            lambda: changed[:0],
            lambda: changed[:1],
            lambda: changed[..., None],
            lambda: changed.reshape(-1),
            lambda: changed.T,
            lambda: changed.astype(np.float16),
            lambda: changed.astype(np.int64),
            lambda: changed.astype(np.int64).astype(np.uint8),
            lambda: changed.astype(np.complex64),
            lambda: changed.astype(str),
            lambda: changed.astype(object),
            lambda: changed.astype(">f8")[::-1],
            lambda: changed.tolist(),
            lambda: np.ma.masked_array(changed, changed > 0),
            lambda: np.asfortranarray(changed),
        ]
        return changes[rng.integers(len(changes))]()
    others: list[Any] = [
        None,
        3,
        1.5,
        True,
        "text",
        b"bytes",
        [],
        [[]],
        [[1], [2, 3]],
        {},
        {"obs": 1},
        object(),
        np.zeros(()),
        np.zeros((0, 0)),
        np.zeros((3, 0, 2)),
        np.array(["2020-01-01"] * 5, dtype="datetime64[s]"),
        np.zeros(5, dtype=[("a", "f4"), ("b", "i4")]),
        np.full((5, 2), np.nan),
        rng.normal(size=(int(rng.integers(1, 30)), int(rng.integers(1, 4)))),
        [None] * 9,
        iter([1, 2, 3]),
        10**400,
        [10**400] * 3,
        range(9),
    ]
    return others[rng.integers(len(others))]


def _put(array: Any, at: tuple[int, ...], value: float) -> Any:
    array[at] = value
    return array


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
