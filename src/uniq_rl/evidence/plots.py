"""The figures of the evidence, each from raw results alone, as PNG and SVG; what is not there yet, the figure says."""

import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from uniq_rl.evidence.figures import (
    FAINT,
    HALO,
    INK,
    MARK,
    PALETTE,
    QUIET,
    STYLE,
    _figure,
    _log_if_wide,
    _percentages,
    _say,
    png,
)
from uniq_rl.evidence.figures import Curve as Series
from uniq_rl.evidence.mechanism import error_correlation, error_curve, mapped, promised
from uniq_rl.evidence.results import RunResult
from uniq_rl.evidence.statistics import (
    Interval,
    average,
    by_set,
    compared,
    gain,
    longest,
    performance_profile,
    probability_of_improvement,
    sample_std,
)
from uniq_rl.evidence.tables import COST_NAMES, budget, configurations, ordered_columns, read_costs, relative, widest
from uniq_rl.evidence.variants import IQL, LEADING, METHODS, ONE, SETS, TASKS, UNIQ, label, on_sets
from uniq_rl.evidence.wording import percent, thousands
from uniq_rl.storage import write_atomically

COLOURS = {
    UNIQ: PALETTE[0],
    IQL: PALETTE[1],
    ONE: PALETTE[2],
    "bc": "#8c8c8c",
    "td3_bc": PALETTE[3],
    "cql": PALETTE[4],
    "rebrac": PALETTE[5],
    "sac_n": "#7a5195",
    "edac": "#5a3d1e",
    "dt": "#a3a500",
}
TASK_COLOURS = dict(zip(TASKS, (PALETTE[0], PALETTE[1], PALETTE[2]), strict=True))
KIND_LINES: dict[str, Any] = {"medium": "-", "medium-replay": (0, (4, 1.5)), "medium-expert": (0, (1, 1.2))}
TAU = LinearSegmentedColormap.from_list("tau", ["#b2182b", "#e69f00", "#d9ecf5", "#0072b2"])
"""From tau_min, where the method is careful, to tau_max, where it is bold."""
THRESHOLDS = np.linspace(0, 120, 121)
HEADER = 0.74


def draw_all(
    results: Sequence[RunResult], folder: str | Path, costs: Mapping[str, Any] | None = None
) -> dict[str, Path]:
    """Every figure by its short name; the PNG's path, the SVG lies beside it."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    costs = read_costs() if costs is None else costs
    return {
        "figure-1b": draw_gaps(results, folder / "figure-1b"),
        "figure-2": draw_curves(results, folder / "figure-2"),
        "calibration": draw_calibration(results, folder / "calibration"),
        "tau-maps": draw_tau_maps(results, folder / "tau-maps"),
        "tau-maps-one": draw_tau_maps(results, folder / "tau-maps-one", ONE),
        "sigma-error": draw_errors(results, folder / "sigma-error"),
        "score-cost": draw_score_cost(results, folder / "score-cost", costs),
        "profiles": draw_profiles(results, folder / "profiles"),
    }


def save(stem: str | Path, height: float, draw: Callable[[Figure], None]) -> Path:
    """Draw into `stem`.png and `stem`.svg; the same results give the same bytes."""
    stem = Path(stem)
    path = stem.with_name(f"{stem.name}.png")
    with mpl.rc_context({**STYLE, "svg.hashsalt": "uniq-rl"}):
        figure = _figure(height, HEADER)
        draw(figure)
        write_atomically(path, png(figure))
        buffer = io.BytesIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
        write_atomically(path.with_suffix(".svg"), buffer.getvalue())
    return path


# Figure 1b


def draw_gaps(results: Sequence[RunResult], stem: str | Path) -> Path:
    """UNIQ minus IQL on each set, with a dot for each seed."""
    found = compared(on_sets(results, SETS), UNIQ, IQL)

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        if found is None:
            _titled(figure, "UNIQ minus IQL", "Figure 1b")
            _say(axes, "There are no runs of UNIQ and IQL\nat the same budget on the same set yet.")
            return
        ours, theirs = by_set(found.ours), by_set(found.theirs)
        sets = [name for name in SETS if name in found.sets]
        gaps = [gain(ours[name], theirs[name]).point for name in sets]
        heights = np.arange(len(sets))[::-1]
        colours = [PALETTE[0] if gap > 0 else MARK for gap in gaps]
        axes.barh(heights, gaps, height=0.62, color=colours, alpha=0.55, linewidth=0)
        reach = [*gaps, 0.0]
        for height, name in zip(heights, sets, strict=True):
            dots = _seed_gaps(ours[name], theirs[name])
            reach += dots
            axes.plot(dots, np.full(len(dots), height), "o", color=INK, markersize=3.6, alpha=0.75, zorder=4)
        axes.axvline(0, color=INK, linewidth=0.9)
        room = 0.16 * max(max(reach) - min(reach), 1.0)
        axes.set_xlim(min(reach) - room, max(reach) + room)
        for height, gap, name in zip(heights, gaps, sets, strict=True):
            dots = [*_seed_gaps(ours[name], theirs[name]), gap, 0.0]
            end, side = (max(dots), "left") if gap > 0 else (min(dots), "right")
            axes.annotate(
                f"{gap:+.1f}".replace("-", "−"), (end, height), xytext=(6 if gap > 0 else -6, 0), va="center",
                textcoords="offset points", ha=side, color=PALETTE[0] if gap > 0 else MARK, fontweight="bold",
            )  # fmt: skip
        absent = [name for name in SETS if name not in sets]
        axes.set_yticks(heights, sets)
        axes.tick_params(axis="y", length=0, labelcolor=INK)
        axes.set_xlabel("difference of the D4RL normalised score at the last evaluation")
        axes.grid(axis="x", color=FAINT, linewidth=0.6)
        axes.set_axisbelow(True)
        axes.spines["left"].set_visible(False)
        above = sum(gap > 0 for gap in gaps)
        total, chance = gain(found.ours, found.theirs), probability_of_improvement(found.ours, found.theirs)
        line = [f"{budget(found.steps)}", "bar: difference of means", "dot: a seed"]
        line += [f"average {_ranged(total, '+.1f')}", f"P(better) {_ranged(chance, '.2f')}"]
        line += [f"not run: {', '.join(absent)}"] if 0 < len(absent) <= 2 else []
        line += [f"{len(absent)} sets not run"] if len(absent) > 2 else []
        _titled(figure, f"UNIQ minus IQL: above on {above} of {len(sets)} sets", "   ·   ".join(line))

    return save(stem, 4.6, draw)


def _seed_gaps(ours: Sequence[RunResult], theirs: Sequence[RunResult]) -> list[float]:
    """Differences of runs with the same seed."""
    other = {run.recipe.seed: run.last for run in theirs}
    return [run.last - other[run.recipe.seed] for run in ours if run.recipe.seed in other]


# Figure 2


def draw_curves(results: Sequence[RunResult], stem: str | Path) -> Path:
    """Nine panels of learning curves, mean and standard deviation over seeds."""
    nine = on_sets(results, SETS)
    found = compared(nine, UNIQ, IQL)
    steps = found.steps if found else max((run.recipe.steps for run in nine if run.variant in (UNIQ, IQL)), default=0)

    def draw(figure: Figure) -> None:
        shown = [name for name in LEADING if any(_at(nine, name, steps))]
        panels = _nine_panels(figure)
        for name, axes in panels.items():
            axes.set_title(name)
            drawn = {variant: on_sets(_at(nine, variant, steps), [name]) for variant in shown}
            for variant in [variant for variant in shown if drawn[variant]]:
                _draw_band(axes, drawn[variant], COLOURS[variant])
            if not any(drawn.values()):
                _say(axes, "not run")
                continue
            axes.set_xlim(0, steps)
            axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10], integer=True))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda step, _: thousands(step)))
            axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
            axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
            axes.grid(axis="y", color=FAINT, linewidth=0.6)
        line = (
            [budget(steps), "D4RL normalised score", "line: mean over seeds", "band: ± sample standard deviation"]
            if shown
            else []
        )
        _titled(figure, "Learning curves of UNIQ and IQL", "   ·   ".join(line) or "neither was run yet")
        _key(figure, [(label(variant), COLOURS[variant]) for variant in shown])

    return save(stem, 6.9, draw)


def _draw_band(axes: Axes, runs: Sequence[RunResult], colour: str) -> None:
    steps, mean, std = band(runs)
    axes.fill_between(steps, mean - std, mean + std, color=colour, alpha=0.18, linewidth=0)
    axes.plot(steps, mean, color=colour, linewidth=1.5, marker="o" if len(steps) == 1 else None, markersize=3)


def band(runs: Sequence[RunResult]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean and sample std of the score at each step that all seeds have; a run scores 0 once it diverged."""
    curves = [{line["step"]: line["score"] or 0.0 for line in run.evaluations} for run in runs]
    steps = sorted(set.intersection(*(set(curve) for curve in curves)))
    values = np.array([[curve[step] for step in steps] for curve in curves])
    spread = np.array([sample_std(column) for column in values.T]) if len(runs) > 1 else np.zeros(len(steps))
    return np.array(steps), values.mean(axis=0), spread


# Calibration


def draw_calibration(results: Sequence[RunResult], stem: str | Path) -> Path:
    """q_hat, coverage on unseen episodes and share of u > 1 over training: one line per set, a row per variant."""
    nine = on_sets(results, SETS)
    variants = [name for name in (UNIQ, ONE) if any(run.calibration for run in longest(nine, name))] or [UNIQ]

    def draw(figure: Figure) -> None:
        grid = figure.add_gridspec(len(variants), 3)
        for row, variant in enumerate(variants):
            runs = [run for run in longest(nine, variant) if run.calibration]
            axes = [figure.add_subplot(grid[row, i]) for i in range(3)]
            front = f"{label(variant)}: " if len(variants) > 1 else ""
            titles = (f"{front}q̂", "coverage on unseen episodes", "states with u > 1")
            for panel, key, title in zip(axes, ("q_hat", "coverage", "u_above_1"), titles, strict=True):
                panel.set_title(title)
                _draw_quantity(panel, runs, key)
        steps = [budget(longest(nine, name)[0].recipe.steps) for name in variants if longest(nine, name)]
        line = ["mean over seeds", *dict.fromkeys(steps)] if steps else ["UNIQ was not run yet"]
        _titled(figure, "Calibration over training", "   ·   ".join(line))
        _sets_key(figure, [run.set for name in variants for run in longest(nine, name)])

    return save(stem, 0.9 + 2.6 * len(variants), draw)


def _draw_quantity(axes: Axes, runs: Sequence[RunResult], key: str) -> None:
    curves = {name: mean_curve(seeds, key) for name, seeds in by_set(runs).items()}
    curves = {name: curve for name, curve in curves.items() if len(curve.steps)}
    if not curves:
        _say(axes, "not recorded")
        return
    for name in [name for name in SETS if name in curves]:
        colour, style = _set_style(name)
        axes.plot(*curves[name], color=colour, linestyle=style, linewidth=1.3)
    values = np.concatenate([curve.values for curve in curves.values()])
    axes.set_xlim(0, max(run.recipe.steps for run in runs))
    axes.xaxis.set_major_locator(MaxNLocator(3, steps=[1, 2, 5, 10], integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda step, _: thousands(step)))
    axes.set_xlabel("updates")
    axes.grid(axis="y", color=FAINT, linewidth=0.6)
    if key == "q_hat":
        _log_if_wide(axes, list(curves.values()))
        if axes.get_yscale() == "linear":
            axes.set_ylim(0, 1.2 * values.max())
        return
    wanted = sorted({promised(run) if key == "coverage" else 1 - promised(run) for run in runs})
    for height in wanted:
        axes.axhline(height, color=INK, linewidth=1.0, linestyle=(0, (4, 2)), zorder=1)
    text = "promised" if key == "coverage" else "δ"
    low, high = min(values.min(), *wanted), max(values.max(), *wanted)
    room = max(0.25 * (high - low), 0.02)
    axes.set_ylim(max(low - room, -0.03 * (high + room)), min(high + room, 1.02))
    _percentages(axes)
    heights = ", ".join(percent(height) for height in wanted)
    axes.annotate(
        f"{text}: {heights}", (1, wanted[-1]), xycoords=("axes fraction", "data"),
        xytext=(-2, 7), textcoords="offset points", ha="right", va="center", fontsize=8, bbox=HALO,
    )  # fmt: skip


def mean_curve(runs: Sequence[RunResult], key: str) -> Series:
    """Mean over the seeds that have the quantity at a step, from the first update on: before it, heads are random."""
    known: dict[int, list[float]] = {}
    for run in runs:
        for line in run.calibration:
            if line["step"] and line.get(key) is not None:
                known.setdefault(int(line["step"]), []).append(float(line[key]))
    steps = sorted(known)
    return Series(np.array(steps, np.int64), np.array([np.mean(known[step]) for step in steps]))


# Maps


def draw_tau_maps(results: Sequence[RunResult], stem: str | Path, variant: str = UNIQ) -> Path:
    """tau(s) of some states on the plane of two principal components, one panel per set, of one seed."""
    runs = [run for run in longest(on_sets(results, SETS), variant) if len(mapped(run)["tau"])]

    def draw(figure: Figure) -> None:
        panels = _nine_panels(figure)
        low = min((float(run.recipe.config.get("tau_min", mapped(run)["tau"].min())) for run in runs), default=0.5)
        high = max((float(run.recipe.config.get("tau_max", mapped(run)["tau"].max())) for run in runs), default=0.9)
        norm = Normalize(low, high if high > low else low + 0.01)
        for name, axes in panels.items():
            axes.set_title(name)
            seeds = sorted(on_sets(runs, [name]), key=lambda run: run.recipe.seed)
            if not seeds:
                _say(axes, "no map of τ(s) recorded")
                continue
            _draw_map(axes, seeds[0], norm)
        if runs:
            bar = figure.colorbar(ScalarMappable(norm, TAU), ax=list(panels.values()), shrink=0.6, aspect=30, pad=0.015)
            bar.set_label("τ(s)")
            bar.outline.set_visible(False)
        seeds_shown = sorted({run.recipe.seed for run in runs})[:1]
        seen = any((run.diagnosis["map"].get("states") or "held-out") != "held-out" for run in runs)
        which = "states, some of them seen in training" if seen else "states of unseen episodes"
        line = [f"{which}, two principal components", *(f"seed {seed}" for seed in seeds_shown)]
        line += [budget(runs[0].recipe.steps)] if runs else ["nothing recorded yet"]
        _titled(figure, f"Where {label(variant)} is careful: maps of τ(s)", "   ·   ".join(line))

    return save(stem, 6.9, draw)


def _draw_map(axes: Axes, run: RunResult, norm: Normalize) -> None:
    states = mapped(run)
    order = np.argsort(-states["tau"], kind="stable")  # careful ones on top
    axes.scatter(
        states["x"][order], states["y"][order], c=states["tau"][order], cmap=TAU, norm=norm, s=9, linewidths=0.25,
        edgecolors=QUIET,
    )  # fmt: skip
    axes.set_xticks([])
    axes.set_yticks([])
    text = f"τ from {states['tau'].min():.2f} to {states['tau'].max():.2f}"
    place: Any = {"transform": axes.transAxes, "ha": "right", "va": "bottom"}
    axes.text(0.99, 0.02, text, fontsize=7.5, color=QUIET, bbox=HALO, **place)


# Error


def draw_errors(results: Sequence[RunResult], stem: str | Path) -> Path:
    """Does disagreement predict error? Error against groups of states in the order of sigma, and rank correlations."""
    runs = longest(on_sets(results, SETS), UNIQ)
    curved = [run for run in runs if len(error_curve(run)["error"])]
    ranked = [run for run in runs if error_correlation(run) is not None]

    def draw(figure: Figure) -> None:
        grid = figure.add_gridspec(1, 2, width_ratios=(1.25, 1))
        left, right = (figure.add_subplot(grid[0, i]) for i in range(2))
        left.set_title("error of the value, relative to its mean on the set")
        right.set_title("rank correlation of σ with the error")
        if curved:
            for name in [name for name in SETS if name in by_set(curved)]:
                seeds = [error_curve(run)["error"] for run in by_set(curved)[name]]
                shortest = min(len(errors) for errors in seeds)
                curve = np.mean([errors[:shortest] / max(errors.mean(), 1e-12) for errors in seeds], axis=0)
                colour, style = _set_style(name)
                left.plot(np.arange(1, shortest + 1), curve, color=colour, linestyle=style, linewidth=1.4)
            left.axhline(1, color=INK, linewidth=0.8)
            left.set_xlabel("tenth of the unseen states, from the least σ to the greatest")
            left.set_ylim(bottom=0)
            left.xaxis.set_major_locator(MaxNLocator(10, integer=True))
            left.grid(axis="y", color=FAINT, linewidth=0.6)
        else:
            _say(left, "no error on unseen episodes recorded")
        if ranked:
            _draw_correlations(right, ranked)
        else:
            _say(right, "no rank correlation recorded")
        line = "a flat line: σ says nothing about the error; a rising one: it does"
        _titled(figure, "σ against true error", line if runs else "UNIQ was not run yet")
        _sets_key(figure, [run.set for run in curved])

    return save(stem, 4.2, draw)


def _draw_correlations(axes: Axes, runs: Sequence[RunResult]) -> None:
    sets = [name for name in SETS if name in by_set(runs)]
    heights = np.arange(len(sets))[::-1]
    for height, name in zip(heights, sets, strict=True):
        values = [error_correlation(run) or 0.0 for run in by_set(runs)[name]]
        mean = float(np.mean(values))
        colour = _set_style(name)[0]
        axes.plot([0, mean], [height, height], color=colour, linewidth=5, alpha=0.45, solid_capstyle="butt")
        axes.plot(values, np.full(len(values), height), "o", color=INK, markersize=3.4, alpha=0.75)
        axes.annotate(
            f"{mean:+.2f}".replace("-", "−"), (1.0, height), xycoords=("axes fraction", "data"), xytext=(2, 0),
            textcoords="offset points", va="center", ha="left", color=colour, fontweight="bold", fontsize=8,
        )  # fmt: skip
    known = [error_correlation(run) or 0.0 for run in runs]
    axes.axvline(0, color=INK, linewidth=0.9)
    axes.set_xlim(min(-0.15, min(known) - 0.05), max(0.5, max(known) + 0.05))
    axes.set_ylim(-0.6, len(sets) - 0.4)
    axes.set_yticks(heights, sets)
    axes.tick_params(axis="y", length=0, labelcolor=INK, labelsize=7.5)
    axes.set_xlabel("Spearman's; bar: mean, dot: a seed")
    axes.grid(axis="x", color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines["left"].set_visible(False)


# Cost


def draw_score_cost(results: Sequence[RunResult], stem: str | Path, costs: Mapping[str, Any] | None = None) -> Path:
    """Average score against the time of an update; up and to the left is better."""
    costs = read_costs() if costs is None else costs
    points = score_cost_points(results, costs)

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        if not points:
            measured = "the cost of updates was not measured" if not costs else "no method has both a cost and a score"
            _titled(figure, "Score against cost", "Table 2 as a picture")
            _say(axes, f"Nothing to show yet: {measured}.")
            return
        for _, time, score, colour, full in points:
            axes.plot([time], [score], "o", color=colour, markersize=8, markerfacecolor=colour if full else "white")
        times = [point[1] for point in points]
        axes.set_xscale("log", base=2)
        axes.set_xlim(min(times) / 1.4, max(times) * 2.4)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}×"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.margins(y=0.15)
        low, high = axes.get_ylim()
        heights = label_heights(points, gap=0.045 * (high - low))
        for (name, time, _, colour, _), height in zip(points, heights, strict=True):
            axes.annotate(name, (time, height), xytext=(8, 0), textcoords="offset points", va="center", color=colour)
        axes.grid(color=FAINT, linewidth=0.6)
        axes.set_axisbelow(True)
        axes.set_xlabel("time of an update, relative to IQL's (one run)")
        axes.set_ylabel("average score, last evaluation")
        device = (costs.get("hardware") or {}).get("device", "unknown hardware")
        line = f"time measured on {device}   ·   hollow: fewer than nine sets   ·   budgets in brackets"
        _titled(figure, "Score against cost", line)

    return save(stem, 4.6, draw)


def score_cost_points(
    results: Sequence[RunResult], costs: Mapping[str, Any]
) -> list[tuple[str, float, float, str, bool]]:
    """Name, relative time, average score, colour, and whether all nine sets count, of each method that has both."""
    found = ordered_columns(on_sets(results, SETS), METHODS)
    points = []
    for method, name in METHODS.items():
        runs = widest(found, method)
        for configuration in configurations(costs, UNIQ if method == ONE else method):
            time = relative(costs, configuration, 1, "microseconds_per_update")
            if time is not None and runs:
                text = f"{COST_NAMES.get(configuration, name)} ({thousands(runs[0].recipe.steps)})"
                points.append((text, time, average(runs), COLOURS[method], len(by_set(runs)) == len(SETS)))
    return points


def label_heights(points: Sequence[tuple[str, float, float, str, bool]], gap: float) -> list[float]:
    """Where the names go: beside their points, raised above lower names and points they would cover."""
    placed: list[tuple[float, float]] = []
    heights = [0.0] * len(points)
    for i in sorted(range(len(points)), key=lambda i: (points[i][2], i)):
        time, height = points[i][1], points[i][2]
        ahead = [(point[1], point[2]) for point in points if 1 < point[1] / time < 4]
        for other, below in sorted(placed + ahead, key=lambda place: place[1]):
            if 0.25 < other / time < 4 and abs(height - below) < gap:
                height = below + gap
        placed.append((time, height))
        heights[i] = height
    return heights


# Profiles


def draw_profiles(results: Sequence[RunResult], stem: str | Path) -> Path:
    """Share of runs above each score, of the methods with IQL's budget."""
    nine = on_sets(results, SETS)
    steps = max((run.recipe.steps for run in nine if run.variant == IQL), default=0)
    steps = steps or max((run.recipe.steps for run in nine if run.variant in METHODS), default=0)

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        found = {v: runs for (v, s), runs in ordered_columns(nine, METHODS).items() if s == steps}
        complete = {variant: runs for variant, runs in found.items() if len(by_set(runs)) == len(SETS)}
        if not complete:
            _titled(figure, "Performance profiles", "share of runs above a score")
            _say(axes, "No method was run on all nine sets\nat one budget yet.")
            return
        entries = []
        for variant, runs in complete.items():
            profile = performance_profile(runs, THRESHOLDS)
            colour = COLOURS[variant]
            if np.isfinite(profile.low).all():
                axes.fill_between(profile.thresholds, profile.low, profile.high, color=colour, alpha=0.13, linewidth=0)
            axes.plot(profile.thresholds, profile.point, color=colour, linewidth=1.7)
            entries.append((f"{label(variant)}  {average(runs):.1f}", colour))
        for text, colour in entries:
            axes.plot([], [], color=colour, linewidth=2.5, label=text)
        axes.legend(
            frameon=False, loc="upper left", bbox_to_anchor=(1, 1), handlelength=1.2, title="average score",
            title_fontsize=8, alignment="left",
        )  # fmt: skip
        axes.set_xlim(THRESHOLDS[0], THRESHOLDS[-1])
        axes.set_ylim(0, 1.02)
        _percentages(axes)
        axes.grid(color=FAINT, linewidth=0.6)
        axes.set_xlabel("D4RL normalised score")
        axes.set_ylabel("share of runs above it")
        partial = [label(variant) for variant in found if variant not in complete]
        line = [f"{budget(steps)}, last evaluation", "band: 95 % of stratified bootstraps"]
        line += [f"without all nine sets, left out: {', '.join(partial)}"] if partial else []
        _titled(figure, "Performance profiles over the nine sets", "   ·   ".join(line))

    return save(stem, 4.6, draw)


# Strokes


def _titled(figure: Figure, title: str, line: str) -> None:
    height = figure.get_figheight()
    figure.text(0.012, 1 - 0.26 / height, title, fontsize=13, fontweight="bold", va="center")
    figure.text(0.012, 1 - 0.52 / height, line, color=QUIET, fontsize=8.5, va="center")


def _key(figure: Figure, entries: Sequence[tuple[str, str]]) -> None:
    """Names in their colours, at the right of the title."""
    place = 0.988
    for text, colour in reversed(entries):
        drawn = figure.text(
            place, 1 - 0.26 / figure.get_figheight(), text, color=colour, ha="right", va="center", fontweight="bold",
            fontsize=10,
        )  # fmt: skip
        place -= 0.012 * len(drawn.get_text()) + 0.02


def _sets_key(figure: Figure, sets: Sequence[str]) -> None:
    """Colours for tasks and strokes for kinds, at the right of the title."""
    if not sets:
        return
    entries: list[tuple[str, Any, Any]] = [
        (task, colour, "-") for task, colour in TASK_COLOURS.items() if any(name.startswith(task) for name in sets)
    ]
    kinds = {name.partition("-")[2] for name in sets}
    entries += [(kind, QUIET, style) for kind, style in KIND_LINES.items() if kind in kinds]
    handles = [mpl.lines.Line2D([], [], color=c, linestyle=s, linewidth=1.8, label=text) for text, c, s in entries]
    figure.legend(
        handles=handles, loc="upper right", bbox_to_anchor=(0.995, 1 - 0.08 / figure.get_figheight()), frameon=False,
        ncols=2, fontsize=8, labelcolor=QUIET, handlelength=2.2, columnspacing=1.2, borderaxespad=0, labelspacing=0.2,
    )  # fmt: skip


def _nine_panels(figure: Figure) -> dict[str, Axes]:
    return dict(zip(SETS, figure.subplots(3, 3).ravel(), strict=True))


def _set_style(name: str) -> tuple[str, Any]:
    task, _, kind = name.partition("-")
    return TASK_COLOURS[task], KIND_LINES[kind]


def _at(results: Sequence[RunResult], variant: str, steps: int) -> list[RunResult]:
    return [run for run in results if (run.variant, run.recipe.steps) == (variant, steps)]


def _ranged(interval: Interval, spec: str) -> str:
    text = f"{interval.point:{spec}}"
    if np.isfinite(interval.low):
        text += f" [{interval.low:{spec}}, {interval.high:{spec}}]"
    return text.replace("-", "−")
