"""`uniq-rl`: parse, call, print. No logic."""

import contextlib
import dataclasses
import datetime
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, Literal

import jax
import numpy as np
import tyro
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from uniq_rl import __version__, api, suite
from uniq_rl.algorithms import ALGORITHMS, Algorithm, algorithm_named
from uniq_rl.data import Dataset, save_npz
from uniq_rl.data.inspect import inspect_dataset
from uniq_rl.data.names import kind_of, task_of
from uniq_rl.errors import UniqError
from uniq_rl.evidence import bench as benching
from uniq_rl.evidence.dataset_figure import draw_dataset
from uniq_rl.evidence.grid import Grid, read_grid, together
from uniq_rl.evidence.page import write_report
from uniq_rl.evidence.quote import write_quotes
from uniq_rl.evidence.sets import D4RL_VARIABLE
from uniq_rl.evidence.wording import count
from uniq_rl.physics.scores import REFERENCE, score
from uniq_rl.suite import regenerate as regeneration
from uniq_rl.training.evaluation import Evaluation
from uniq_rl.training.loop import Monitor, Plan, Result, Training

OVERVIEW = f"""uniq-rl {__version__}: offline reinforcement learning that knows where it is uncertain

  uniq-rl train DATA [--algo NAME] [--steps N] [--seeds 0 1 2] [--out DIR]
  uniq-rl train --resume DIR
  uniq-rl evaluate DIR [--episodes 10]
  uniq-rl bench GRID [--results DIR] [--only VARIANT ...] [--minutes N]
  uniq-rl report DIR [--out report.html]
  uniq-rl data list | make NAME | inspect DATA | verify FILE | regenerate FILE

Methods: {", ".join(ALGORITHMS)}.
DATA is a D4RL file or name, a built-in set (suite/hopper-medium), or your own
.npz, .csv or .parquet file. Each command takes --help."""

HELP = ("-h", "--help", "help")
DATA_OVERVIEW = """uniq-rl data: what can be done with data sets

  uniq-rl data list                                the built-in sets
  uniq-rl data make suite/hopper-medium            make one and keep it
  uniq-rl data inspect DATA [--picture PNG]        what is in a data set
  uniq-rl data verify FILE                         replay a D4RL file's states
  uniq-rl data regenerate FILE --size N --out NPZ  play a D4RL policy again

Each takes --help."""

out = Console()
err = Console(stderr=True)


def say(sentence: str, style: str | None = None, console: Console = out) -> None:
    """A sentence as it is: brackets in a path are no markup, and a command in it can be copied whole."""
    console.print(sentence, style=style, markup=False, highlight=False, soft_wrap=True)


@dataclasses.dataclass(frozen=True)
class Source:
    """Which data."""

    data: Annotated[str | None, tyro.conf.Positional] = None
    """D4RL file (.hdf5) or name, arrays (.npz), a table (.csv, .parquet), minari:ID, or suite/NAME (built in)."""
    task: str | None = None
    """hopper, walker2d or halfcheetah, when the name does not say; other data train without scores."""
    size: int | None = None
    """Transitions of a built-in data set (suite/...); default: as many as D4RL's."""
    columns: Path | None = None
    """For tables (.csv, .parquet): a TOML file that says which columns mean what."""
    action_range: tuple[float, float] | None = None
    """Lowest and highest action, when it is not -1 1; policies act in that range."""
    mirror: str | None = None
    """Another address for D4RL's files."""


@dataclasses.dataclass(frozen=True)
class Train(Source):
    """What to train on, for how long, and where to put it."""

    algo: str = "uniq"
    """The method; its hyper-parameters are the options below."""
    preset: Literal["paper", "none"] = "paper"
    """paper: the published settings for the task and kind of data in the name; options given here win over them."""
    steps: int | None = None
    """Updates; default: the published 1,000,000, of sac_n and edac 3,000,000, of dt 100,000."""
    seeds: tuple[int, ...] = (0,)
    """One run each, all trained as one program."""
    out: Path | None = None
    """A new folder for everything that comes out; default: runs/DATA-ALGO."""
    physics: Literal["d4rl", "gymnasium", "gymnasium-v4", "gymnasium-v5"] = "d4rl"
    """The simulator that scores: as D4RL was recorded, or as Gymnasium is today."""
    eval_every: int | None = None
    """Updates between evaluations; default: a twentieth of the steps."""
    eval_episodes: int = 10
    """Episodes per evaluation and run."""
    log_every: int = 1000
    """Updates between records."""
    stream: bool | None = None
    """Keep the data on the host; default: only when they are too large for the device."""
    resume: Path | None = None
    """Go on with this folder after any interruption; nothing else is needed."""


@dataclasses.dataclass(frozen=True)
class Evaluate:
    """Score the policies of a training folder on fresh episodes, or repeat its last evaluation exactly.

    Example: uniq-rl evaluate runs/hopper --episodes 100
    """

    folder: Annotated[Path, tyro.conf.Positional]
    """The folder that `train` wrote."""
    episodes: int = 10
    """Episodes per policy."""
    repeat: bool = False
    """Use the episodes of the run's last evaluation: its scores come out exactly."""
    physics: Literal["d4rl", "gymnasium", "gymnasium-v4", "gymnasium-v5"] | None = None
    """Default: what the run was evaluated in."""


@dataclasses.dataclass(frozen=True)
class Report:
    """One self-contained page of a results folder, or of a folder that `train` wrote; also its tables and figures.

    Example: uniq-rl report results -o report.html --markdown tables.md --latex tables.tex --figures figures

    Example: uniq-rl report results --quote README.md docs/*.md
    """

    folder: Annotated[Path, tyro.conf.Positional]
    """A results folder (with runs/*.json) or a training folder (with run.json)."""
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("report.html")
    """The HTML file to write; it needs no other file and no network."""
    markdown: Path | None = None
    """Also write the tables as Markdown."""
    latex: Path | None = None
    """Also write the tables as LaTeX."""
    figures: Path | None = None
    """Also draw the figures of a results folder, as PNG and SVG, into this folder."""
    quote: tuple[Path, ...] = ()
    """Also bring the tables that these Markdown files quote up to date."""


@dataclasses.dataclass(frozen=True)
class Inspect(Source):
    """What is in a data set: counts, episodes, returns, actions, suspicious rows, coverage.

    Example: uniq-rl data inspect hopper_medium-v2.hdf5 --picture hopper.png
    """

    picture: Path | None = None
    """Also draw returns, lengths, coverage and where episodes end into this PNG file."""


@dataclasses.dataclass(frozen=True)
class Make:
    """Make a built-in data set and keep it in the cache; training makes it by itself when it is missing.

    Example: uniq-rl data make suite/walker2d-medium-replay --size 100000
    """

    name: Annotated[str, tyro.conf.Positional]
    """One of the names that `uniq-rl data list` shows."""
    size: int | None = None
    """Transitions; default: as many as D4RL's."""
    seed: int = 0
    """Other seeds give other data of the same kind."""
    out: Path | None = None
    """Also write it as an .npz file."""


@dataclasses.dataclass(frozen=True)
class Verify:
    """Replay the simulator states stored in a D4RL file one step under each physics and print the errors.

    Example: uniq-rl data verify hopper_medium-v2.hdf5
    """

    file: Annotated[Path, tyro.conf.Positional]
    """A D4RL file with infos/qpos and infos/qvel."""
    task: str | None = None
    """When the file's name does not say."""


@dataclasses.dataclass(frozen=True)
class Regenerate:
    """Roll out the behaviour policy that a D4RL file carries into a data set of any size, under d4rl physics.

    Example: uniq-rl data regenerate hopper_medium-v2.hdf5 --size 1000000 --out hopper-medium-regenerated.npz
    """

    file: Annotated[Path, tyro.conf.Positional]
    """A D4RL file with metadata/policy."""
    size: int
    """Transitions."""
    out: Path
    """The .npz file to write."""
    seed: int = 0
    """Other seeds give other data of the same policy."""
    task: str | None = None
    """When the file's name does not say."""


@dataclasses.dataclass(frozen=True)
class Bench:
    """Run what is missing of one or more grids, cohort by cohort, and keep one small file per finished run.

    Stop it at any instant and start it again: nothing is lost, and nothing that is finished is repeated. Exit code 0
    when every run is there, 1 when some are still missing.

    Example: uniq-rl bench results/grids/main.toml --minutes 50

    Example: uniq-rl bench results/grids/*.toml --dry-run
    """

    grids: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """TOML files: methods, data sets, seeds, budget; see docs/bench.md."""
    results: Path = Path("results")
    """The folder of finished runs."""
    work: Path | None = None
    """Where cohorts on their way lie; default: .work in the results folder."""
    only: tuple[str, ...] = ()
    """The variants to run; default: all."""
    minutes: float | None = None
    """Stop cleanly after about so many minutes; the next call goes on from there."""
    cohort: int = benching.LIMIT
    """Most runs trained as one program."""
    d4rl: Path | None = None
    """Folder of D4RL's files, for regenerated sets; default: what UNIQ_RL_D4RL names."""
    dry_run: bool = False
    """Show what is there and what is missing, and stop."""


def main(argv: Sequence[str] | None = None) -> None:
    """The entry point: one sentence and exit code 2 for whatever a user can put right."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        sys.exit(dispatch(arguments))
    except UniqError as error:
        say(f"uniq-rl: {error}", "red", err)
        sys.exit(2)
    except OSError as error:  # what the system refuses before we look at it: a name too long, a right missing
        say(f"uniq-rl: {error}.", "red", err)
        sys.exit(2)
    except KeyboardInterrupt:
        say("uniq-rl: interrupted.", "red", err)
        sys.exit(130)


def dispatch(arguments: list[str]) -> int:
    if not arguments or arguments[0] in HELP:
        out.print(OVERVIEW, markup=False, highlight=False)
        return 0
    if arguments[0] == "data" and len(arguments) > 1 and arguments[1] in HELP:
        out.print(DATA_OVERVIEW, markup=False, highlight=False)
        return 0
    if arguments[0] == "--version":
        out.print(f"uniq-rl {__version__}", highlight=False)
        return 0
    for words, command in COMMANDS.items():
        if tuple(arguments[: len(words)]) == words:
            return command(arguments[len(words) :])
    known = ", ".join(" ".join(words) for words in COMMANDS)
    raise UniqError(f"There is no command '{' '.join(arguments[:2])}'; the commands are {known}.")


def train(arguments: list[str]) -> int:
    start_jax()
    if not arguments:
        return demo(api.Demo())
    options, algorithm = parse_train(arguments)
    if options.resume:
        if arguments not in (["--resume", str(options.resume)], [f"--resume={options.resume}"]):
            raise UniqError(f"--resume goes on with what {options.resume} was started with; give no other option.")
        training = api.resumed(options.resume)
    else:
        if options.data is None:
            raise UniqError("Name the data to train on: uniq-rl train DATA, or uniq-rl train --resume DIR.")
        steps = algorithm.published_steps if options.steps is None else options.steps
        plan = Plan(
            steps=steps,
            eval_every=max(1, steps // 20) if options.eval_every is None else options.eval_every,
            eval_episodes=options.eval_episodes,
            log_every=options.log_every,
            physics=options.physics,
            stream=options.stream,
        )
        folder = options.out or free_folder(Path("runs"), f"{Path(options.data).stem}-{options.algo}")
        with Loading(options.data) as progress:
            training = api.prepare(
                algorithm,
                options.data,
                plan,
                seeds=options.seeds,
                out=folder,
                task=options.task,
                progress=progress,
                **loading_options(options),
            )
    monitor = Terminal()
    with monitor:
        result = api.carry_out(training, monitor)
    report(training, result)
    return 0 if result.finished else 130


def demo(plan: api.Demo) -> int:
    """`uniq-rl train` alone: UNIQ and behaviour cloning side by side on a small built-in set."""
    folder = free_folder(Path("runs"), "demo")
    say(f"No data named: a demonstration on {plan.data}, {plan.size:,} transitions. See also: uniq-rl train --help")
    with Loading(plan.data) as progress:
        trainings = plan.prepare(folder, progress)
    results = []
    for training in trainings:
        with Terminal() as monitor:
            results.append(api.carry_out(training, monitor))
        if not results[-1].finished:
            say(f"Stopped cleanly. Go on with: uniq-rl train --resume {folder}")
            return 130
    uniq, cloning = results
    data = trainings[0].cohort.runs[0].dataset
    table = Table(title=f"D4RL score, {trainings[0].plan.physics} physics, last evaluation, 10 episodes")
    for heading in ("seed", "the data", "behaviour cloning", "UNIQ"):
        table.add_column(heading, justify="right")
    logged = score(str(data.task), float(data.episode_returns.mean()))
    rows = {str(seed): (cloning.scores[seed], uniq.scores[seed]) for seed in plan.seeds}
    cloned, learned = np.mean(list(rows.values()), axis=0)
    for seed, scores in {**rows, "mean": (cloned, learned)}.items():
        table.add_row(seed, f"{logged:.1f}", *(f"{value:.1f}" for value in scores))
    out.print(table)
    say(f"Look at {folder}/curves.png and {folder}/conservatism.png. What to do next:")
    say(f"  uniq-rl evaluate {folder} --episodes 100          score the policies on fresh episodes")
    say("  uniq-rl data list                                 other built-in data, no download")
    say("  uniq-rl train YOUR.npz                            data of your own: see docs/own-data.md")
    return 0


def parse_train(arguments: list[str]) -> tuple[Train, Algorithm]:
    """The options of `train`, in three passes: which there are depends on the method, their defaults on the data."""
    without_help = [argument for argument in arguments if argument not in ("-h", "--help")]
    first, _ = tyro.cli(Train, prog="uniq-rl train", args=without_help, return_unknown_args=True)
    method = algorithm_named(first.algo)
    # Only with the method's options known is `0` in `--kappa 0 DATA` not taken for the data.
    options, _ = parse_with(method, method(), without_help)
    if options.preset == "none":
        return parse_with(method, method(), arguments)
    name = Path(options.data or "").name
    return parse_with(method, method.preset("paper", options.task or task_of(name), kind_of(name)), arguments)


def parse_with(method: type[Algorithm], defaults: Algorithm, arguments: list[str]) -> tuple[Train, Algorithm]:
    def spec(
        train: tyro.conf.OmitArgPrefixes[Train], method: tyro.conf.OmitArgPrefixes[Any]
    ) -> tuple[Train, Algorithm]:
        return train, method

    spec.__annotations__["method"] = Annotated[method, tyro.conf.OmitArgPrefixes]
    spec.__defaults__ = (Train(), defaults)
    return tyro.cli(
        spec,
        prog="uniq-rl train",
        args=arguments,
        description=f"Train {method.name} on logged transitions; each --algo ({', '.join(ALGORITHMS)}) has its own "
        "options.\n\n"
        "Examples:\n"
        "  uniq-rl train hopper_medium-v2.hdf5 --steps 100000 --seeds 0 1 2 --out runs/hopper\n"
        "  uniq-rl train mine.npz --algo iql --expectile 0.8\n"
        "  uniq-rl train --resume runs/hopper",
    )


def free_folder(parent: Path, name: str) -> Path:
    """`parent/name`, or the first `parent/name-2`, `-3`, ... that does not exist."""
    candidates = (parent / (name if i == 1 else f"{name}-{i}") for i in range(1, 10_000))
    return next(folder for folder in candidates if not folder.exists())


def loading_options(options: Any) -> dict[str, Any]:
    """What the user said about how to load the data, as JSON can hold it."""
    chosen = {"size": options.size, "action_range": options.action_range, "mirror": options.mirror}
    if options.columns is not None:
        chosen["columns"] = str(options.columns.resolve())
    return {name: value for name, value in chosen.items() if value is not None}


class Loading:
    """A bar for data that must be made or fetched first; invisible for data that are there."""

    def __init__(self, name: str) -> None:
        self.bar = Progress(
            TextColumn(f"{escape(name)}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn(), console=err
        )
        self.task: TaskID | None = None

    def __enter__(self) -> Callable[[int, int | None], None]:
        return self.progress

    def progress(self, done: int, total: int | None) -> None:
        if self.task is None:
            self.task = self.bar.add_task("", total=total)
            self.bar.start()
        self.bar.update(self.task, completed=done, total=total)

    def __exit__(self, *_: object) -> None:
        if self.task is not None:
            self.bar.stop()


class Terminal(Monitor):
    """Progress with rate and time left; Ctrl-C asks for a clean stop, a second one ends at once."""

    def __init__(self) -> None:
        self.stopping = False
        self.bar: Progress | None = None
        self.task = TaskID(0)
        self.runs = 1
        self.steps = self.first = 0
        self.began = self.printed = 0.0
        self.latest = ""
        self.previous_handler: Any = None

    def __enter__(self) -> "Terminal":
        self.previous_handler = signal.signal(signal.SIGINT, self.interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self.previous_handler)
        if self.bar:
            self.bar.stop()

    def interrupt(self, _: int, __: FrameType | None) -> None:
        if self.stopping:
            raise KeyboardInterrupt
        self.stopping = True
        self.noted("Stopping after this chunk, with a checkpoint; press Ctrl-C again to stop at once.")

    def stop_requested(self) -> bool:
        return self.stopping

    def introduction(self, training: Training) -> str:
        first = training.cohort.runs[0]
        where = f" into {training.folder}" if training.folder else ""
        return (
            f"{first.algorithm.name} on {first.dataset.name}: {first.dataset.size:,} transitions, "
            f"{first.dataset.episodes:,} episodes, {count(self.runs, 'run')} of {self.steps:,} updates on "
            f"{jax.devices()[0].device_kind}{where}"
        )

    def started(self, training: Training, step: int) -> None:
        self.runs, self.steps, self.first = len(training.cohort.runs), training.plan.steps, step
        say(self.introduction(training))
        for note in training.notes():
            say(note, "yellow")
        if step:
            say(f"Resuming at step {step:,}.")
        self.began = self.printed = time.monotonic()
        if out.is_terminal:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rate]}"),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
                TextColumn("{task.fields[latest]}", style="bold"),
            )
            self.bar = Progress(*columns, console=out)
            self.task = self.bar.add_task("compiling", total=self.steps, completed=step, rate="", latest="")
            self.bar.start()

    def advanced(self, step: int) -> None:
        now = time.monotonic()
        rate = (step - self.first) / max(now - self.began, 1e-9)
        text = f"{rate * self.runs:,.0f} updates/s"
        if self.bar:
            self.bar.update(self.task, completed=step, description="training", rate=text, latest=self.latest)
        elif now - self.printed >= 5 or step == self.steps:
            left = datetime.timedelta(seconds=round((self.steps - step) / rate))
            say(f"step {step:,}/{self.steps:,} · {text} · {left} left")
            self.printed = now

    def evaluated(self, evaluation: Evaluation) -> None:
        self.latest = (
            f"score {np.nanmean(evaluation.scores):.1f}" if np.isfinite(evaluation.scores).any() else "no score"
        )
        scores = "  ".join("failed" if np.isnan(value) else f"{value:.1f}" for value in evaluation.scores)
        self.noted(f"step {evaluation.step:,}: score {scores}")

    def noted(self, sentence: str) -> None:
        say(sentence)


class BenchTerminal(Terminal):
    """One cohort of a grid: which it is, and a clean stop when the time is up."""

    def __init__(self, number: int, claim: benching.Claim, deadline: float) -> None:
        super().__init__()
        self.number, self.claim, self.deadline = number, claim, deadline

    def introduction(self, training: Training) -> str:
        variants = ", ".join(dict.fromkeys(name for job in self.claim.jobs for name in job.variants))
        sets = ", ".join(dict.fromkeys(f"{job.data.task}-{job.data.kind}" for job in self.claim.jobs))
        return (
            f"Cohort {self.number} of {self.number + self.claim.left}: {variants} on {sets}; "
            f"{count(self.runs, 'run')} of {self.steps:,} updates on {jax.devices()[0].device_kind}"
        )

    def evaluated(self, evaluation: Evaluation) -> None:
        scores = evaluation.scores[np.isfinite(evaluation.scores)]
        self.latest = f"mean score {scores.mean():.1f}" if len(scores) else "no score"
        if not self.bar:
            self.noted(f"step {evaluation.step:,}: {self.latest} of {count(len(scores), 'run')}")

    def stop_requested(self) -> bool:
        return self.stopping or time.monotonic() >= self.deadline


def bench(arguments: list[str]) -> int:
    options = tyro.cli(Bench, prog="uniq-rl bench", args=arguments)
    if not options.grids:
        raise UniqError("Name at least one grid, say results/grids/main.toml.")
    grid = together([read_grid(path) for path in options.grids]).only(options.only)
    d4rl = options.d4rl or (Path(os.environ[D4RL_VARIABLE]) if os.environ.get(D4RL_VARIABLE) else None)
    place = benching.Place(options.results, options.work or options.results / benching.WORK, options.cohort, d4rl)
    print_standing(grid, benching.standing(place, grid.jobs))
    if options.dry_run:
        return 0
    start_jax()
    deadline = time.monotonic() + (float("inf") if options.minutes is None else 60 * options.minutes)
    # Where processors train, they have no time to make data meanwhile.
    ahead = benching.making_ahead(place, grid.jobs) if jax.default_backend() != "cpu" else contextlib.nullcontext()
    with ahead:
        stopped = run_cohorts(place, grid, deadline)
    benching.adopt(place, grid.jobs)
    missing = len(benching.standing(place, grid.jobs).missing)
    if missing == 0:
        say(f"All {len(grid.jobs)} runs of {grid.name} are in {place.results}.")
        return 0
    again = "go on with the same command" if stopped else "the reasons are above"
    say(f"{missing} of {len(grid.jobs)} runs of {grid.name} are still missing; {again}.")
    return 130 if stopped == "interrupted" else 1


def run_cohorts(place: benching.Place, grid: Grid, deadline: float) -> str:
    """Cohort after cohort; why it stopped before the last one, or nothing."""
    busy, number = benching.Busy(), 1
    while time.monotonic() < deadline:
        with benching.claimed(place, grid.jobs, busy) as claim:
            if claim is None:
                others = sum(job.recipe.id in busy.recipes for job in grid.jobs)
                if others:
                    say(f"Another process is training {count(others, 'run')} of this grid; left to it.", "yellow")
                return ""
            training = benching.prepare(claim, place, Loading)
            with BenchTerminal(number, claim, deadline) as monitor:
                result = benching.run(claim, training, monitor)
            if not result.finished:
                return "interrupted" if monitor.stopping else "time is up"
            with err.status("diagnosing the finished runs"):
                written = benching.finish(claim, place, training)
            say(f"Cohort {number} is done: {count(written, 'result')} in {place.results}.")
            number += 1
    return "time is up"


def print_standing(grid: Grid, standing: benching.Standing) -> None:
    table = Table(title=f"grid {escape(grid.name)}: {len(standing.done)} of {len(grid.jobs)} runs are there")
    for heading in ("variant", "updates", "sets", "seeds", "there", "missing"):
        table.add_column(heading, justify="left" if heading == "variant" else "right")
    done = {job.recipe.id for job in standing.done}
    rows = dict.fromkeys((name, job.recipe.steps) for job in grid.jobs for name in job.variants)
    for name, steps in rows:
        jobs = [job for job in grid.jobs if name in job.variants and job.recipe.steps == steps]
        there = sum(job.recipe.id in done for job in jobs)
        counts = (len({job.data.name for job in jobs}), len({job.recipe.seed for job in jobs}))
        table.add_row(escape(name), f"{steps:,}", *map(str, (*counts, there, len(jobs) - there)))
    out.print(table)
    for reason in standing.lacking.values():
        say(f"Skipped: {reason}", "yellow")


def report(training: Training, result: Result) -> None:
    """The closing table and what to do next."""
    folder = training.folder
    if not result.finished:
        say(f"Stopped cleanly. Go on with: uniq-rl train --resume {folder}")
        return
    if result.scores:
        table = Table(title=f"D4RL score, {training.plan.physics} physics, {training.plan.eval_episodes} episodes")
        for heading in ("run", "last", "mean of last 10", "best (oracle)"):
            table.add_column(heading, justify="right")
        for run in training.cohort.runs:
            history = [line["score"] for line in result.episodes if line["run"] == run.label]
            if None in history:
                table.add_row(run.label, "diverged", "", "")
            else:
                table.add_row(
                    run.label, *(f"{value:.1f}" for value in (history[-1], np.mean(history[-10:]), max(history)))
                )
        out.print(table)
        data = training.cohort.runs[0].dataset
        say(f"The data themselves: {score(str(data.task), float(data.episode_returns.mean())):.1f}")
    if result.diverged:
        say(f"Diverged: {', '.join(map(str, result.diverged))}; try a smaller --learning-rate.", "red")
    say(f"Pictures, policies and records are in {folder}.")
    if training.evaluator:
        say(f"Score on fresh episodes: uniq-rl evaluate {folder} --episodes 100")


def evaluate(arguments: list[str]) -> int:
    start_jax()
    options = tyro.cli(Evaluate, prog="uniq-rl evaluate", args=arguments)
    if options.episodes < 1:
        raise UniqError(f"episodes is {options.episodes}, but it must be at least 1.")
    with err.status("evaluating"):
        labels, evaluation = api.evaluate(
            options.folder, episodes=options.episodes, repeat=options.repeat, physics=options.physics
        )
    episodes = "last evaluation, repeated" if options.repeat else "fresh episodes"
    table = Table(title=f"D4RL score, {evaluation.physics} physics, {episodes}")
    for heading in ("run", "score", "mean return", "std", "mean length", "episodes"):
        table.add_column(heading, justify="right")
    for i, label in enumerate(labels):
        returns, lengths = evaluation.returns[i], evaluation.lengths[i]
        if np.isnan(evaluation.scores[i]):
            table.add_row(label, "diverged", "", "", "", "")
            continue
        numbers = (f"{returns.mean():.1f}", f"{returns.std():.1f}", f"{lengths.mean():.0f}", str(len(returns)))
        table.add_row(label, f"{evaluation.scores[i]:.4f}", *numbers)
    out.print(table)
    return 0


def loaded(options: Source) -> Dataset:
    if options.data is None:
        raise UniqError("Name the data: a file, a D4RL name, minari:ID or suite/NAME.")
    with Loading(options.data) as progress:
        return api.load_dataset(options.data, options.task, progress=progress, **loading_options(options))


def report_page(arguments: list[str]) -> int:
    options = tyro.cli(Report, prog="uniq-rl report", args=arguments)
    written = write_report(options.folder, options.out, options.markdown, options.latex, options.figures)
    for path in written + (write_quotes(options.folder, options.quote) if options.quote else []):
        say(f"Written: {path}")
    return 0


def inspect(arguments: list[str]) -> int:
    options = tyro.cli(Inspect, prog="uniq-rl data inspect", args=arguments)
    dataset = loaded(options)
    print_inspection(dataset.name, inspect_dataset(dataset), dataset.task, float(dataset.episode_returns.mean()))
    if options.picture:
        say(f"Picture in {draw_dataset(dataset, options.picture)}")
    return 0


def list_sets(arguments: list[str]) -> int:
    """Every built-in data set with its card, and where the others come from."""
    tyro.cli(List, prog="uniq-rl data list", args=arguments)
    table = Table(title="built-in data sets, made on first use; mean and best score of their episodes", box=SIMPLE_HEAD)
    table.pad_edge = False
    for heading in ("name", "rows", "episodes", "mean", "best", "cover"):
        table.add_column(heading, justify="left" if heading == "name" else "right", no_wrap=True)
    for name in suite.names():
        table.add_row(name, *card_cells(suite.card(name)))
    out.print(table)
    say("D4RL's own sets load by name (hopper-medium-v2, antmaze-umaze-v2, pen-human-v1, ...), Minari's by minari:ID.")
    return 0


@dataclasses.dataclass(frozen=True)
class List:
    """Every built-in data set with its card: transitions, episodes, scores, coverage.

    Example: uniq-rl data list
    """


def card_cells(card: dict[str, Any]) -> list[str]:
    scores = (f"{card['mean_score']:.1f}", f"{card['max_score']:.1f}", f"{card['coverage']:.0%}")
    return [f"{card['transitions']:,}", f"{card['episodes']:,}", *scores]


def make(arguments: list[str]) -> int:
    options = tyro.cli(Make, prog="uniq-rl data make", args=arguments)
    with Loading(options.name) as progress:
        dataset = suite.make(options.name, size=options.size, seed=options.seed, progress=progress)
    if options.out:
        save_npz(dataset, options.out)
    table = Table("transitions", "episodes", "mean score", "max score", "coverage", title=options.name)
    table.add_row(*card_cells(suite.card(options.name, options.size, options.seed)))
    out.print(table)
    recipe = suite.recipe_id(options.name, options.size, options.seed)
    say(f"recipe {recipe}, content {dataset.fingerprint[:16]}; train on it: uniq-rl train {options.name}")
    return 0


def verify(arguments: list[str]) -> int:
    options = tyro.cli(Verify, prog="uniq-rl data verify", args=arguments)
    table = Table(title=f"one-step replay of {options.file.name}: error of the next state")
    for heading in ("physics", "rows", "qpos median", "qpos 99 %", "qvel median", "qvel 99 %"):
        table.add_column(heading, justify="right")
    for row in regeneration.verify(options.file, options.task):
        errors = (row.median_qpos, row.p99_qpos, row.median_qvel, row.p99_qvel)
        table.add_row(row.physics, f"{row.rows:,}", *(f"{error:.1e}" for error in errors))
    out.print(table)
    return 0


def regenerate(arguments: list[str]) -> int:
    options = tyro.cli(Regenerate, prog="uniq-rl data regenerate", args=arguments)
    if options.out.suffix != ".npz":
        raise UniqError(f"{options.out} must end in .npz: that is the format it is written in.")
    if options.out.exists():
        raise UniqError(f"{options.out} exists already; choose another --out.")
    with Loading(options.file.name) as progress:
        dataset = regeneration.regenerate(options.file, options.size, options.seed, progress, options.task)
    save_npz(dataset, options.out)
    mean = float(np.mean(dataset.episode_returns[:-1] if dataset.episodes > 1 else dataset.episode_returns))
    say(
        f"{dataset.size:,} transitions, {dataset.episodes:,} episodes, "
        f"score {score(str(dataset.task), mean):.1f}: {options.out}"
    )
    return 0


def print_inspection(name: str, summary: dict[str, Any], task: str | None, mean_return: float) -> None:
    table = Table(title=escape(name), show_header=False)
    table.add_column(style="bold")
    table.add_column()
    if task in REFERENCE:
        table.add_row("mean score", f"{score(str(task), mean_return):.1f}")
    for key, value in summary.items():
        if key not in ("warnings", "name", "task", "action", "obs", "regions"):
            table.add_row(key.replace("_", " "), brief(value))
    out.print(table)
    for key in ("action", "obs"):
        out.print(columns_table(key, summary[key]))
    regions = summary["regions"]
    out.print(
        f"Rows per region (two principal components of obs; {regions['share_nonempty']:.0%} of the cells hold data):"
    )
    out.print("\n".join(heat(regions["counts"])), highlight=False)
    for warning in summary.get("warnings", []):
        out.print(f"! {warning}", style="yellow", markup=False)


def columns_table(title: str, columns: list[dict[str, float]]) -> Table:
    table = Table(title=title)
    table.add_column("column", justify="right")
    for heading in columns[0]:
        table.add_column(heading.replace("_", " "), justify="right")
    for i, column in enumerate(columns):
        table.add_row(str(i), *(brief(value) for value in column.values()))
    return table


def heat(counts: list[list[int]]) -> list[str]:
    """A grid of counts as text, darker for more."""
    most = max(max(row) for row in counts) or 1
    shades = " ░▒▓█"
    return ["  " + "".join(2 * shades[-(-4 * count // most)] for count in row) for row in counts]


def brief(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return ", ".join(f"{key.replace('_', ' ')} {brief(item)}" for key, item in value.items())
    if isinstance(value, list):
        return " ".join(brief(item) for item in value[:12]) + (" …" if len(value) > 12 else "")
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def start_jax() -> None:
    """Find a device. Programs compiled once are kept, unless JAX was told where to keep them already."""
    # An entry cut short by a kill, or a full disk, costs the time of a compilation and nothing else.
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache entry")
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        jax.config.update("jax_compilation_cache_dir", os.path.join(home, "uniq-rl", "jax"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
    try:
        jax.devices()
    except (RuntimeError, AssertionError) as error:  # JAX's own check of a backend that was asked for is an assertion
        asked = os.environ.get("JAX_PLATFORMS")
        reason = str(error).partition("\n")[0].rstrip(".")
        raise UniqError(
            f"JAX finds no device{f' with JAX_PLATFORMS={asked}' if asked else ''}{f' ({reason})' if reason else ''}; "
            "unset JAX_PLATFORMS to train on the CPU, or install the extra cuda12 or cuda13 for an NVIDIA GPU."
        ) from None


COMMANDS: dict[tuple[str, ...], Callable[[list[str]], int]] = {
    ("train",): train,
    ("evaluate",): evaluate,
    ("bench",): bench,
    ("report",): report_page,
    ("data", "list"): list_sets,
    ("data", "make"): make,
    ("data", "inspect"): inspect,
    ("data", "verify"): verify,
    ("data", "regenerate"): regenerate,
}
