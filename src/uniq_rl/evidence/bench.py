"""Run what is missing of a grid: cohort after cohort, each in a work folder of its own, until every run has its file.

    results/runs/<recipe>.json          finished runs, for good
    results/.work/cohort-<id>/          a cohort on its way: its members and the training's own folder

A cohort's members are written down when it begins and stay what they were: if the result of one of them arrives from
another machine meanwhile, the cohort is trained to its end as it began, and only results that are not there are
written. So a resumed cohort is always the program it was. What is to be done next is decided anew before every cohort,
from the folders as they are, by one process at a time; a process that trains holds a lock on its cohort's folder.
"""

import contextlib
import fcntl
import hashlib
import itertools
import json
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import jax

from uniq_rl.data import Dataset
from uniq_rl.errors import UniqError
from uniq_rl.evidence.diagnosis import diagnose, rounded
from uniq_rl.evidence.grid import Job
from uniq_rl.evidence.results import RunResult, path_of, read_result, write_result
from uniq_rl.evidence.sets import set_of
from uniq_rl.physics.locomotion import load_model
from uniq_rl.policy import load_policy
from uniq_rl.storage import disk_errors, only_process_in
from uniq_rl.suite.datasets import Progress
from uniq_rl.training import loop
from uniq_rl.training.cohort import Run
from uniq_rl.training.loop import Monitor, Result, Training
from uniq_rl.training.records import read_json, read_lines, write_json

WORK = ".work"
MEMBERS, TRAINING, DONE = "cohort.json", "training", "done"
FORMAT = "cohort-1"
FOLDER = re.compile(r"cohort-[0-9a-f]{16}")
"""Only folders of this name are ever removed."""
LIMIT = 32

Loading = Callable[[str], AbstractContextManager[Progress]]
"""Shows how far the making of a data set is, by its name."""


@dataclass(frozen=True)
class Place:
    """Where results go, where work in progress lies, and where D4RL's files are."""

    results: Path
    work: Path
    limit: int = LIMIT
    """Most runs of a cohort."""
    d4rl: Path | None = None

    def __post_init__(self) -> None:
        if self.limit < 1:
            raise UniqError(f"A cohort needs at least 1 run, not {self.limit}.")

    def has(self, job: Job) -> bool:
        return path_of(self.results, job.recipe).exists()


@dataclass(frozen=True)
class Standing:
    """How far a grid is."""

    done: list[Job]
    missing: list[Job]
    lacking: dict[str, str]
    """Data sets that cannot be made here, and why."""

    @property
    def possible(self) -> list[Job]:
        return [job for job in self.missing if job.data.name not in self.lacking]


@dataclass
class Claim:
    """A cohort that this process, and no other, is to train."""

    folder: Path
    jobs: list[Job]
    left: int
    """Cohorts that will still be missing when this one is done."""

    @property
    def training(self) -> Path:
        return self.folder / TRAINING


@dataclass
class Busy:
    """Recipes that other processes train at the moment."""

    recipes: set[str] = field(default_factory=set)


def standing(place: Place, jobs: Sequence[Job]) -> Standing:
    done = [job for job in jobs if place.has(job)]
    missing = [job for job in jobs if not place.has(job)]
    reasons = {job.data.name: job.data.lacks(place.d4rl) for job in missing}
    return Standing(done, missing, {name: reason for name, reason in reasons.items() if reason})


def adopt(place: Place, jobs: Sequence[Job]) -> int:
    """Enter finished runs into the rows of this grid as well; how many had been trained under other names alone."""
    changed = 0
    for job in jobs:
        if place.has(job):
            result = read_result(path_of(place.results, job.recipe))
            new = [name for name in job.variants if name not in (result.variant, *result.also)]
            if new:
                write_result(place.results, replace(result, also=[*result.also, *new]))
                changed += 1
    return changed


# Cohorts


def cohorts(jobs: Sequence[Job], limit: int) -> list[list[Job]]:
    """Jobs that can share a program, side by side, in the order of the grid and in parts of nearly equal size."""
    groups: dict[Any, list[Job]] = {}
    for job in jobs:
        key = (job.recipe.method, jax.tree.structure(job.algorithm), _widths(job.data.task), job.plan)
        groups.setdefault(key, []).append(job)
    parts = []
    for group in groups.values():
        count = -(-len(group) // limit)
        bounds = [len(group) * i // count for i in range(count + 1)]
        parts += [group[low:high] for low, high in itertools.pairwise(bounds)]
    return parts


@cache
def _widths(task: str) -> tuple[int, int]:
    model = load_model(task)
    return int(model.nq - 1 + model.nv), int(model.nu)


def cohort_id(jobs: Sequence[Job]) -> str:
    return hashlib.sha256(" ".join(job.recipe.id for job in jobs).encode()).hexdigest()[:16]


# Which one next


@contextlib.contextmanager
def claimed(place: Place, jobs: Sequence[Job], busy: Busy | None = None) -> Iterator[Claim | None]:
    """The next cohort to train, ours until the block ends; None when nothing is left for this process."""
    busy = busy if busy is not None else Busy()
    with disk_errors(place.work):
        place.work.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as ours:
        with _turn(place.work):
            claim = _begun(place, jobs, busy, ours) or _fresh(place, jobs, busy, ours)
        yield claim


@contextlib.contextmanager
def _turn(work: Path) -> Iterator[None]:
    """One process at a time decides what to do."""
    descriptor = os.open(work, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _begun(place: Place, jobs: Sequence[Job], busy: Busy, ours: contextlib.ExitStack) -> Claim | None:
    """An interrupted cohort with something that is missing; folders whose work is done are cleared away."""
    wanted = {job.recipe.id for job in standing(place, jobs).possible}
    busy.recipes.clear()
    found: Claim | None = None
    waiting: set[str] = set()
    for folder in sorted(path for path in place.work.iterdir() if FOLDER.fullmatch(path.name)):
        members = _members(folder)
        with contextlib.ExitStack() as lock:
            try:
                lock.enter_context(only_process_in(folder))
            except (UniqError, FileNotFoundError):  # another process trains there, or has just finished
                busy.recipes |= {job.recipe.id for job in members or [] if not place.has(job)}
                continue
            missing = {job.recipe.id for job in members or [] if not place.has(job)}
            if not missing:
                shutil.rmtree(folder, ignore_errors=True)
            elif found is None and missing & wanted:
                found = Claim(folder, members or [], 0)
                ours.push(lock.pop_all())
            elif found is not None and missing & wanted:
                found.left += 1
                waiting |= missing
    if found is not None:
        taken = busy.recipes | waiting | {job.recipe.id for job in found.jobs}
        found.left += len(cohorts(_open(place, jobs, taken), place.limit))
    return found


def _fresh(place: Place, jobs: Sequence[Job], busy: Busy, ours: contextlib.ExitStack) -> Claim | None:
    """A new cohort of runs that nobody has, and nobody trains."""
    planned = cohorts(_open(place, jobs, busy.recipes), place.limit)
    if not planned:
        return None
    folder = place.work / f"cohort-{cohort_id(planned[0])}"
    with disk_errors(folder):
        folder.mkdir()
    ours.enter_context(only_process_in(folder))
    write_json(folder / MEMBERS, {"format": FORMAT, "jobs": [job.to_json() for job in planned[0]]})
    return Claim(folder, planned[0], len(planned) - 1)


def _open(place: Place, jobs: Sequence[Job], taken: set[str]) -> list[Job]:
    return [job for job in standing(place, jobs).possible if job.recipe.id not in taken]


def _members(folder: Path) -> list[Job] | None:
    """The runs of a cohort; None for a folder that was left before they were written down."""
    if not (folder / MEMBERS).exists():
        return None
    content = read_json(folder / MEMBERS)
    if content.get("format") != FORMAT:
        raise UniqError(f"{folder} is not of a version this program resumes ('{FORMAT}'); remove it to begin again.")
    try:
        return [Job.from_json(job) for job in content["jobs"]]
    except (KeyError, TypeError) as error:
        raise UniqError(f"{folder / MEMBERS} is damaged ({error!r}); remove {folder} to begin again.") from None


# Training one


@contextlib.contextmanager
def making_ahead(place: Place, jobs: Sequence[Job]) -> Iterator[None]:
    """Meanwhile make, one after the other, the data sets of runs that are missing: a device leaves processors idle."""
    enough = threading.Event()

    def tick(done: int, total: int) -> None:
        if enough.is_set():
            raise CancelledError

    def make() -> None:
        for data in dict.fromkeys(job.data for job in standing(place, jobs).possible):
            if not enough.is_set():
                with contextlib.suppress(UniqError, OSError, CancelledError):  # told to whoever needs the set
                    data.load(place.d4rl, tick)

    maker = threading.Thread(target=make, name="data", daemon=True)
    maker.start()
    try:
        yield
    finally:
        enough.set()
        maker.join()


def prepare(claim: Claim, place: Place, loading: Loading) -> Training:
    """The training of a cohort, new or where it stopped; its data are made when they are not in the cache."""
    made: dict[str, Dataset] = {}

    def load(identity: dict[str, Any]) -> Dataset:
        key = json.dumps(identity, sort_keys=True)
        if key not in made:
            with loading(identity["name"]) as progress:
                made[key] = set_of(identity).load(place.d4rl, progress)
        return made[key]

    if (claim.training / "run.json").exists():
        return loop.resume(claim.training, lambda origin, _: load(origin or {}))
    shutil.rmtree(claim.training, ignore_errors=True)  # left before it had begun
    try:
        runs = [Run(job.algorithm, load(job.recipe.data), job.recipe.seed, job.label) for job in claim.jobs]
        return loop.begin(runs, claim.jobs[0].plan, claim.training, [job.recipe.data for job in claim.jobs])
    except UniqError:  # what cannot begin leaves nothing behind
        shutil.rmtree(claim.folder, ignore_errors=True)
        raise


def run(claim: Claim, training: Training, monitor: Monitor) -> Result:
    """Train it. A cohort that the device is too small for leaves nothing behind, so that smaller ones can follow."""
    try:
        return training.run(monitor)
    except UniqError:
        if not claim.training.exists():
            shutil.rmtree(claim.folder, ignore_errors=True)
        raise


def finish(claim: Claim, place: Place, training: Training) -> int:
    """Write the result of every run that has none yet, then clear the work away; how many were written."""
    description = read_json(claim.training / "run.json")
    records = read_lines(claim.training / "records.jsonl")
    episodes = read_lines(claim.training / "episodes.jsonl")
    written = 0
    for index, job in enumerate(claim.jobs):
        if not place.has(job):
            write_result(place.results, result_of(job, index, training, description, records, episodes))
            written += 1
    with _turn(place.work):
        with disk_errors(claim.folder):  # without its training the folder cannot be taken for a half-trained cohort
            claim.training.rename(claim.folder / DONE)
        shutil.rmtree(claim.folder, ignore_errors=True)
    return written


def result_of(
    job: Job,
    index: int,
    training: Training,
    description: dict[str, Any],
    records: Sequence[dict[str, Any]],
    episodes: Sequence[dict[str, Any]],
) -> RunResult:
    """What is kept of one run of a finished training."""
    cohort, label, recipe = training.cohort, job.label, job.recipe
    own = [line for line in records if line["run"] == label]
    diverged = any(line["kind"] == "diverged" for line in own)
    calibrations = [line for line in own if line["kind"] == "calibration"]
    diagnosis: dict[str, Any] = {}
    if not diverged and cohort.algorithm.knows_uncertainty:
        policy = load_policy(training.folder / f"policy-{label}.safetensors")  # type: ignore[operator]
        diagnosis = diagnose(policy, cohort.runs[index].dataset, cohort.folds[index], cohort.fitted[index])
        last = [line for line in calibrations if "distributions" in line][-1]
        diagnosis["distributions"] = {"step": last["step"], **last["distributions"]}
    data = description["runs"][index]["data"]
    return RunResult(
        recipe=recipe,
        variant=job.variants[0],
        task=job.data.task,
        kind=job.data.kind,
        diverged=diverged,
        evaluations=[_evaluation(line) for line in episodes if line["run"] == label],
        calibration=[
            {"step": line["step"], **{key: rounded(line[key]) for key in ("q_hat", "coverage", "u_above_1")}}
            for line in calibrations
            if line["step"] == 0 or training.plan.evaluates_at(line["step"])
        ],
        diagnosis=diagnosis,
        data={key: data[key] for key in ("fingerprint", "transitions", "episodes")},
        cost=_cost(description, recipe.steps, len(cohort.runs)),
        environment={key: description[key] for key in ("versions", "hardware", "commit")},
        also=list(job.variants[1:]),
    )


def _evaluation(line: dict[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {"step": line["step"], "score": line["score"]}
    if "returns" in line:
        kept |= {"returns": [round(value, 4) for value in line["returns"]], "lengths": line["lengths"]}
    return kept


def _cost(description: dict[str, Any], steps: int, runs: int) -> dict[str, Any]:
    """Of the whole training, at the rate of the sessions that came to an end: a killed one cannot tell its time."""
    sessions = description["sessions"]
    updates = runs * sum(session["to_step"] - session["from_step"] for session in sessions)
    seconds = sum(session["seconds"] for session in sessions)
    rate = updates / seconds if updates and seconds else None
    return {
        "seconds": round(runs * steps / rate, 1) if rate else None,
        "runs": runs,
        "run_updates_per_second": round(rate, 1) if rate else None,
    }
