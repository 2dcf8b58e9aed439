"""The training loop: chunks of updates on the device, and between them calibration, records, evaluation, checkpoints.

The device does not wait for the host: what is to be written down of a chunk is read when the next one is under way.
At an evaluation step the order is: write down what is open, collect the evaluation before, write the checkpoint, submit
the new evaluation. So the only evaluation that can be missing from a checkpoint is the one at its own step, whose
policies the checkpoint holds: a resumed run submits it again. A checkpoint is written on a thread of its own, after the
records it counts on.
"""

import contextlib
import math
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from uniq_rl.algorithms import Algorithm
from uniq_rl.data import Dataset
from uniq_rl.errors import UniqError
from uniq_rl.physics.locomotion import TASKS, resolve_physics
from uniq_rl.policy import Policy, algorithm_from, config_of
from uniq_rl.storage import disk_errors, only_process_in
from uniq_rl.training import checkpoint
from uniq_rl.training.cohort import Cohort, Measured, Progress, Run
from uniq_rl.training.evaluation import Evaluation, Evaluator
from uniq_rl.training.records import Lines, commit, hardware, read_json, read_lines, versions, write_json

FORMAT = "run-1"
CHECKPOINT_SECONDS = 60.0
CHUNK = {"cpu": 200}
"""Most updates in one compiled call, by backend: short enough for progress and Ctrl-C, long enough to hide the call."""
DEFAULT_CHUNK = 1000

Origin = dict[str, Any] | None
"""Where data came from, as JSON can hold it; None for arrays that never were a file."""


@dataclass(frozen=True)
class Plan:
    """What to do when, in updates."""

    steps: int
    eval_every: int
    eval_episodes: int = 10
    log_every: int = 1000
    physics: str = "d4rl"
    stream: bool | None = None
    """Keep the data on the host and send batches ahead; None: only when the device is too small for them."""

    def __post_init__(self) -> None:
        for name in ("steps", "eval_every", "eval_episodes", "log_every"):
            if getattr(self, name) < 1:
                raise UniqError(f"{name} is {getattr(self, name)}, but it must be at least 1.")
        resolve_physics(self.physics)

    def evaluates_at(self, step: int) -> bool:
        return step > 0 and (step % self.eval_every == 0 or step == self.steps)

    def logs_at(self, step: int) -> bool:
        return step % self.log_every == 0 or step == self.steps

    def boundaries(self, interval: int | None, limit: int) -> list[int]:
        """Steps at which a compiled call ends; the same for every session of a run, wherever it was interrupted."""
        intervals = [every for every in (self.eval_every, self.log_every, interval) if every and every <= self.steps]
        common = math.gcd(*intervals) if intervals else self.steps
        chunk = next(size for size in range(min(limit, common), 0, -1) if common % size == 0)
        if chunk >= min(limit, self.steps) // 10:  # one length of chunk, one compilation
            intervals = []
        else:
            chunk = limit
        ends = {step for every in (chunk, *intervals) for step in range(every, self.steps + 1, every)}
        return sorted(ends | {self.steps})


class Monitor:
    """What a caller may want to know while training goes on; the base class ignores it all."""

    def started(self, training: "Training", step: int) -> None: ...

    def advanced(self, step: int) -> None: ...

    def evaluated(self, evaluation: Evaluation) -> None: ...

    def noted(self, sentence: str) -> None: ...

    def stop_requested(self) -> bool:
        return False


class Sink(Protocol):
    def append(self, line: dict[str, Any]) -> None: ...

    def sync(self) -> int: ...

    def close(self) -> None: ...


class _Memory:
    """Lines of a training that writes no files."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def append(self, line: dict[str, Any]) -> None:
        self.lines.append(line)

    def sync(self) -> int:
        return 0

    def close(self) -> None: ...


@dataclass(frozen=True)
class Result:
    """What came out: a policy and a last score for every run that did not diverge."""

    policies: dict[Any, Policy]
    scores: dict[Any, float]
    """Last D4RL score by seed; NaN for a diverged run; empty without a simulator."""
    records: list[dict[str, Any]] = field(repr=False)
    episodes: list[dict[str, Any]] = field(repr=False)
    diverged: tuple[Any, ...] = ()
    finished: bool = True
    out: Path | None = None


@contextlib.contextmanager
def enough_memory(folder: Path | None = None) -> Iterator[None]:
    """One sentence when the device has too little memory; a folder with nothing in it to resume is then not kept."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        reason = str(error).partition("\n")[0]
        if "RESOURCE_EXHAUSTED" not in reason and "out of memory" not in reason.lower():
            raise
        if folder and checkpoint.position(folder) is None:
            shutil.rmtree(folder, ignore_errors=True)
        raise UniqError(
            f"The device has too little memory for this training ({reason.rstrip('.')}); train fewer runs together, or "
            "with a smaller batch or smaller networks."
        ) from None


class Training:
    """A cohort on its way through a plan, with or without a folder."""

    def __init__(
        self, runs: Sequence[Run], plan: Plan, folder: Path | None = None, origins: Sequence[Origin] = ()
    ) -> None:
        self.plan = replace(plan, physics=resolve_physics(plan.physics))
        self.folder = folder
        self.origins = list(origins) or [None] * len(runs)
        self.cohort = Cohort([replace(run, algorithm=run.algorithm.budgeted(plan.steps)) for run in runs], plan.stream)
        tasks = [run.dataset.task for run in runs]
        self.evaluator: Evaluator | None = None
        if all(task in TASKS for task in tasks):
            self.evaluator = Evaluator([str(task) for task in tasks], self.plan.physics, plan.eval_episodes)
            self.evaluator.check(self.cohort.spec)
        self.chunk = CHUNK.get(jax.default_backend(), DEFAULT_CHUNK)

    def notes(self) -> list[str]:
        """What a user should know before it starts."""
        notes = list(dict.fromkeys(f"Note: {fitted.note}" for fitted in self.cohort.fitted if fitted.note))
        if self.evaluator is None:
            tasks = sorted({str(run.dataset.task) for run in self.cohort.runs})
            known = ", ".join(TASKS)
            notes.append(
                f"No simulator for task {', '.join(tasks)} (there is one for {known}): training without scores."
            )
        if self.cohort.interval is not None and not all(len(folds.heldout) for folds in self.cohort.folds):
            notes.append("No held-out fold (it needs 40 episodes): coverage on unseen episodes is not measured.")
        return notes

    def description(self) -> dict[str, Any]:
        """`run.json`, all that another machine needs to repeat this."""
        cohort = self.cohort
        return {
            "format": FORMAT,
            "algorithm": cohort.runs[0].algorithm.name,
            "plan": asdict(self.plan),
            "runs": [
                {
                    "label": run.label,
                    "seed": run.seed,
                    "config": config_of(run.algorithm),
                    "data": {
                        "name": run.dataset.name,
                        "origin": origin,
                        "task": run.dataset.task,
                        "fingerprint": run.dataset.fingerprint,
                        "transitions": run.dataset.size,
                        "episodes": run.dataset.episodes,
                    },
                    "preprocessing": fitted.to_json(),
                    "folds": {name: len(rows) for name, rows in asdict(folds).items()},
                }
                for run, origin, fitted, folds in zip(
                    cohort.runs, self.origins, cohort.fitted, cohort.folds, strict=True
                )
            ],
            "versions": versions(),
            "hardware": hardware(),
            "commit": commit(),
            "sessions": [],
        }

    def run(self, monitor: Monitor) -> Result:
        """Go on from wherever the folder stands, to the end or until the monitor asks to stop."""
        with only_process_in(self.folder), enough_memory(self.folder):
            return self._run(monitor)

    def _run(self, monitor: Monitor) -> Result:
        position = checkpoint.position(self.folder) if self.folder else None
        progress = checkpoint.load(self.folder, self.cohort) if self.folder and position else self.cohort.start()
        with self._sinks(position) as (records, episodes):
            session = _Session(self, progress, records, episodes, monitor)
            measured = self.cohort.measure(progress) if position is None else None
            if measured:
                session.record_calibration(0, measured)
            monitor.started(self, session.step)
            if not (position and position.finished):
                session.run()
            return session.result()

    @contextlib.contextmanager
    def _sinks(self, position: checkpoint.Position | None) -> Iterator[tuple[Sink, Sink]]:
        if self.folder is None:
            yield _Memory(), _Memory()
            return
        offsets = (position.records, position.episodes) if position else (0, 0)
        records = Lines(self.folder / "records.jsonl", offsets[0])
        episodes = Lines(self.folder / "episodes.jsonl", offsets[1])
        try:
            yield records, episodes
        finally:
            with contextlib.suppress(
                UniqError
            ):  # a full disk was reported already, and the checkpoint does not count on it
                records.close()
            with contextlib.suppress(UniqError):
                episodes.close()
            if self.evaluator:
                self.evaluator.close()


class _Reading(NamedTuple):
    """What is to be written down of one step; its arrays may still be on their way from the device."""

    step: int
    diverged: Array
    metrics: tuple[Array, Array] | None
    """Sums, and over how many updates."""
    calibration: Measured | None


class _Session:
    """One sitting of a training: from the state it finds to the end, or to a clean stop."""

    def __init__(self, training: Training, progress: Progress, records: Sink, episodes: Sink, monitor: Monitor) -> None:
        self.training = training
        self.cohort, self.plan, self.evaluator = training.cohort, training.plan, training.evaluator
        self.progress, self.records, self.episodes, self.monitor = progress, records, episodes, monitor
        self.step = int(progress.step)
        self.first_step = self.step
        self.alive = ~np.asarray(progress.diverged)
        self.unread: deque[_Reading] = deque()
        self.pending: Future[Evaluation] | None = None
        self.writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self.written: Future[None] | None = None
        self.saved_at = self.started_at = time.monotonic()

    def run(self) -> None:
        with self.writer:
            self._run()

    def _run(self) -> None:
        if self.plan.evaluates_at(self.step):
            self.submit_evaluation()
        for end in self.plan.boundaries(self.cohort.interval, self.training.chunk):
            if end <= self.step:
                continue
            self.advance_to(end)
            if self.monitor.stop_requested() and self.step < self.plan.steps:
                if not self.plan.evaluates_at(self.step):  # else it is saved already, before its own evaluation
                    self.save()
                break
        self.write_down()
        self.collect_evaluation()
        if self.step == self.plan.steps:
            self.write_policies()
            self.save(finished=True)
        self.await_checkpoint()
        self.close_session()

    def advance_to(self, end: int) -> None:
        self.progress = self.cohort.advance(self.progress, end - self.step, begin=self.step)
        self.step = end
        calibrates = self.cohort.interval is not None and end % self.cohort.interval == 0
        if calibrates:
            self.progress = self.cohort.calibrate(self.progress)
        self.read(calibrates or self.plan.evaluates_at(end))
        self.write_down(but=1)
        due = time.monotonic() - self.saved_at >= CHECKPOINT_SECONDS
        if self.plan.evaluates_at(end) or due:
            self.save()
        if self.plan.evaluates_at(end):
            self.submit_evaluation()

    def read(self, calibration: bool) -> None:
        """Take what is to be written down out of the way of the updates to come."""
        metrics = None
        if self.plan.logs_at(self.step):
            metrics = self.progress.metrics, self.progress.updates
            self.progress = self.progress._replace(
                metrics=jnp.zeros_like(metrics[0]), updates=jnp.zeros_like(metrics[1])
            )
        measured = self.cohort.measure(self.progress) if calibration else None
        self.unread.append(_Reading(self.step, jnp.copy(self.progress.diverged), metrics, measured))

    def write_down(self, but: int = 0) -> None:
        """What was read, in order, except the last ones: they are not done yet."""
        while len(self.unread) > but:
            reading = self.unread.popleft()
            self.watch_for_divergence(reading)
            if reading.metrics:
                self.record_metrics(reading.step, *map(np.asarray, reading.metrics))
            if reading.calibration:
                self.record_calibration(reading.step, reading.calibration)
            self.monitor.advanced(reading.step)
            if self.pending and self.pending.done():
                self.collect_evaluation()

    def watch_for_divergence(self, reading: _Reading) -> None:
        alive = ~np.asarray(reading.diverged)
        for index in np.flatnonzero(self.alive & ~alive):
            label = self.cohort.runs[index].label
            self.records.append({"kind": "diverged", "step": reading.step, "run": label})
            self.monitor.noted(
                f"Run {label} diverged by step {reading.step}: it is given up and has no score; the others go on."
            )
        self.alive = alive

    def record_metrics(self, step: int, sums: np.ndarray, updates: np.ndarray) -> None:
        if not updates:  # a delayed actor rested all the while: nothing to report yet
            return
        for run, row, alive in zip(self.cohort.runs, sums / int(updates), self.alive, strict=True):
            if alive:
                values = {name: number(value) for name, value in zip(self.cohort.metric_names, row, strict=True)}
                self.records.append({"kind": "metrics", "step": step, "run": run.label, **values})

    def record_calibration(self, step: int, measured: Measured) -> None:
        diagnoses = self.cohort.described(measured, distributions=step == 0 or self.plan.evaluates_at(step))
        for run, diagnosis, alive in zip(self.cohort.runs, diagnoses, self.alive, strict=True):
            if alive:
                self.records.append({"kind": "calibration", "step": step, "run": run.label, **diagnosis})

    def submit_evaluation(self) -> None:
        if self.evaluator:
            self.pending = self.evaluator.submit(self.cohort.policies(self.progress), self.alive, self.step)

    def collect_evaluation(self) -> None:
        if self.pending is None:
            return
        evaluation = self.pending.result()
        self.pending = None
        for i, run in enumerate(self.cohort.runs):
            line = {"step": evaluation.step, "run": run.label, "score": number(evaluation.scores[i])}
            if np.isfinite(evaluation.scores[i]):
                line |= {"returns": evaluation.returns[i].tolist(), "lengths": evaluation.lengths[i].tolist()}
            self.episodes.append(line)
        self.monitor.evaluated(evaluation)

    def save(self, finished: bool = False) -> None:
        self.write_down()
        self.collect_evaluation()
        self.saved_at = time.monotonic()
        if self.training.folder:
            self.await_checkpoint()
            position = checkpoint.Position(self.step, self.records.sync(), self.episodes.sync(), finished)
            copy = jax.tree.map(np.array, self.progress)  # the next update consumes the original
            self.written = self.writer.submit(checkpoint.save, self.training.folder, copy, position)

    def await_checkpoint(self) -> None:
        if self.written is not None:
            self.written.result()
            self.written = None

    def policies(self) -> dict[str, Policy]:
        stack = self.cohort.policies(self.progress)
        return {run.label: self.cohort.policy(stack, i) for i, run in enumerate(self.cohort.runs) if self.alive[i]}

    def write_policies(self) -> None:
        if self.training.folder:
            for label, policy in self.policies().items():
                policy.save(self.training.folder / f"policy-{label}.safetensors")

    def close_session(self) -> None:
        if not self.training.folder:
            return
        seconds = time.monotonic() - self.started_at
        updates = (self.step - self.first_step) * len(self.cohort.runs)
        path = self.training.folder / "run.json"
        description = read_json(path)
        description["sessions"].append(
            {
                "from_step": self.first_step,
                "to_step": self.step,
                "seconds": round(seconds, 2),
                "run_updates_per_second": round(updates / seconds, 1),
                "versions": versions(),
                "hardware": hardware(),
            }
        )
        write_json(path, description)

    def result(self) -> Result:
        if self.training.folder:
            self.records.sync()
            self.episodes.sync()
            records = read_lines(self.training.folder / "records.jsonl")
            episodes = read_lines(self.training.folder / "episodes.jsonl")
        else:
            records, episodes = self.records.lines, self.episodes.lines  # type: ignore[attr-defined]
        seeds = {run.label: run.seed for run in self.cohort.runs}
        by = seeds if len(set(seeds.values())) == len(seeds) else {label: label for label in seeds}
        last = {line["run"]: line["score"] for line in episodes}
        return Result(
            policies={by[label]: policy for label, policy in self.policies().items()},
            scores={by[label]: math.nan if score is None else score for label, score in last.items()},
            records=records,
            episodes=episodes,
            diverged=tuple(by[run.label] for run, alive in zip(self.cohort.runs, self.alive, strict=True) if not alive),
            finished=self.step == self.plan.steps,
            out=self.training.folder,
        )


def number(value: Any) -> float | None:
    """A float JSON can hold."""
    return float(value) if np.isfinite(value) else None


def seed_runs(algorithm: Algorithm, dataset: Dataset, seeds: Sequence[int]) -> list[Run]:
    return [Run(algorithm, dataset, seed, str(seed)) for seed in seeds]


def begin(runs: Sequence[Run], plan: Plan, out: str | Path | None = None, origins: Sequence[Origin] = ()) -> Training:
    """A new training; `out` must not exist yet, or be empty. Nothing is written before everything was checked."""
    folder = Path(out) if out is not None else None
    if folder and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UniqError(f"{folder} exists already; resume it with --resume {folder}, or choose another --out.")
    with enough_memory():
        training = Training(runs, plan, folder, origins)
    if folder:
        created = [path for path in (folder, *folder.parents) if not path.exists()]
        try:
            with disk_errors(folder):
                folder.mkdir(parents=True, exist_ok=True)
            write_json(folder / "run.json", training.description())
        except UniqError:
            if created:
                shutil.rmtree(folder, ignore_errors=True)
            with contextlib.suppress(OSError):  # the parents made for it, unless someone moved in meanwhile
                for parent in created[1:]:
                    parent.rmdir()
            raise
    return training


def resume(out: str | Path, load: Callable[[Origin, str | None], Dataset]) -> Training:
    """The training of a folder, ready to go on; `load` brings back the data from where they came."""
    folder = Path(out)
    if not folder.is_dir():
        raise UniqError(f"There is no folder {folder} to resume.")
    description = read_json(folder / "run.json")
    if description.get("format") != FORMAT:
        raise UniqError(f"{folder}/run.json is not of a version this program resumes ('{FORMAT}').")
    try:
        plan = Plan(**description["plan"])
        datasets: dict[str, Dataset] = {}
        for data in (run["data"] for run in description["runs"]):
            if data["fingerprint"] not in datasets:
                datasets[data["fingerprint"]] = _unchanged(load(data["origin"], data["task"]), data, folder)
        runs = [
            Run(
                algorithm_from(description["algorithm"], run["config"]),
                datasets[run["data"]["fingerprint"]],
                run["seed"],
                run["label"],
            )
            for run in description["runs"]
        ]
        with enough_memory():
            return Training(runs, plan, folder, [run["data"]["origin"] for run in description["runs"]])
    except (KeyError, TypeError) as error:
        raise UniqError(f"{folder}/run.json is damaged ({error!r}).") from None


def _unchanged(dataset: Dataset, data: dict[str, Any], folder: Path) -> Dataset:
    if dataset.fingerprint != data["fingerprint"]:
        raise UniqError(f"{data['name']} is no longer the data that {folder} was trained on; bring the original back.")
    return dataset
