"""D4RL by name, against a server on loopback that does everything a server may do."""

import errno
import http.server
import io
import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from logged import chain

from uniq_rl.data import download, load_dataset
from uniq_rl.data.download import FILES, address_of, cache_folder, fetch, is_d4rl_name
from uniq_rl.errors import UniqError

NAME = "hopper-medium-v2"
FILE = "hopper_medium-v2.hdf5"


def content() -> bytes:
    memory = io.BytesIO()
    with h5py.File(memory, "w") as file:
        for key, value in chain().items():
            file[key] = value
        file["padding"] = np.arange(2000.0)  # several chunks of what the tests call a chunk
    return memory.getvalue()


CONTENT = content()


class Server(http.server.ThreadingHTTPServer):
    """Gives out CONTENT in the manner of `mode` and remembers what it was asked."""

    daemon_threads = True
    mode = "plain"
    body = CONTENT
    tag = '"one"'
    cut_at = 3000

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.release = threading.Event()
        self.requests: list[tuple[str, dict[str, str]]] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/base"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        server = self.server
        server.requests.append((self.path, dict(self.headers)))
        modes = {"403": 403, "404": 404, "503": 503}
        if server.mode in modes:
            self.send_error(modes[server.mode])
            return
        if server.mode == "html":
            self.answer(200, b"<!DOCTYPE html><html>please log in</html>" * 100, {"Content-Type": "text/html"})
            return
        if server.mode == "junk":
            self.answer(200, b"junk" * 1000)
            return
        if server.mode == "silent":
            server.release.wait(10)
            return
        body, headers = server.body, {}
        if server.mode != "no-version":
            headers = (
                {"Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT"} if server.mode == "dated" else {"ETag": server.tag}
            )
        start = self.asked(headers)
        if start >= len(body):
            self.send_error(416)
        elif start and server.mode == "wrong-range":
            self.answer(206, body[5:], headers | {"Content-Range": f"bytes 5-{len(body) - 1}/{len(body)}"})
        elif start and server.mode != "no-range":
            self.answer(206, body[start:], headers | {"Content-Range": f"bytes {start}-{len(body) - 1}/{len(body)}"})
        elif server.mode in ("cut", "no-version"):
            self.answer(200, body, headers, send=server.cut_at)
        elif server.mode == "stall":
            self.answer(200, body, headers, send=server.cut_at)
            server.release.wait(10)
        elif server.mode == "endless":  # no length: the end of the connection is the end of the file
            self.answer(200, body[: server.cut_at], headers, length=False)
        else:
            self.answer(200, body, headers)

    def asked(self, headers: dict[str, str]) -> int:
        """The first byte wanted; 0 if the version asked for is not the one there is."""
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        return int(asked[1]) if asked and self.headers["If-Range"] in headers.values() else 0

    def answer(
        self,
        status: int,
        body: bytes,
        headers: dict[str, str] | None = None,
        send: int | None = None,
        length: bool = True,
    ) -> None:
        self.send_response(status)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        if length:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[:send])


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield running
    running.release.set()
    running.shutdown()
    running.server_close()
    thread.join(timeout=10)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, no proxies, small chunks."""
    monkeypatch.setenv("UNIQ_RL_DATA", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.delenv("UNIQ_RL_D4RL_MIRROR", raising=False)
    monkeypatch.setattr(download, "CHUNK", 1000)
    return tmp_path / "cache"


def refused(server: Server, sentence: str) -> None:
    with pytest.raises(UniqError, match=sentence) as caught:
        fetch(NAME, server.address)
    text = str(caught.value)
    assert "\n" not in text
    assert text.endswith(".")


def in_cache(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.endswith(".lock"))


# --- names and places ---


def test_addresses() -> None:
    base = "http://rail.eecs.berkeley.edu/datasets/offline_rl"
    maze = "ant_maze_v2/Ant_maze"
    for name, path in {
        "hopper-medium-v2": "gym_mujoco_v2/hopper_medium-v2.hdf5",
        "halfcheetah-medium-replay-v2": "gym_mujoco_v2/halfcheetah_medium_replay-v2.hdf5",
        "ant-full-replay-v2": "gym_mujoco_v2/ant_full_replay-v2.hdf5",
        "antmaze-umaze-v2": f"{maze}_u-maze_noisy_multistart_False_multigoal_False_sparse_fixed.hdf5",
        "antmaze-umaze-diverse-v2": f"{maze}_u-maze_noisy_multistart_True_multigoal_True_sparse_fixed.hdf5",
        "antmaze-medium-play-v2": f"{maze}_big-maze_noisy_multistart_True_multigoal_False_sparse_fixed.hdf5",
        "antmaze-large-diverse-v2": f"{maze}_hardest-maze_noisy_multistart_True_multigoal_True_sparse_fixed.hdf5",
        "pen-human-v1": "hand_dapg_v1/pen-human-v1.hdf5",
        "kitchen-complete-v0": "kitchen/mini_kitchen_microwave_kettle_light_slider-v0.hdf5",
        "kitchen-mixed-v0": "kitchen/kitchen_microwave_kettle_bottomburner_light-v0.hdf5",
        "maze2d-umaze-v1": "maze2d/maze2d-umaze-sparse-v1.hdf5",
        "maze2d-large-dense-v1": "maze2d/maze2d-large-dense-v1.hdf5",
    }.items():
        assert is_d4rl_name(name)
        assert address_of(name) == f"{base}/{path}"
    assert len(FILES) == 24 + 6 + 12 + 3 + 6
    assert len({Path(path).name for path in FILES.values()}) == len(FILES)  # one folder holds them all
    assert not is_d4rl_name("hopper-medium-v1")


def test_a_name_nearly_right() -> None:
    with pytest.raises(UniqError, match=r"did you mean hopper-medium-replay-v2\?"):
        address_of("hopper-medium_replay-v2")


def test_mirrors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNIQ_RL_D4RL_MIRROR", "https://mirror.example/d4rl/")
    assert address_of(NAME) == f"https://mirror.example/d4rl/gym_mujoco_v2/{FILE}"
    assert address_of(NAME, "http://other.example") == f"http://other.example/gym_mujoco_v2/{FILE}"
    for wrong in ("mirror.example", "file:///data", "ftp://mirror.example"):
        with pytest.raises(UniqError, match="must begin with http"):
            address_of(NAME, wrong)
    with pytest.raises(UniqError, match="cannot be opened"):
        fetch(NAME, "http://[broken")


def test_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("UNIQ_RL_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "uniq-rl" / "d4rl"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "uniq-rl" / "d4rl"


@pytest.mark.parametrize("place", [FILE, f"gym_mujoco_v2/{FILE}"])
def test_files_that_are_there_are_used_as_they_are(folder: Path, place: str) -> None:
    (folder / place).parent.mkdir(parents=True)
    (folder / place).write_bytes(CONTENT)
    assert fetch(NAME, "http://127.0.0.1:9") == folder / place


# --- a good transfer ---


def test_fetched_once_with_progress_and_a_record(server: Server, folder: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    path = fetch(NAME, server.address, lambda done, total: seen.append((done, total)))
    assert path.read_bytes() == CONTENT
    assert seen[0] == (0, len(CONTENT))
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert seen == sorted(seen)
    assert in_cache(folder) == [FILE, FILE + ".json"]
    record = json.loads((folder / (FILE + ".json")).read_text())
    assert record["size"] == len(CONTENT)
    assert len(record["sha256"]) == 64
    assert fetch(NAME, server.address) == path
    assert [asked for asked, _ in server.requests] == [f"/base/gym_mujoco_v2/{FILE}"]
    assert server.requests[0][1]["User-Agent"] == "uniq-rl"


def test_load_dataset_by_name(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNIQ_RL_D4RL_MIRROR", server.address)
    data = load_dataset(NAME)
    assert (data.name, data.task, data.size, data.episodes) == (NAME, "hopper", 9, 3)
    assert load_dataset("kitchen-complete-v0").task == "kitchen"
    assert load_dataset("antmaze-medium-play-v2").task == "antmaze"
    maze = load_dataset("maze2d-umaze-v1")
    assert (maze.name, maze.task) == ("maze2d-umaze-v1", "maze2d-umaze")


def test_a_changed_file_is_noticed(server: Server) -> None:
    path = fetch(NAME, server.address)
    path.write_bytes(CONTENT)  # another date, the same bytes
    assert fetch(NAME, server.address) == path
    path.write_bytes(CONTENT[:-1] + b"x")
    refused(server, "holds other bytes, but .* delete it to fetch it again")
    path.write_bytes(CONTENT[:-1])
    refused(server, f"holds {len(CONTENT) - 1} bytes, but {len(CONTENT)} bytes .* delete it")
    path.unlink()
    assert fetch(NAME, server.address).read_bytes() == CONTENT


def test_two_processes_at_once(server: Server, folder: Path) -> None:
    code = "import sys; from uniq_rl.data.download import fetch; print(fetch(sys.argv[1], sys.argv[2]).stat().st_size)"
    workers = [
        subprocess.Popen([sys.executable, "-c", code, NAME, server.address], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    assert [int(worker.communicate(timeout=60)[0]) for worker in workers] == [len(CONTENT)] * 3
    assert len(server.requests) == 1
    assert in_cache(folder) == [FILE, FILE + ".json"]


# --- a cut transfer ---


@pytest.mark.parametrize("version", ["cut", "dated"])
def test_a_cut_transfer_goes_on(server: Server, folder: Path, version: str) -> None:
    server.mode = "cut"
    if version == "dated":
        server.tag = 'W/"weak"'  # of no use, so the first transfer cannot be continued
    refused(server, r"stopped early \(3000 of \d+ bytes\); the 3000 bytes that came are kept")
    assert FILE not in in_cache(folder)
    server.mode = "dated" if version == "dated" else "plain"
    assert fetch(NAME, server.address).read_bytes() == CONTENT
    asked = server.requests[1][1]
    assert asked.get("Range") == ("bytes=3000-" if version == "cut" else None)
    assert in_cache(folder) == [FILE, FILE + ".json"]


def test_resume_by_date(server: Server, folder: Path) -> None:
    server.mode = "dated"
    folder.mkdir()
    (folder / f".{FILE}.part").write_bytes(CONTENT[:2000])
    notes = {"address": address_of(NAME, server.address), "version": "Mon, 01 Jan 2024 00:00:00 GMT"}
    (folder / f".{FILE}.part.json").write_text(json.dumps(notes))
    assert fetch(NAME, server.address).read_bytes() == CONTENT
    assert server.requests[0][1]["Range"] == "bytes=2000-"


@pytest.mark.parametrize("mode", ["no-range", "wrong-range", "changed", "too-long", "no-version", "other-mirror"])
def test_a_fresh_transfer_where_resuming_is_impossible(server: Server, folder: Path, mode: str) -> None:
    server.mode = "no-version" if mode == "no-version" else "cut"
    refused(server, "stopped early")
    server.mode = mode
    if mode == "changed":
        server.tag, server.body = '"two"', CONTENT[:-1] + b"z"
    elif mode == "too-long":
        (folder / f".{FILE}.part").write_bytes(bytes(len(CONTENT) + 7))
    elif mode == "no-version":
        server.cut_at = len(CONTENT)
    mirror = server.address + "/other" if mode == "other-mirror" else server.address
    assert fetch(NAME, mirror).read_bytes() == server.body
    assert in_cache(folder) == [FILE, FILE + ".json"]


def test_a_cut_nobody_announced_is_found_by_hdf5(server: Server, folder: Path) -> None:
    server.mode = "endless"
    refused(server, "damaged HDF5 file .*truncated")
    assert FILE not in in_cache(folder)
    server.cut_at = len(CONTENT)
    assert fetch(NAME, server.address).read_bytes() == CONTENT


def test_a_server_that_falls_silent(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.mode = "silent"
    monkeypatch.setattr(download, "TIMEOUT", 0.2)
    refused(server, "did not answer within 0.2 seconds; check the network")


def test_a_server_that_falls_silent_in_the_middle(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.mode = "stall"
    monkeypatch.setattr(download, "TIMEOUT", 0.2)
    refused(server, r"stopped early \(the connection broke: .*timed out\); the \d000 bytes that came are kept")
    server.mode = "plain"
    assert fetch(NAME, server.address).read_bytes() == CONTENT
    assert server.requests[1][1]["Range"] in ("bytes=2000-", "bytes=3000-")


# --- answers that are no data ---


@pytest.mark.parametrize(
    ("mode", "sentence"),
    [
        ("403", r"does not give out http://127.0.0.1.* \(403\); set UNIQ_RL_D4RL_MIRROR"),
        ("404", r"There is no file at http://127.0.0.1.* \(404\); check the mirror"),
        ("503", r"answered 503 \(Service Unavailable\).*; try later"),
        ("html", "answered with a web page instead of an HDF5 file"),
        ("junk", "answered with something else instead of an HDF5 file"),
    ],
)
def test_refusals(server: Server, folder: Path, mode: str, sentence: str) -> None:
    server.mode = mode
    refused(server, sentence)
    assert [name for name in in_cache(folder) if not name.endswith(".part.json")] == []
    server.mode = "plain"
    assert fetch(NAME, server.address).read_bytes() == CONTENT


def test_no_server() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(UniqError, match=rf"127.0.0.1:{port} refused the connection; it may be down; check the network"):
        fetch(NAME, f"http://127.0.0.1:{port}")


def test_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(*args: Any, **kwargs: Any) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", nobody)
    with pytest.raises(UniqError, match=r"The server mirror\.invalid cannot be found: no network, or no such name"):
        fetch(NAME, "http://mirror.invalid")


# --- the disk ---


def test_a_full_disk(server: Server, folder: Path) -> None:
    code = (
        "import resource, sys\n"
        "from uniq_rl.data import download\n"
        "from uniq_rl.errors import UniqError\n"
        "download.CHUNK = 1000\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))\n"
        "try:\n"
        "    download.fetch(sys.argv[1], sys.argv[2])\n"
        "except UniqError as error:\n"
        "    print(error)\n"
    )
    command = [sys.executable, "-c", code, NAME, server.address]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert re.match("The disk is full at .*; what came is kept, so free some space and try again", answer.stdout)
    assert FILE not in in_cache(folder)
    assert fetch(NAME, server.address).read_bytes() == CONTENT
    assert server.requests[-1][1]["Range"] == "bytes=5000-"


def test_too_little_space_is_noticed_before(server: Server, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 10})())
    refused(server, rf"has 10 bytes free but {len(CONTENT)} more are needed")
    assert in_cache(folder) == []


def test_an_unwritable_cache(server: Server, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.write_bytes(b"a file where the folder should be")
    refused(server, "cannot be written .*; set UNIQ_RL_DATA to a folder that can")
    folder.unlink()

    def denied(*args: Any, **kwargs: Any) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "mkdir", denied)
    refused(server, r"cannot be written \(Permission denied\); set UNIQ_RL_DATA")
