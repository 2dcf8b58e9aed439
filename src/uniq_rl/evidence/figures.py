"""Pictures of a training folder: how the policies learned, and what calibration made of their uncertainty.

Everything is read from the files of the folder, so that a figure can be drawn again on any machine; the same files
give the same picture.
"""

import contextlib
import io
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from uniq_rl.errors import UniqError
from uniq_rl.evidence.wording import count, percent, thousands
from uniq_rl.physics.locomotion import TASKS
from uniq_rl.storage import write_atomically
from uniq_rl.training.records import read_json, read_lines

DPI = 150
WIDTH = 8.0
"""Inches: 1200 pixels."""

INK, QUIET, FAINT, MARK = "#222222", "#6b6b6b", "#d9d9d9", "#b2182b"
PALETTE = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")
"""Okabe and Ito's colours, which the colour-blind tell apart; more runs than these share the first."""

STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 8.5,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.titlepad": 6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": QUIET,
    "axes.linewidth": 0.7,
    "axes.labelcolor": QUIET,
    "axes.labelsize": 8,
    "axes.titlecolor": INK,
    "axes.unicode_minus": True,
    "text.color": INK,
    "text.usetex": False,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "mathtext.fontset": "dejavusans",
    "savefig.bbox": None,
    "figure.facecolor": "white",
    "axes.facecolor": "white",
}

LOSSES = {"value_loss": "value loss", "critic_loss": "critic loss", "actor_loss": "actor loss"}
NEAR = 0.02
"""A `tau(s)` this close to `tau_max` counts as one that the mechanism left alone."""
HARDLY = 0.95
"""Share of such states from which on the mechanism "hardly switches on"."""
HELDOUT_EPISODES = 40
BINS = 40
LOG_RATIO = 20
"""A positive quantity that spans more than this is drawn on a logarithmic axis."""


class Curve(NamedTuple):
    """A quantity over updates; NaN where it was not finite."""

    steps: np.ndarray
    values: np.ndarray


class Histogram(NamedTuple):
    """Counts between edges, as the records keep them."""

    edges: np.ndarray
    counts: np.ndarray


@dataclass(frozen=True)
class RunStory:
    """What the files say about one run."""

    label: str
    config: Mapping[str, Any]
    data: Mapping[str, Any]
    heldout: int
    score: Curve
    metrics: Mapping[str, Curve]
    calibration: Mapping[str, Curve]
    """`q_hat`, `coverage`, `u_above_1`; empty for a method that does not calibrate."""
    distributions: Mapping[int, Mapping[str, Histogram]] = field(repr=False)
    diverged: int | None


@dataclass(frozen=True)
class Story:
    """What the files say about a training."""

    algorithm: str
    plan: Mapping[str, Any]
    runs: tuple[RunStory, ...]

    @property
    def scored(self) -> bool:
        return any(np.isfinite(run.score.values).any() for run in self.runs)

    @property
    def calibrates(self) -> bool:
        return any(run.calibration for run in self.runs)

    @property
    def replicated(self) -> bool:
        """Whether the runs differ by nothing but their seed, so that their mean means something."""
        first = self.runs[0]
        return len(self.runs) > 1 and all((run.config, run.data) == (first.config, first.data) for run in self.runs)

    def colour(self, index: int) -> str:
        return PALETTE[index] if len(self.runs) <= len(PALETTE) else PALETTE[0]


def draw_run(folder: Path) -> list[Path]:
    """Draw `curves.png` and `conservatism.png` into a training folder, from its files alone."""
    story = read_story(folder)
    drawn = []
    for name, draw in (("curves.png", draw_curves), ("conservatism.png", draw_conservatism)):
        with mpl.rc_context(STYLE):
            content = png(draw(story))
        write_atomically(folder / name, content)
        drawn.append(folder / name)
    return drawn


def png(figure: Figure) -> bytes:
    """The picture without the metadata that would tell one Matplotlib, or one minute, from another."""
    FigureCanvasAgg(figure)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI, metadata={"Software": None})
    return buffer.getvalue()


# Reading


def read_story(folder: Path) -> Story:
    description = read_json(folder / "run.json")
    for name in ("records.jsonl", "episodes.jsonl"):
        if not (folder / name).is_file():
            raise UniqError(f"{folder} has no {name}: nothing was trained in it yet, so there is nothing to draw.")
    records = read_lines(folder / "records.jsonl")
    episodes = read_lines(folder / "episodes.jsonl")
    with _damage(folder):
        by_run = _grouped(records)
        scores = _grouped(episodes)
        runs = tuple(_run_story(run, by_run[run["label"]], scores[run["label"]]) for run in description["runs"])
        if not runs:
            raise UniqError(f"{folder}/run.json names no run; it is damaged.")
        plan = description["plan"]
        return Story(str(description["algorithm"]), {name: plan[name] for name in PLAN}, runs)


PLAN = ("steps", "eval_every", "eval_episodes", "physics")


@contextlib.contextmanager
def _damage(folder: Path) -> Iterator[None]:
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise UniqError(f"The records in {folder} are damaged ({error!r}).") from None


def _grouped(lines: Sequence[dict[str, Any]]) -> defaultdict[str, list[dict[str, Any]]]:
    groups: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in lines:
        groups[line["run"]].append(line)
    return groups


def _run_story(run: dict[str, Any], records: list[dict[str, Any]], scores: list[dict[str, Any]]) -> RunStory:
    metrics = [line for line in records if line["kind"] == "metrics"]
    calibration = [line for line in records if line["kind"] == "calibration"]
    names = dict.fromkeys(name for line in metrics for name in line if name not in ("kind", "step", "run"))
    return RunStory(
        label=str(run["label"]),
        config=dict(run["config"]),
        data=dict(run["data"]),
        heldout=int(run["folds"]["heldout"]),
        score=_curve(scores, "score"),
        metrics={name: _curve(metrics, name) for name in names},
        calibration={name: _curve(calibration, name) for name in ("q_hat", "coverage", "u_above_1") if calibration},
        distributions={
            int(line["step"]): {name: _histogram(stored) for name, stored in line["distributions"].items()}
            for line in calibration
            if "distributions" in line
        },
        diverged=next((int(line["step"]) for line in records if line["kind"] == "diverged"), None),
    )


def _curve(lines: Sequence[dict[str, Any]], name: str) -> Curve:
    values = np.asarray([np.nan if line[name] is None else float(line[name]) for line in lines])
    return Curve(np.asarray([int(line["step"]) for line in lines]), np.where(np.isfinite(values), values, np.nan))


def _histogram(stored: Mapping[str, Any]) -> Histogram:
    edges, counts = np.asarray(stored["edges"], np.float64), np.asarray(stored["counts"], np.float64)
    if edges.ndim != 1 or counts.ndim != 1 or len(edges) != (len(counts) + 1 if len(counts) else 0):
        raise ValueError(f"a histogram of {len(counts)} counts has {len(edges)} edges")
    return Histogram(edges, counts)


# Numbers


def share_below(histogram: Histogram, values: np.ndarray) -> np.ndarray:
    """Share of the states below each of `values`, taking states to lie evenly within a bin."""
    cumulative = np.concatenate([[0.0], np.cumsum(histogram.counts)]) / histogram.counts.sum()
    return np.asarray(np.interp(values, histogram.edges, cumulative))


def rebinned(histogram: Histogram, grid: np.ndarray) -> np.ndarray:
    """Share of the states in each bin of a grid, so that histograms of different edges can be laid over each other."""
    below = share_below(histogram, grid)
    below[grid <= histogram.edges[0]] = 0.0
    below[grid > histogram.edges[-1]] = 1.0
    below[-1] = 1.0
    return np.diff(below)


@dataclass(frozen=True)
class Activity:
    """How much the adaptive expectile does, as means over runs at the last recorded evaluation."""

    step: int
    u_above_1: float
    near_tau_max: float
    """Share of states with `tau(s)` within `NEAR` of `tau_max`."""
    mean_tau: float
    fixed_tau: float | None
    """`tau_max` where it equals `tau_min`, so that nothing can adapt."""


def last_distributions(story: Story) -> dict[int, Mapping[str, Histogram]]:
    """By index of run, at the last step that has any; a run that diverged earlier has none there."""
    steps = [step for run in story.runs for step in run.distributions]
    if not steps:
        return {}
    return {i: run.distributions[max(steps)] for i, run in enumerate(story.runs) if max(steps) in run.distributions}


def activity(story: Story) -> Activity | None:
    last = {i: found for i, found in last_distributions(story).items() if len(found["tau"].counts)}
    if not last:
        return None
    step = max(step for run in story.runs for step in run.distributions)
    above, near, mean = [], [], []
    for i, found in last.items():
        run, tau = story.runs[i], found["tau"]
        above.append(run.calibration["u_above_1"].values[run.calibration["u_above_1"].steps == step][-1])
        near.append(1 - share_below(tau, np.asarray([run.config["tau_max"] - NEAR]))[0])
        mean.append(mean_within(tau, run.config["tau_min"], run.config["tau_max"]))
    bounds = {story.runs[i].config[name] for i in last for name in ("tau_min", "tau_max")}
    fixed = float(bounds.pop()) if len(bounds) == 1 else None
    return Activity(step, float(np.mean(above)), float(np.mean(near)), float(np.mean(mean)), fixed)


def mean_within(histogram: Histogram, low: float, high: float) -> float:
    """Mean of values known to lie between `low` and `high`; the histogram of equal values is wider than they are."""
    edges = np.clip(histogram.edges, low, high)
    return float(np.average((edges[1:] + edges[:-1]) / 2, weights=histogram.counts))


def verdict(found: Activity | None) -> str:
    """One line that says whether the mechanism does anything."""
    if found is None:
        return "No finite uncertainty was recorded: nothing can be said about the mechanism."
    above = f"u > 1 on {percent(found.u_above_1)} of states"
    if found.fixed_tau is not None:
        return f"{above}; τ is fixed at {found.fixed_tau:g}: there is no mechanism to switch on."
    near = f"τ(s) within {NEAR:g} of τ_max on {percent(found.near_tau_max)}"
    if found.near_tau_max >= HARDLY:
        judgement = "the mechanism hardly switches on"
    elif found.near_tau_max > 0.5:
        judgement = "the mechanism acts on a minority of states"
    else:
        judgement = "the mechanism is at work on most states"
    return f"{above}; {near}, mean τ {found.mean_tau:.2f}: {judgement}."


# Pictures


def draw_curves(story: Story) -> Figure:
    panels = loss_panels(story)
    figure = _figure(5.9, header=0.78 if story.scored or not panels else 1.05)
    details = [f"{story.plan['physics']} physics", f"{count(story.plan['eval_episodes'], 'episode')} per score"]
    _header(figure, story, "learning curve" if story.scored else "losses", details if story.scored else [])
    if story.scored:
        rows = figure.add_gridspec(2, 1, height_ratios=(2.1, 1), hspace=0.06)
        _draw_scores(figure.add_subplot(rows[0]), story)
        if panels:
            below = rows[1].subgridspec(1, len(panels))
            axes = [figure.add_subplot(below[i]) for i in range(len(panels))]
            _draw_panels(axes, panels, story, ticks=3)
        return figure
    sentence = no_scores(story)
    if not panels:
        _say(figure.add_subplot(), f"{sentence}\nNo losses were recorded yet either.")
        return figure
    figure.text(0.012, 1 - 0.83 / figure.get_figheight(), sentence, color=MARK, va="center")
    grid = figure.add_gridspec(-(-len(panels) // 2), min(len(panels), 2), hspace=0.06)
    axes = [figure.add_subplot(grid[divmod(i, 2)]) for i in range(len(panels))]
    _draw_panels(axes, panels, story, ticks=5)
    _legend(axes[0], story)
    return figure


def loss_panels(story: Story) -> dict[str, tuple[str, ...]]:
    """Titles of the small panels and the metrics in each: the losses there are, then the values side by side."""
    names = {name for run in story.runs for name in run.metrics}
    others = {name: name.replace("_", " ") for name in sorted(names) if name.endswith("_loss") and name not in LOSSES}
    panels: dict[str, tuple[str, ...]] = {title: (name,) for name, title in (LOSSES | others).items() if name in names}
    values = tuple(name for name in ("q", "v") if name in names)
    return panels | ({" and ".join(values): values} if values else {})


def no_scores(story: Story) -> str:
    tasks = sorted({str(run.data["task"]) for run in story.runs if run.data["task"] not in TASKS})
    if tasks:
        task = "data of no named task" if tasks == ["None"] else f"task {', '.join(tasks)}"
        return f"No simulator for {task}, so there are no scores: these are the losses."
    if all(run.diverged is not None for run in story.runs):
        return "Every run diverged before it had a score: these are the losses."
    first = min(story.plan["eval_every"], story.plan["steps"])
    return f"No evaluation yet (the first is after {first:,} updates): these are the losses."


def _draw_scores(axes: Axes, story: Story) -> None:
    ends: list[tuple[float, str, str, bool]] = []
    complete = [run for run in story.runs if run.diverged is None and len(run.score.steps)]
    averaged = story.replicated and len(complete) > 1 and len(_over_runs([run.score for run in complete])[0].steps) > 0
    for i, run in enumerate(story.runs):
        _line(axes, run.score, story.colour(i), thin=averaged)
        mark = _mark_divergence(axes, run, run.score, story.colour(i))
        if mark and run.diverged is not None and len(story.runs) <= len(PALETTE):
            left = run.diverged < 0.7 * story.plan["steps"]
            x, y = np.asarray(mark.get_xydata())[0]
            axes.annotate(
                f"{_name(run)} diverged by {run.diverged:,}", (x, y), xycoords=mark.get_transform(),
                xytext=(8 if left else -8, 0), textcoords="offset points", ha="left" if left else "right", va="center",
                color=story.colour(i), bbox=HALO,
            )  # fmt: skip
        last = run.score.values[np.isfinite(run.score.values)][-1:]
        if run.diverged is None and len(last) and len(story.runs) <= len(PALETTE):
            ends.append((float(last[0]), f"{_name(run)}  {last[0]:.1f}", story.colour(i), False))
    if averaged:
        mean, low, high = _over_runs([run.score for run in complete])
        axes.fill_between(mean.steps, low, high, color=INK, alpha=0.08, linewidth=0)
        axes.plot(*mean, color=INK, linewidth=2.2, solid_capstyle="round", zorder=4)
        axes.plot(mean.steps[-1:], mean.values[-1:], "o", color=INK, markersize=4.5, zorder=5, clip_on=False)
        ends.append((float(mean.values[-1]), f"mean  {mean.values[-1]:.1f}", INK, True))
    axes.set_title(_score_title(story, complete, averaged))
    axes.grid(axis="y", color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    _label_updates(axes, story, ticks=6)
    axes.set_xlabel("updates")
    _label_ends(axes, ends)


def _score_title(story: Story, complete: Sequence[RunStory], averaged: bool) -> str:
    title = "D4RL normalised score"
    if averaged:
        title += f"; bold: mean of {len(complete)} seeds, band: least to greatest"
    if len(complete) < len(story.runs):
        title += f"; × = diverged ({len(story.runs) - len(complete)} of {len(story.runs)})"
    return title


def _over_runs(curves: Sequence[Curve]) -> tuple[Curve, np.ndarray, np.ndarray]:
    """Mean, least and greatest at the steps that all curves have."""
    steps = sorted(set.intersection(*(set(curve.steps[np.isfinite(curve.values)].tolist()) for curve in curves)))
    values = np.asarray([curve.values[np.searchsorted(curve.steps, steps)] for curve in curves])
    return Curve(np.asarray(steps), values.mean(axis=0)), values.min(axis=0), values.max(axis=0)


def _draw_panels(axes: Sequence[Axes], panels: Mapping[str, tuple[str, ...]], story: Story, ticks: int) -> None:
    for panel, (title, names) in zip(axes, panels.items(), strict=True):
        for name, style in zip(names, ("-", (0, (4, 1.5))), strict=False):
            for i, run in enumerate(story.runs):
                curve = run.metrics.get(name, EMPTY)
                _line(panel, curve, story.colour(i), style=style)
                _mark_divergence(panel, run, curve, story.colour(i))
        panel.set_title(title if len(names) == 1 else f"{names[0]} (solid) and {names[1]} (dashed)")
        _log_if_wide(panel, [run.metrics.get(name, EMPTY) for run in story.runs for name in names])
        _label_updates(panel, story, ticks)


def draw_conservatism(story: Story) -> Figure:
    if not story.calibrates:
        return _draw_uncalibrated(story)
    figure = _figure(6.4, header=1.05)
    _header(figure, story, "conservatism", [f"δ = {_values(story, 'delta')}", f"κ = {_values(story, 'kappa')}"])
    found = activity(story)
    figure.text(0.012, 1 - 0.83 / 6.4, _typeset(verdict(found)), color=MARK, fontsize=9, va="center")
    rows = figure.add_gridspec(2, 1, hspace=0.08)
    upper, lower = rows[0].subgridspec(1, 3), rows[1].subgridspec(1, 4)
    over_time = [figure.add_subplot(upper[i]) for i in range(3)]
    _draw_q_hat(over_time[0], story)
    _draw_coverage(over_time[1], story)
    _draw_u_above_1(over_time[2], story)
    shapes = [figure.add_subplot(lower[i]) for i in range(4)]
    _draw_distributions(shapes, story)
    return figure


def _draw_uncalibrated(story: Story) -> Figure:
    figure = _figure(4.2, header=1.05)
    _header(figure, story, "conservatism", [])
    raw = "calibrate" in story.runs[0].config
    reason = "calibrate = none: u(s) is the raw σ(s)" if raw else "there is no q̂, no u(s), no τ(s)"
    values = {title: names for title, names in loss_panels(story).items() if set(names) <= {"q", "v"}}
    sentence = f"This method does not calibrate ({reason})"
    axes = figure.add_subplot()
    if not values:
        _say(axes, f"{sentence},\nand it learns no values that could be shown instead.")
        return figure
    figure.text(0.012, 1 - 0.83 / 4.2, f"{sentence}. Shown instead: its values.", color=MARK, fontsize=9, va="center")
    _draw_panels([axes], values, story, ticks=6)
    axes.set_xlabel("updates")
    _legend(axes, story)
    return figure


def _draw_q_hat(axes: Axes, story: Story) -> None:
    if all(run.config.get("calibrate") == "none" for run in story.runs):
        axes.set_title("q̂")
        _say(axes, "not calibrated:\nu(s) is σ(s) itself")
        return
    curves = _draw_calibration(axes, story, "q_hat", drawstyle="steps-post")
    quantity = "disagreement σ" if story.runs[0].config.get("calibrate") == "disagreement" else "Bellman residuals"
    axes.set_title(f"q̂, quantile of {quantity}")
    _log_if_wide(axes, curves)
    if axes.get_yscale() == "linear":
        axes.set_ylim(0, 1.3 * (_greatest(curves) or 1.0))
    _legend(axes, story)


def _draw_coverage(axes: Axes, story: Story) -> None:
    axes.set_title("coverage on held-out episodes")
    curves = [run.calibration["coverage"] for run in story.runs if run.calibration]
    if not any(np.isfinite(curve.values).any() for curve in curves):
        few = all(run.data["episodes"] < HELDOUT_EPISODES for run in story.runs)
        reason = f"fewer than {HELDOUT_EPISODES} episodes" if few else "none was asked for"
        raw = all(run.config.get("calibrate") == "none" for run in story.runs)
        _say(axes, "not calibrated:\nthere is nothing to cover" if raw else f"no held-out fold\n({reason})")
        return
    _draw_calibration(axes, story, "coverage")
    _reference(axes, [1 - delta for delta in _distinct(story, "delta")], "1 − δ", at=0.06)
    least = min(float(np.nanmin(curve.values)) for curve in curves if np.isfinite(curve.values).any())
    least = min(least, 1 - max(_distinct(story, "delta")))
    axes.set_ylim(least - 0.25 * max(1 - least, 0.02), 1 + 0.05 * max(1 - least, 0.02))
    _percentages(axes)


def _draw_u_above_1(axes: Axes, story: Story) -> None:
    curves = _draw_calibration(axes, story, "u_above_1")
    axes.set_title("share of states with u > 1")
    _reference(axes, _distinct(story, "delta"), "δ", at=0.94)
    top = 1.25 * max(_greatest(curves), *_distinct(story, "delta"))
    axes.set_ylim(-0.03 * top, min(top, 1.03))
    _percentages(axes)


def _draw_calibration(axes: Axes, story: Story, name: str, drawstyle: Any = "default") -> list[Curve]:
    curves = [run.calibration.get(name, EMPTY) for run in story.runs]
    for i, (run, curve) in enumerate(zip(story.runs, curves, strict=True)):
        _line(axes, curve, story.colour(i), drawstyle=drawstyle)
        _mark_divergence(axes, run, curve, story.colour(i))
    _label_updates(axes, story, ticks=3)
    axes.set_xlabel("updates")
    return curves


def _draw_distributions(axes: Sequence[Axes], story: Story) -> None:
    last = last_distributions(story)
    step = max((step for run in story.runs for step in run.distributions), default=0)
    low, high = min(_distinct(story, "tau_min")), max(_distinct(story, "tau_max"))
    room = max(high - low, 0.02)
    ranges: dict[str, Callable[[float, float], tuple[float, float]]] = {
        "sigma": lambda least, most: (0.0, most),
        "u": lambda least, most: (0.0, max(1.3, most)),
        "tau": lambda least, most: (low, high) if high > low else (low - 0.01, high + 0.01),
        "delta": lambda least, most: (least, most),
    }
    titles = {"sigma": "σ(s), disagreement", "u": "u(s) = σ / q̂", "tau": "τ(s), expectile", "delta": "Δ(s), spread"}
    for panel, (name, title) in zip(axes, titles.items(), strict=True):
        panel.set_title(title)
        histograms = {i: found[name] for i, found in last.items() if name in found and len(found[name].counts)}
        if not histograms:
            _say(panel, "nothing finite\nrecorded" if any(name in found for found in last.values()) else "not trained")
            continue
        bounds = ranges[name](
            min(float(h.edges[0]) for h in histograms.values()), max(float(h.edges[-1]) for h in histograms.values())
        )
        _draw_shapes(panel, histograms, bounds, story)
    axes[0].set_ylabel(f"share of states, {step:,} updates")
    _mark_value(axes[1], 1.0, "u = 1")
    for bound in sorted({high, *_distinct(story, "tau_max")}):
        _mark_value(axes[2], bound, _typeset(f"τ_max = {bound:g}"))
    axes[2].set_xlim(low - 0.06 * room, high + 0.06 * room)
    if high > low:
        axes[2].set_xticks([low, (low + high) / 2, high], [f"{tick:g}" for tick in (low, (low + high) / 2, high)])


def _draw_shapes(axes: Axes, histograms: Mapping[int, Histogram], bounds: tuple[float, float], story: Story) -> None:
    least, most = bounds
    grid = np.linspace(least, most if most > least else least + 1.0, BINS + 1)
    shares = {i: rebinned(histogram, grid) for i, histogram in histograms.items()}
    for i, share in shares.items():
        axes.stairs(share, grid, fill=True, color=story.colour(i), alpha=0.22, linewidth=0)
        axes.stairs(share, grid, color=story.colour(i), linewidth=1.0)
    axes.set_ylim(0, 1.2 * max(share.max() for share in shares.values()))
    _percentages(axes, ticks=3)
    axes.xaxis.set_major_locator(MaxNLocator(3))


# Strokes

HALO = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 0.8}
EMPTY = Curve(np.asarray([], np.int64), np.asarray([], np.float64))


def _figure(height: float, header: float) -> Figure:
    """A canvas with `header` inches kept free at the top."""
    layout = ConstrainedLayoutEngine(rect=(0.005, 0.005, 0.99, 1 - header / height - 0.005), w_pad=0.06, h_pad=0.06)
    return Figure(figsize=(WIDTH, height), layout=layout)


def _header(figure: Figure, story: Story, subject: str, details: Sequence[str]) -> None:
    height = figure.get_figheight()
    names = list(dict.fromkeys(str(run.data["name"]) for run in story.runs))
    on = names[0] if len(names) == 1 else f"{len(names)} data sets"
    title = f"{story.algorithm.upper()} on {on}: {subject}"
    figure.text(0.012, 1 - 0.26 / height, title, fontsize=13, fontweight="bold", va="center")
    number = len(story.runs)
    runs = count(number, "seed" if story.replicated or number == 1 else "run")
    diverged = sum(run.diverged is not None for run in story.runs)
    runs += f", {diverged} diverged" if diverged else ""
    data = []
    if len(names) == 1:
        episodes = story.runs[0].data["episodes"]
        plural = "s" if episodes != 1 else ""
        data = [f"trained on {story.runs[0].data['transitions']:,} transitions of {episodes:,} episode{plural}"]
    line = "   ·   ".join([*details, runs, *data])
    figure.text(0.012, 1 - 0.52 / height, line, color=QUIET, fontsize=8.5, va="center")


def _name(run: RunStory) -> str:
    return f"seed {run.label}" if run.label.isdigit() else run.label


def _line(
    axes: Axes, curve: Curve, colour: str, thin: bool = True, style: Any = "-", drawstyle: str = "default"
) -> None:
    finite = np.isfinite(curve.values)
    marker = "o" if finite.sum() == 1 else None
    axes.plot(
        curve.steps, curve.values, color=colour, linewidth=1.0 if thin else 1.8, linestyle=style, drawstyle=drawstyle,
        marker=marker, markersize=3.5, solid_joinstyle="round",
    )  # fmt: skip


def _mark_divergence(axes: Axes, run: RunStory, curve: Curve, colour: str) -> Line2D | None:
    """An x where a run stopped: at its last value, or at the foot of the panel when it never had one."""
    if run.diverged is None:
        return None
    finite = curve.values[np.isfinite(curve.values)]
    if len(finite):
        step = curve.steps[np.isfinite(curve.values)][-1]
        axes.plot([step, run.diverged], [finite[-1]] * 2, color=colour, linewidth=1.0, linestyle=":")
        place: dict[str, Any] = {}
    else:
        place = {"transform": axes.get_xaxis_transform()}
    y = finite[-1] if len(finite) else 0.05
    (mark,) = axes.plot(
        [run.diverged], [y], "x", color=colour, markersize=7, markeredgewidth=2, zorder=6, clip_on=False, **place
    )
    return mark


def _label_updates(axes: Axes, story: Story, ticks: int) -> None:
    axes.set_xlim(0, story.plan["steps"])
    axes.xaxis.set_major_locator(MaxNLocator(ticks, steps=[1, 2, 5, 10], integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda step, _: thousands(step)))


def _percentages(axes: Axes, ticks: int = 5) -> None:
    axes.yaxis.set_major_locator(MaxNLocator(ticks, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:.4g} %"))


def _typeset(text: str) -> str:
    return text.replace("τ_max", r"$τ_{\mathrm{max}}$")


def _label_ends(axes: Axes, ends: Sequence[tuple[float, str, str, bool]]) -> None:
    """Names and last values at the right edge, moved apart where they would overlap."""
    ordered = sorted(ends)
    low, high = axes.get_ylim()
    heights = spread_apart([(end[0] - low) / (high - low) for end in ordered], gap=0.065)
    for height, (_, text, colour, bold) in zip(heights, ordered, strict=True):
        axes.annotate(
            text, (1, height), xycoords="axes fraction", xytext=(8, 0), textcoords="offset points",
            va="center", color=colour, fontweight="bold" if bold else "normal", fontsize=9 if bold else 8.5,
        )  # fmt: skip


def spread_apart(heights: Sequence[float], gap: float) -> list[float]:
    """Ascending heights at least `gap` apart, each group of crowded ones centred on where it wanted to be."""
    groups: list[list[float]] = []
    for height in heights:
        groups.append([height])
        while len(groups) > 1 and _bottom(groups[-1], gap) - _top(groups[-2], gap) < gap:
            crowded = groups.pop()
            groups[-1] += crowded
    return [_bottom(group, gap) + i * gap for group in groups for i in range(len(group))]


def _bottom(group: Sequence[float], gap: float) -> float:
    return sum(group) / len(group) - gap * (len(group) - 1) / 2


def _top(group: Sequence[float], gap: float) -> float:
    return _bottom(group, gap) + gap * (len(group) - 1)


def _greatest(curves: Sequence[Curve]) -> float:
    return max((float(np.nanmax(curve.values)) for curve in curves if np.isfinite(curve.values).any()), default=0.0)


def _log_if_wide(axes: Axes, curves: Sequence[Curve]) -> None:
    values = np.concatenate([curve.values for curve in curves] or [EMPTY.values])
    values = values[np.isfinite(values)]
    if len(values) and values.min() > 0 and values.max() > LOG_RATIO * values.min():
        axes.set_yscale("log")
        decades = np.log10(values.max() / values.min())
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 3.0) if decades < 2 else (1.0,), numticks=5))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: thousands(value)))
    else:
        axes.yaxis.set_major_locator(MaxNLocator(4))


def _legend(axes: Axes, story: Story) -> None:
    if len(story.runs) > len(PALETTE):
        return
    for i, run in enumerate(story.runs):
        diverged = " (× diverged)" if run.diverged is not None else ""
        axes.plot([], [], color=story.colour(i), linewidth=2, label=_name(run) + diverged)
    axes.legend(frameon=False, fontsize=8, handlelength=1.1, labelcolor=QUIET, borderaxespad=0.2, loc="best")


def _reference(axes: Axes, heights: Sequence[float], text: str, at: float) -> None:
    """Dashed lines, named in the corner of the panel where the curves are not."""
    for height in heights:
        axes.axhline(height, color=INK, linewidth=0.9, linestyle=(0, (4, 2)), zorder=1)
    values = ", ".join(f"{height:g}" for height in heights)
    place: Any = {"transform": axes.transAxes, "ha": "right", "va": "center"}
    axes.text(1, at, f"dashed: {text} = {values}", fontsize=8, bbox=HALO, **place)


def _mark_value(axes: Axes, value: float, text: str) -> None:
    axes.axvline(value, color=INK, linewidth=0.9, linestyle=(0, (4, 2)))
    axes.annotate(
        text, (value, 1), xycoords=("data", "axes fraction"), xytext=(-4, -1), textcoords="offset points",
        ha="right", va="top", fontsize=8,
    )  # fmt: skip


def _say(axes: Axes, sentence: str) -> None:
    centred: Any = {"transform": axes.transAxes, "ha": "center", "va": "center"}
    axes.text(0.5, 0.5, sentence, color=QUIET, fontsize=9, linespacing=1.5, **centred)
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(False)


def _distinct(story: Story, name: str) -> list[float]:
    return sorted({float(run.config[name]) for run in story.runs})


def _values(story: Story, name: str) -> str:
    return ", ".join(f"{value:g}" for value in _distinct(story, name)) if name in story.runs[0].config else "none"
