"""The library as functions: what the command line does, for programs."""

import dataclasses
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from uniq_rl import data as sources
from uniq_rl import suite
from uniq_rl.algorithms import BC, UNIQ, Algorithm
from uniq_rl.data import Dataset
from uniq_rl.errors import UniqError
from uniq_rl.evidence.figures import draw_run
from uniq_rl.physics.scores import REFERENCE
from uniq_rl.policy import Policy, load_policy
from uniq_rl.training import loop
from uniq_rl.training.cohort import Run
from uniq_rl.training.evaluation import Evaluation, Evaluator, stacked
from uniq_rl.training.loop import Monitor, Plan, Result, Training
from uniq_rl.training.records import read_json, read_lines

Data = sources.Source
FRESH = 2**40
"""The evaluation step whose seeds no training uses."""


def load_dataset(source: Data, task: str | None = None, *, size: int | None = None, **options: Any) -> Dataset:
    """Data from wherever they are: a file, a D4RL name, `minari:ID`, arrays, or the built-in `suite/hopper-medium`.

    The task is read from the name unless given. `size` is for the built-in sets alone; `columns`, `action_range`,
    `mirror` and `progress` are those of `uniq_rl.data.load_dataset`.
    """
    task = known_task(task)
    if isinstance(source, str) and source.startswith("suite/"):
        return suite.make(source, size=size, progress=options.get("progress"))
    if size is not None:
        raise UniqError(f"A size can be chosen for the built-in data sets (suite/...) only, not for {source}.")
    return sources.load_dataset(source, task=task, **options)


def origin_of(source: Data, **options: Any) -> loop.Origin:
    """How to load the data again, in another process."""
    if not isinstance(source, str | os.PathLike):
        return None
    place = os.path.abspath(source) if os.path.exists(source) else str(source)
    return {"source": place, **{name: value for name, value in options.items() if value is not None}}


def train(
    algorithm: Algorithm,
    data: Data,
    *,
    steps: int | None = None,
    seeds: Sequence[int] = (0,),
    out: str | Path | None = None,
    task: str | None = None,
    physics: str = "d4rl",
    eval_every: int | None = None,
    eval_episodes: int = 10,
    log_every: int = 1000,
    stream: bool | None = None,
    monitor: Monitor | None = None,
    **options: Any,
) -> Result:
    """Train one method on one data set with several seeds, all in one program.

    `data` is whatever `load_dataset` takes, and so are further options. With `out`, everything is written there and can
    be resumed; without, nothing is written. `steps` defaults to the method's published budget, `eval_every` to a
    twentieth of it; scores need a task with a simulator; `stream` keeps data on the host that are too large for the
    device.
    """
    steps = algorithm.published_steps if steps is None else steps
    every = max(1, steps // 20) if eval_every is None else eval_every
    plan = Plan(steps, every, eval_episodes, log_every, physics, stream)
    training = prepare(algorithm, data, plan, seeds=seeds, out=out, task=task, **options)
    return carry_out(training, monitor)


def prepare(
    algorithm: Algorithm,
    data: Data,
    plan: Plan,
    *,
    seeds: Sequence[int] = (0,),
    out: str | Path | None = None,
    task: str | None = None,
    progress: Any = None,
    **options: Any,
) -> Training:
    """Everything `train` does before the first update: load, check, create the folder."""
    dataset = load_dataset(data, task, progress=progress, **options)
    runs = loop.seed_runs(algorithm, dataset, seeds)
    return loop.begin(runs, plan, out, [origin_of(data, **options)] * len(runs))


@dataclass(frozen=True)
class Demo:
    """A training that shows the point within minutes on two cores: small data, small networks, three seeds.

    Half the data are an expert's, half are mediocre. Cloning imitates both; learning values tells them apart. Small
    networks learn at a higher rate; the faster average and the gentler weights fit a budget of minutes: at the
    published 0.005 and 3 the policy chases values that have not settled yet.
    """

    data: str = "suite/hopper-medium-expert"
    size: int = 100_000
    steps: int = 24_000
    seeds: tuple[int, ...] = (0, 1, 2)
    hidden: tuple[int, ...] = (64, 64)
    learning_rate: float = 1e-3
    ema: float = 0.02
    beta_pi: float = 0.3

    def prepare(self, out: Path, progress: Any = None) -> tuple[Training, Training]:
        """UNIQ, in a folder, and behaviour cloning with the same budget, which leaves nothing behind."""
        plan = Plan(self.steps, self.steps // 8)
        shared: dict[str, Any] = {"hidden": self.hidden, "learning_rate": self.learning_rate}
        uniq = UNIQ(**shared, ema=self.ema, beta_pi=self.beta_pi, recalibrate_every=1000)
        cloning = BC(**shared)
        chosen: dict[str, Any] = {"seeds": self.seeds, "size": self.size}
        return (
            prepare(uniq, self.data, plan, out=out, progress=progress, **chosen),
            prepare(cloning, self.data, dataclasses.replace(plan, eval_every=self.steps), **chosen),
        )


def known_task(task: str | None) -> str | None:
    """The task as it was given: a misspelt one would train, and only its scores would be missing."""
    if task is not None and task not in REFERENCE:
        raise UniqError(f"There is no task named '{task}'; the known ones are {', '.join(REFERENCE)}.")
    return task


def train_runs(
    runs: Sequence[Run], plan: Plan, out: str | Path | None = None, monitor: Monitor | None = None
) -> Result:
    """Train runs that may differ in seed, data and every hyper-parameter that is a number, as one program."""
    return carry_out(loop.begin(runs, plan, out), monitor)


def resume(out: str | Path, data: Data | None = None, monitor: Monitor | None = None) -> Result:
    """Go on where a folder stopped; `data` only when it was trained on arrays that never were a file."""
    return carry_out(resumed(out, data), monitor)


def resumed(out: str | Path, data: Data | None = None) -> Training:
    def load(origin: loop.Origin, task: str | None) -> Dataset:
        if data is not None:  # its task may be a name of the user's own
            return dataclasses.replace(load_dataset(data), task=task)
        if origin is None:
            raise UniqError(f"{out} was trained on arrays in memory; resume it from Python and pass the data again.")
        return load_dataset(origin["source"], task, **{name: origin[name] for name in origin if name != "source"})

    return loop.resume(out, load)


def carry_out(training: Training, monitor: Monitor | None = None) -> Result:
    result = training.run(monitor or Monitor())
    if result.out:
        draw_run(result.out)
    return result


def evaluate(
    folder: str | Path, *, episodes: int | None = None, repeat: bool = False, physics: str | None = None
) -> tuple[list[str], Evaluation]:
    """Labels and evaluation of every policy in a training folder.

    On episodes no training has seen, or, with `repeat`, on those of the run's last evaluation: its scores come out
    exactly.
    """
    folder = Path(folder)
    description = read_json(folder / "run.json")
    try:
        labels = [run["label"] for run in description["runs"]]
        tasks = [str(run["data"]["task"]) for run in description["runs"]]
        last_episodes, last_physics = description["plan"]["eval_episodes"], description["plan"]["physics"]
    except (KeyError, TypeError) as error:
        raise UniqError(f"{folder}/run.json is damaged ({error!r}).") from None
    paths = {label: folder / f"policy-{label}.safetensors" for label in labels}
    policies = {label: load_policy(path) for label, path in paths.items() if path.exists()}
    if not policies:
        raise UniqError(f"{folder} holds no policy; finish the training first, with --resume {folder}.")
    step = FRESH
    if repeat:
        lines = read_lines(folder / "episodes.jsonl")
        if not lines:
            raise UniqError(f"{folder} was never evaluated, so there is no evaluation to repeat.")
        step = max(line["step"] for line in lines)
        episodes = last_episodes
    evaluator = Evaluator(tasks, physics or last_physics, episodes or 10)
    try:
        # A run that diverged has no policy; any other keeps its place, so that the arithmetic is the training's own.
        spare: Policy = next(iter(policies.values()))
        evaluator.check(spare.spec)
        stack = jax.device_get(stacked([policies.get(label, spare) for label in labels]))
        alive = np.asarray([label in policies for label in labels])
        return labels, evaluator.evaluate(stack, alive, step)
    finally:
        evaluator.close()
