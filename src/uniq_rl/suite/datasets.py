"""The built-in data sets: D4RL's kinds, made on first use from the shipped behaviour policies, and kept in a cache."""

import contextlib
import fcntl
import hashlib
import json
import os
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, CancelledError, ThreadPoolExecutor, wait
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np

from uniq_rl.data import Dataset, load_npz, save_npz
from uniq_rl.errors import UniqError
from uniq_rl.physics.locomotion import TASKS, usable_cores
from uniq_rl.physics.scores import score
from uniq_rl.storage import disk_errors, write_atomically
from uniq_rl.suite import behaviour
from uniq_rl.suite.behaviour import Behaviour
from uniq_rl.suite.generate import Columns, collect

SUITE_VERSION = 1
"""Raised when the same name, size and seed would give other data."""

PHYSICS = "d4rl"
PREFIX = "suite/"
KINDS = ("random", "medium", "expert", "medium-expert", "medium-replay", "full-replay")
MIN_SIZE = 1000
TICK = 0.1
"""Seconds between two reports of progress."""

Progress = Callable[[int, int], None]
Segments = list[tuple[int, int]]
"""Number of the policy and how many transitions it contributes, in order."""

_REPLAY_SIZES = {"hopper": 402_000, "walker2d": 302_000, "halfcheetah": 202_000}
SHIPPED_CARDS = Path(behaviour.__file__).with_name("cards.json")

_GRID = 20
_GRID_ROWS = 10
# Columns of torso pitch and forward speed in an observation, and the ranges the grid spans.
_GRID_AXES = {
    "hopper": ((1, -0.2, 0.2), (5, -1.0, 5.0)),
    "walker2d": ((1, -1.0, 1.0), (8, -2.0, 7.0)),
    "halfcheetah": ((1, -np.pi, np.pi), (8, -4.0, 14.0)),
}


def names() -> list[str]:
    """All built-in data sets."""
    return [f"{PREFIX}{task}-{kind}" for task in TASKS for kind in KINDS]


def default_size(name: str) -> int:
    """As many transitions as D4RL's set of that name."""
    task, kind = _parsed(name)
    return {"medium-expert": 2_000_000, "medium-replay": _REPLAY_SIZES[task]}.get(kind, 1_000_000)


def recipe_id(name: str, size: int | None = None, seed: int = 0) -> str:
    """Identifies a data set across machines: equal for the same version, policies, physics, name, size and seed."""
    name, size, seed = _checked(name, size, seed)
    recipe = [SUITE_VERSION, PHYSICS, behaviour.file_hash(), name, size, seed]
    return hashlib.sha256(json.dumps(recipe).encode()).hexdigest()[:12]


def make(name: str, size: int | None = None, seed: int = 0, progress: Progress | None = None) -> Dataset:
    """The data set of that name: from the cache, or made now. `progress` is told rows done and rows wanted."""
    name, size, seed = _checked(name, size, seed)
    path = _cached(name, size, seed)
    return kept_or_made(
        path,
        restore=lambda: _restored(path, name),
        create=lambda progress: generate(name, size, seed, progress),
        record=lambda dataset: record_of(dataset, size, seed),
        progress=progress,
    )


def card(name: str, size: int | None = None, seed: int = 0) -> dict[str, Any]:
    """Transitions, episodes, mean and max score, coverage: measured when the set was made here or for the release."""
    name, size, seed = _checked(name, size, seed)
    record = _record(_cached(name, size, seed))
    if record is None:
        shipped = _read_json(SHIPPED_CARDS) or {}
        record = shipped.get(name)
        if record is None or record.get("recipe_id") != recipe_id(name, size, seed):
            raise UniqError(f"{name} with {size} transitions and seed {seed} has not been made yet; make it first.")
    return dict(record["card"])


def card_of(dataset: Dataset) -> dict[str, Any]:
    """The card of data at hand, for a simulated task."""
    if dataset.task not in TASKS:
        raise UniqError(f"A card needs a task of the suite, one of {', '.join(TASKS)}, not {dataset.task!r}.")
    scores = np.asarray(score(dataset.task, dataset.episode_returns))
    return {
        "transitions": dataset.size,
        "episodes": dataset.episodes,
        "mean_score": round(float(scores.mean()), 2),
        "max_score": round(float(scores.max()), 2),
        "coverage": round(_coverage(dataset, dataset.task), 4),
    }


def generate(name: str, size: int, seed: int, progress: Progress | None = None, threads: int | None = None) -> Dataset:
    """Make the data, whatever the cache holds. The number of threads changes the time alone.

    Policies play side by side: each has a stream of random numbers of its own, and what few environments it has would
    not keep all cores busy.
    """
    task, kind = _parsed(name)
    policies = behaviour.load()
    if task not in policies:
        raise UniqError(f"The installed behaviour policies do not know {task}; train and choose them for all tasks.")
    identity = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")
    planned = segments(policies[task], kind, size)
    cores = threads or usable_cores()
    workers = min(len(planned), cores)
    filled = [0] * len(planned)
    given_up = Event()

    def play(number: int) -> Columns:
        def tick(rows: int) -> None:
            if given_up.is_set():
                raise CancelledError
            filled[number] = rows

        policy, rows = planned[number]
        stream = (SUITE_VERSION, seed, identity, number)
        return collect(task, policies[task].policies[policy], rows, stream, tick, cores // workers)

    with ThreadPoolExecutor(workers) as pool:
        playing = [pool.submit(play, number) for number in range(len(planned))]
        try:
            waiting = set(playing)
            while waiting:
                done, waiting = wait(waiting, TICK, FIRST_EXCEPTION)
                for future in done:
                    future.result()  # raises what failed in it
                if progress is not None:
                    progress(sum(filled), size)
        finally:
            given_up.set()  # when one failed, or Ctrl-C came, the others need not play on
    parts = [future.result() for future in playing]
    columns = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    infos = {"action_log_prob": columns.pop("action_log_prob")}
    return Dataset(name=name, task=task, infos=infos, **columns)


def segments(known: Behaviour, kind: str, size: int) -> Segments:
    """Which policies a set is made of, and how much each contributes."""
    if kind == "random":
        return [(0, size)]
    if kind == "medium":
        return [(known.medium, size)]
    if kind == "expert":
        return [(known.expert, size)]
    if kind == "medium-expert":
        return [(known.medium, size - size // 2), (known.expert, size // 2)]
    # A replay buffer holds what was played between snapshots: each stands for the steps that led to it.
    last = known.medium if kind == "medium-replay" else len(known.steps) - 1
    reached = np.array(known.steps[: last + 1]) / known.steps[last]
    bounds = np.concatenate([[0], np.rint(reached * size).astype(np.int64)])
    return [(policy, int(rows)) for policy, rows in enumerate(np.diff(bounds)) if rows]


def cache_folder() -> Path:
    """`UNIQ_RL_DATA`, or the user's cache."""
    given = os.environ.get("UNIQ_RL_DATA")
    if given:
        return Path(given).expanduser() / "suite"
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "uniq-rl" / "suite"


def _parsed(name: str) -> tuple[str, str]:
    task, _, kind = name.removeprefix(PREFIX).partition("-")
    if not name.startswith(PREFIX) or task not in TASKS or kind not in KINDS:
        raise UniqError(
            f"There is no built-in data set {name!r}; the names are {PREFIX}TASK-KIND with a task of "
            f"{', '.join(TASKS)} and a kind of {', '.join(KINDS)}."
        )
    return task, kind


def _checked(name: str, size: int | None, seed: int) -> tuple[str, int, int]:
    wanted = default_size(name) if size is None else size
    if not isinstance(wanted, int) or wanted < MIN_SIZE:
        raise UniqError(f"A built-in data set needs a whole number of at least {MIN_SIZE} transitions, not {wanted!r}.")
    if not isinstance(seed, int) or seed < 0:
        raise UniqError(f"The seed of a built-in data set is a whole number from 0 on, not {seed!r}.")
    return name, wanted, seed


def _cached(name: str, size: int, seed: int) -> Path:
    return cache_folder() / f"{name.removeprefix(PREFIX)}-{size}-{seed}-{recipe_id(name, size, seed)}.npz"


def kept_or_made(
    path: Path,
    restore: Callable[[], Dataset | None],
    create: Callable[[Progress], Dataset],
    record: Callable[[Dataset], dict[str, Any]],
    progress: Progress | None = None,
) -> Dataset:
    """What the cache has at `path`; otherwise made and kept there, by one maker at a time, for whom others wait."""
    dataset = restore()
    if dataset is None:
        with _only_maker(path, progress or (lambda done, total: None)) as told:
            dataset = restore()  # by now another maker may be done
            if dataset is None:
                dataset = create(told)
                keep(dataset, path, record(dataset))
    return dataset


@contextlib.contextmanager
def _only_maker(path: Path, progress: Progress) -> Iterator[Progress]:
    """Wait for whoever makes `path` now, and tell how far that is; then it is ours. A lock ends with its process."""
    lock = path.with_name(f".{path.stem}.lock")
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        while not _locked(file):
            if len(told := os.pread(file, 64, 0).split()) == 2:
                progress(int(told[0]), int(told[1]))
            time.sleep(TICK)
        os.ftruncate(file, 0)  # what one who fell had told

        def tell(done: int, total: int) -> None:
            with contextlib.suppress(OSError):  # a full disk is heard of when the data are written
                os.pwrite(file, f"{done:>20} {total:>20}".encode(), 0)
            progress(done, total)

        yield tell
        lock.unlink(missing_ok=True)
    finally:
        os.close(file)


def _locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def keep(dataset: Dataset, path: Path, record: dict[str, Any]) -> None:
    """Data and what is known of them, under their final names only when complete."""
    temporary = path.with_name(f".{path.stem}.{uuid.uuid4().hex}.tmp")
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            save_npz(dataset, temporary)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    write_atomically(path.with_suffix(".json"), json.dumps(record, indent=1).encode())


def record_of(dataset: Dataset, size: int, seed: int) -> dict[str, Any]:
    """What is kept beside the data: the recipe, the hash of the content, the card."""
    return {
        "name": dataset.name,
        "size": size,
        "seed": seed,
        "suite_version": SUITE_VERSION,
        "physics": PHYSICS,
        "recipe_id": recipe_id(dataset.name, size, seed),
        "fingerprint": dataset.fingerprint,
        "card": card_of(dataset),
    }


def _restored(path: Path, name: str) -> Dataset | None:
    """The cached data, unless they are absent or damaged: those are made again."""
    record = _record(path)
    if record is None:
        return None
    try:
        dataset = load_npz(path, name=name, task=_parsed(name)[0])
    except UniqError:
        return None
    return dataset if dataset.fingerprint == record["fingerprint"] else None


def _record(path: Path) -> dict[str, Any] | None:
    record = _read_json(path.with_suffix(".json"))
    return record if path.is_file() and record and {"fingerprint", "card"} <= set(record) else None


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def _coverage(dataset: Dataset, task: str) -> float:
    """Share of the cells with at least 10 rows, of a grid over torso pitch and forward speed that all sets share."""
    (pitch, *pitch_range), (speed, *speed_range) = _GRID_AXES[task]
    counts, _, _ = np.histogram2d(
        dataset.obs[:, pitch], dataset.obs[:, speed], bins=_GRID, range=[pitch_range, speed_range]
    )
    return float((counts >= _GRID_ROWS).mean())
