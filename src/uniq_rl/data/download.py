"""D4RL's data sets by name: fetched once, kept in a folder, never left damaged."""

import contextlib
import difflib
import errno
import fcntl
import hashlib
import http.client
import json
import os
import shutil
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import h5py

from uniq_rl.errors import UniqError
from uniq_rl.storage import sync_folder, write_atomically

BASE = "http://rail.eecs.berkeley.edu/datasets/offline_rl"
SIGNATURE = b"\x89HDF\r\n\x1a\n"
CHUNK = 2**20
TIMEOUT = 30.0  # seconds without a byte
ELSEWHERE = "set UNIQ_RL_D4RL_MIRROR to another address, or UNIQ_RL_DATA to a folder that holds the file"

Progress = Callable[[int, int | None], None]
"""Called with the bytes that are here and the bytes there will be, if the server says how many."""


def _files() -> dict[str, str]:
    """Name -> path below the base address."""
    files = {}
    for task in ("hopper", "walker2d", "halfcheetah", "ant"):
        for kind in ("random", "medium", "expert", "medium-replay", "medium-expert", "full-replay"):
            files[f"{task}-{kind}-v2"] = f"gym_mujoco_v2/{task}_{kind.replace('-', '_')}-v2.hdf5"
    mazes = {"umaze": "u-maze", "medium": "big-maze", "large": "hardest-maze"}
    for size, kind, start, goal in (
        ("umaze", "", False, False),
        ("umaze", "-diverse", True, True),
        ("medium", "-play", True, False),
        ("medium", "-diverse", True, True),
        ("large", "-play", True, False),
        ("large", "-diverse", True, True),
    ):
        files[f"antmaze-{size}{kind}-v2"] = (
            f"ant_maze_v2/Ant_maze_{mazes[size]}_noisy_multistart_{start}_multigoal_{goal}_sparse_fixed.hdf5"
        )
    for task in ("pen", "hammer", "relocate", "door"):
        for kind in ("human", "expert", "cloned"):
            files[f"{task}-{kind}-v1"] = f"hand_dapg_v1/{task}-{kind}-v1.hdf5"
    for kind, goals in (
        ("complete", "mini_kitchen_microwave_kettle_light_slider"),
        ("partial", "kitchen_microwave_kettle_light_slider"),
        ("mixed", "kitchen_microwave_kettle_bottomburner_light"),
    ):
        files[f"kitchen-{kind}-v0"] = f"kitchen/{goals}-v0.hdf5"
    for size in ("umaze", "medium", "large"):
        files[f"maze2d-{size}-v1"] = f"maze2d/maze2d-{size}-sparse-v1.hdf5"
        files[f"maze2d-{size}-dense-v1"] = f"maze2d/maze2d-{size}-dense-v1.hdf5"
    return files


FILES = _files()


@dataclass(frozen=True)
class _Record:
    """What is known of a finished file, kept beside it."""

    address: str
    size: int
    sha256: str
    modified: int  # nanoseconds; an unchanged file need not be read again


def is_d4rl_name(name: str) -> bool:
    """Whether this is the name of a D4RL data set, for example "hopper-medium-v2"."""
    return name in FILES


def address_of(name: str, mirror: str | None = None) -> str:
    """Where a data set is fetched from; `mirror` or UNIQ_RL_D4RL_MIRROR replace the address of D4RL's server."""
    base = mirror or os.environ.get("UNIQ_RL_D4RL_MIRROR") or BASE
    if not base.startswith(("http://", "https://")):
        raise UniqError(f"The mirror address {base!r} must begin with http:// or https://.")
    return f"{base.rstrip('/')}/{_path_of(name)}"


def cache_folder() -> Path:
    """UNIQ_RL_DATA, or else the user's cache."""
    if chosen := os.environ.get("UNIQ_RL_DATA"):
        return Path(chosen).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "uniq-rl" / "d4rl"


def fetch(name: str, mirror: str | None = None, progress: Progress | None = None) -> Path:
    """The file of a data set, downloaded on first use.

    A transfer that was cut goes on where it stopped. A second process that asks for the same file waits for the first.
    """
    folder, relative = cache_folder(), Path(_path_of(name))
    for place in (folder / relative.name, folder / relative):  # a copy of the whole server will do as well
        if place.is_file():
            return _checked(place)
    address, target = address_of(name, mirror), folder / relative.name
    with _disk(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with _lock(target):
        if target.is_file():  # another process was faster
            return _checked(target)
        part = _transfer(address, target, progress)
        _check_readable(part, address)
        _finish(part, target, address)
    return target


def _path_of(name: str) -> str:
    if name not in FILES:
        close = difflib.get_close_matches(name, FILES, n=1, cutoff=0.6)
        hint = f"did you mean {close[0]}?" if close else "the names are those of D4RL, for example hopper-medium-v2."
        raise UniqError(f"{name!r} is not a D4RL data set this library knows; {hint}")
    return FILES[name]


# --- one transfer ---


def _transfer(address: str, target: Path, progress: Progress | None) -> Path:
    """The complete file, still under a hidden name."""
    part, notes = _hidden(target, "part"), _hidden(target, "part.json")
    start, version = _resumable(part, notes, address)
    with _network(address, part):
        response = _open(address, start, version)
    with response:
        if response.status != http.client.PARTIAL_CONTENT:
            start = 0
            with _disk(part):  # before the notes speak of another version
                part.unlink(missing_ok=True)
        length = response.headers.get("Content-Length", "")
        total = start + int(length) if length.isdecimal() else None
        _check_space(target.parent, total, start)
        write_atomically(notes, json.dumps({"address": address, "version": _version(response)}).encode())
        done = _receive(response, part, start, total, address, progress)
    if total is not None and done < total:
        raise _cut(address, part, f"{done} of {total} bytes")
    return part


def _open(address: str, start: int, version: str | None) -> Any:
    """The server's answer: the whole file, or the rest from `start` on if it is still of the same version."""
    headers = {"User-Agent": "uniq-rl", "Accept-Encoding": "identity"}
    if start and version:
        headers |= {"Range": f"bytes={start}-", "If-Range": version}
    try:
        response = urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if not start or error.code != http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise
        error.close()
        return _open(address, 0, None)
    if start and response.status == http.client.PARTIAL_CONTENT and _first_byte(response) != start:
        response.close()
        return _open(address, 0, None)
    return response


def _receive(response: Any, part: Path, start: int, total: int | None, address: str, progress: Progress | None) -> int:
    """Append what comes; how many bytes are here then."""
    done = start
    with _disk(part), open(part, "r+b" if start else "wb") as file:
        file.seek(start)
        file.truncate()
        while True:
            if progress:
                progress(done, total)
            with _network(address, part, "the connection broke"):
                chunk = response.read(CHUNK)
            if not chunk:
                return done
            if done == 0 and not chunk.startswith(SIGNATURE[: len(chunk)]):
                part.unlink()
                raise _not_hdf5(address, chunk)
            file.write(chunk)
            file.flush()
            done += len(chunk)


def _resumable(part: Path, notes: Path, address: str) -> tuple[int, str | None]:
    """How many bytes of which version of the file are here; nothing unless the server can tell versions apart."""
    try:
        known = json.loads(notes.read_bytes())
        if known["address"] == address and isinstance(known["version"], str):
            return part.stat().st_size, known["version"]
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return 0, None


def _version(response: Any) -> str | None:
    """What tells this version of the file from another; weak tags do not, byte by byte."""
    tag = response.headers.get("ETag")
    if tag and not tag.startswith("W/"):
        return str(tag)
    date = response.headers.get("Last-Modified")
    return str(date) if date else None


def _first_byte(response: Any) -> int | None:
    """Of a partial answer: "bytes 100-199/200" -> 100."""
    first = response.headers.get("Content-Range", "").removeprefix("bytes").strip().partition("-")[0]
    return int(first) if first.isdecimal() else None


def _hidden(target: Path, suffix: str) -> Path:
    return target.with_name(f".{target.name}.{suffix}")


# --- the finished file ---


def _check_readable(part: Path, address: str) -> None:
    """Opening compares the length HDF5 noted with the length that is there."""
    try:
        with h5py.File(part, "r"):
            return
    except (OSError, RuntimeError) as error:
        part.unlink(missing_ok=True)
        reason = " ".join(str(error).split())
        raise UniqError(f"What {address} sent is a damaged HDF5 file ({reason}); try again, or {ELSEWHERE}.") from None


def _finish(part: Path, target: Path, address: str) -> None:
    with _disk(target):
        with open(part, "rb") as file:
            os.fsync(file.fileno())
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        facts = part.stat()
        os.replace(part, target)
        sync_folder(target.parent)
        _hidden(target, "part.json").unlink(missing_ok=True)
    record = _Record(address, facts.st_size, digest, facts.st_mtime_ns)
    write_atomically(_record_path(target), (json.dumps(asdict(record), indent=2) + "\n").encode())


def _record_path(target: Path) -> Path:
    return target.with_name(target.name + ".json")


def _checked(path: Path) -> Path:
    """The file, if it is what was downloaded; files that came another way are used as they are."""
    try:
        record = _Record(**json.loads(_record_path(path).read_bytes()))
    except (OSError, ValueError, TypeError):
        return path
    facts = path.stat()
    if facts.st_size == record.size and facts.st_mtime_ns == record.modified:
        return path
    found = f"{facts.st_size} bytes"
    if facts.st_size == record.size:
        with open(path, "rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() == record.sha256:
                return path
        found = "other bytes"
    raise UniqError(
        f"{path} holds {found}, but {record.size} bytes with another checksum were downloaded; delete it to fetch it "
        f"again, or delete {_record_path(path).name} if the change was meant."
    )


# --- what may go wrong, one sentence each ---


@contextlib.contextmanager
def _lock(target: Path) -> Iterator[None]:
    """One process at a time; the system lets go of the lock of a process that dies."""
    with contextlib.ExitStack() as stack:
        with _disk(target.parent):
            file = stack.enter_context(open(_hidden(target, "lock"), "ab"))
        # Network file systems may know no locks; a download is more use there than a refusal.
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _network(address: str, part: Path, what: str | None = None) -> Iterator[None]:
    server = address.split("/")[2]
    try:
        yield
    except urllib.error.HTTPError as error:
        error.close()
        raise UniqError(_answered(error.code, address)) from None
    except (ValueError, http.client.InvalidURL) as error:
        raise UniqError(f"{address} cannot be opened ({error}); check the address, or {ELSEWHERE}.") from None
    except (OSError, http.client.HTTPException) as error:  # URLError is an OSError that wraps another
        reason = getattr(error, "reason", error)
        if what is not None:
            raise _cut(address, part, f"{what}: {reason or type(reason).__name__}") from None
        if isinstance(reason, socket.gaierror):
            sentence = f"The server {server} cannot be found: no network, or no such name ({reason.strerror})"
        elif isinstance(reason, ssl.SSLError):
            sentence = f"{server} has no certificate this machine trusts ({reason.reason})"
        elif isinstance(reason, TimeoutError):
            sentence = f"The server {server} did not answer within {TIMEOUT:g} seconds"
        elif isinstance(reason, ConnectionRefusedError):
            sentence = f"The server {server} refused the connection; it may be down"
        else:
            sentence = f"The server {server} cannot be reached ({reason or type(reason).__name__})"
        raise UniqError(f"{sentence}; check the network and try later, {ELSEWHERE}.") from None


def _answered(code: int, address: str) -> str:
    if code == http.client.NOT_FOUND:
        return f"There is no file at {address} (404); check the mirror's address, or {ELSEWHERE}."
    if code in (http.client.FORBIDDEN, http.client.UNAUTHORIZED):
        return f"The server does not give out {address} ({code}); {ELSEWHERE}."
    name = http.client.responses.get(code, "unknown")
    return f"The server answered {code} ({name}) to {address}; try later, or {ELSEWHERE}."


def _cut(address: str, part: Path, what: str) -> UniqError:
    size = part.stat().st_size if part.exists() else 0
    return UniqError(
        f"The transfer of {address} stopped early ({what}); the {size} bytes that came are kept, so try again to go on."
    )


def _not_hdf5(address: str, begin: bytes) -> UniqError:
    text = begin[:512].lstrip().lower()
    what = "a web page" if text.startswith((b"<!doctype", b"<html", b"<?xml")) else "something else"
    return UniqError(
        f"{address} answered with {what} instead of an HDF5 file; check the network's login, or {ELSEWHERE}."
    )


@contextlib.contextmanager
def _disk(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise UniqError(
                f"The disk is full at {path}; what came is kept, so free some space and try again, or set UNIQ_RL_DATA "
                "to a folder on another disk."
            ) from None
        raise UniqError(
            f"{path} cannot be written ({error.strerror or error}); set UNIQ_RL_DATA to a folder that can."
        ) from None


def _check_space(folder: Path, total: int | None, start: int) -> None:
    with _disk(folder):
        free = shutil.disk_usage(folder).free
    if total is not None and total - start > free:
        raise UniqError(
            f"{folder} has {free} bytes free but {total - start} more are needed; free some space, or set UNIQ_RL_DATA "
            "to a folder on another disk."
        )
