"""A picture of a data set: how good its episodes are, how long they last, which states they visit, where they end."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from uniq_rl.data.checks import Array
from uniq_rl.data.dataset import Dataset
from uniq_rl.evidence.figures import FAINT, HALO, INK, PALETTE, QUIET, STYLE, _figure, png
from uniq_rl.evidence.wording import percent
from uniq_rl.physics.scores import REFERENCE, score
from uniq_rl.storage import write_atomically

HEIGHT, HEADER = 6.7, 0.72
DATA, TERMINATED, TRUNCATED = PALETTE[2], PALETTE[5], PALETTE[0]
DENSITY = LinearSegmentedColormap.from_list("density", ["#d3ece3", "#7cc8ae", "#009e73", "#00614a", "#00231b"])
SHADE = LinearSegmentedColormap.from_list("shade", ["#f1f1f1", "#d6d6d6", "#b5b5b5"])
BINS = 40
CELLS = (20, 100)
"""Fewest and most cells along each side of the map; in between they grow with the data."""
DRAWN_ENDS = 2000
"""Final states of each kind that are drawn; of more, evenly spaced ones."""
FITTED_ROWS = 250_000
"""Principal components are found from at most so many rows, evenly spaced."""
CHUNK = 65_536
NAME_LENGTH = 64


class TaskAxes(NamedTuple):
    """Two observation columns that say most about a task, and how many columns its observations have."""

    obs_dim: int
    x: int
    y: int


TASK_AXES = {"hopper": TaskAxes(11, 1, 5), "walker2d": TaskAxes(17, 1, 8), "halfcheetah": TaskAxes(17, 1, 8)}
"""Torso pitch and forward velocity."""


@dataclass(frozen=True)
class Plane:
    """The data seen along two axes."""

    labels: tuple[str, str]
    states: tuple[Array, Array]
    """Each [N], float64."""
    ends: tuple[Array, Array]
    """Each [E]: the states in which the episodes ended."""

    def frame(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """Bounds of each axis that leave out nothing but outliers."""
        x, y = (_frame(states, ends) for states, ends in zip(self.states, self.ends, strict=True))
        return x, y


def draw_dataset(dataset: Dataset, path: Path) -> Path:
    """Draw the data set into the PNG file `path`; the same data give the same bytes."""
    with mpl.rc_context(STYLE):
        content = png(dataset_figure(dataset))
    write_atomically(path, content)
    return path


def dataset_figure(dataset: Dataset) -> Figure:
    figure = _figure(HEIGHT, HEADER)
    _draw_header(figure, dataset)
    grid = figure.add_gridspec(2, 2, height_ratios=(1, 1.45), hspace=0.07, wspace=0.05)
    axes = [figure.add_subplot(grid[divmod(i, 2)]) for i in range(4)]
    _draw_returns(axes[0], dataset)
    _draw_lengths(axes[1], dataset)
    plane = choose_plane(dataset)
    frame = plane.frame()
    cells = int(np.clip(np.sqrt(dataset.size) / 3, *CELLS)) | 1  # odd: a constant lies in the middle of a cell
    counts = np.histogram2d(*plane.states, bins=cells, range=frame)[0]
    _draw_coverage(axes[2], plane, frame, counts)
    _draw_ends(axes[3], plane, frame, counts, terminated(dataset))
    return figure


def terminated(dataset: Dataset) -> Array:
    """[E] bool: whether the task ended the episode, rather than the clock or the end of the data."""
    ended: Array = dataset.mask[dataset.episode_bounds[:, 1] - 1] == 0
    return ended


# Axes


def choose_plane(dataset: Dataset) -> Plane:
    """The task's own axes where it has some, else two principal components, else one against time."""
    last = dataset.next_obs[dataset.episode_bounds[:, 1] - 1]
    known = TASK_AXES.get(dataset.task or "")
    if known is not None and known.obs_dim == dataset.obs_dim:
        states, ends = (rows[:, [known.x, known.y]].astype(np.float64) for rows in (dataset.obs, last))
        labels = ("torso pitch (rad)", "forward velocity (m/s)")
        return Plane(labels, (states[:, 0], states[:, 1]), (ends[:, 0], ends[:, 1]))
    components = _Components.of(dataset.obs[:: -(-dataset.size // FITTED_ROWS)])
    states, ends = components.project(dataset.obs), components.project(last)
    if len(components.labels) == 2:
        first, second = components.labels
        return Plane((first, second), (states[:, 0], states[:, 1]), (ends[:, 0], ends[:, 1]))
    time = np.arange(dataset.size) - np.repeat(dataset.episode_starts, dataset.episode_lengths)
    return Plane(
        (components.labels[0], "step of the episode"),
        (states[:, 0], time.astype(np.float64)),
        (ends[:, 0], dataset.episode_lengths.astype(np.float64)),
    )


@dataclass(frozen=True)
class _Components:
    """At most two directions of the observations: (obs - mean) @ axes."""

    labels: tuple[str, ...]
    mean: Array
    axes: Array
    """[obs_dim, 1 or 2]; standardisation is part of them."""

    @classmethod
    def of(cls, obs: Array) -> "_Components":
        varies = np.flatnonzero(obs.max(axis=0) > obs.min(axis=0))
        if len(varies) < 2:  # that column as it is
            column = int(varies[0]) if len(varies) else 0
            return cls((f"observation {column}",), np.zeros(obs.shape[1]), np.eye(obs.shape[1])[:, [column]])
        mean, scale = obs.mean(axis=0, dtype=np.float64), np.ones(obs.shape[1])
        scale[varies] = obs[:, varies].std(axis=0, dtype=np.float64)
        products = np.zeros((len(varies), len(varies)))
        for start in range(0, len(obs), CHUNK):
            scaled = ((obs[start : start + CHUNK] - mean) / scale)[:, varies]
            products += scaled.T @ scaled
        sizes, vectors = np.linalg.eigh(products)
        shares = np.clip(sizes[::-1], 0, None) / sizes.sum()  # eigenvalues ascend
        count = 2 if shares[1] > 1e-9 else 1
        chosen = vectors[:, ::-1][:, :count]
        largest = chosen[np.abs(chosen).argmax(axis=0), np.arange(count)]
        chosen = chosen * np.sign(largest)  # eigenvectors have no sign of their own
        axes = np.zeros((obs.shape[1], count))
        axes[varies] = chosen / scale[varies, None]
        names = (f"principal component {i + 1} ({percent(shares[i])} of variance)" for i in range(count))
        return cls(tuple(names), mean, axes)

    def project(self, obs: Array) -> Array:
        parts = [(obs[start : start + CHUNK] - self.mean) @ self.axes for start in range(0, len(obs), CHUNK)]
        return np.concatenate(parts)


def _frame(states: Array, ends: Array) -> tuple[float, float]:
    common, final = np.percentile(states, [0.1, 99.9]), np.percentile(ends, [1, 99])
    return _widened(float(min(common[0], final[0])), float(max(common[1], final[1])), 0.04)


def _widened(low: float, high: float, margin: float) -> tuple[float, float]:
    """Bounds with some room, and room even where all values are equal."""
    if high - low <= max(1e-9 * max(abs(low), abs(high)), 1e-30):
        room = max(0.5, 0.1 * abs(low))
        return low - room, high + room
    room = margin * (high - low)
    return low - room, high + room


def _outside(values: tuple[Array, Array], frame: tuple[tuple[float, float], tuple[float, float]]) -> Array:
    found: Array = np.zeros(len(values[0]), bool)
    for column, (low, high) in zip(values, frame, strict=True):
        found |= (column < low) | (column > high)
    return found


# Panels


def _draw_header(figure: Figure, dataset: Dataset) -> None:
    name = " ".join(dataset.name.split())
    if len(name) > NAME_LENGTH:
        half = (NAME_LENGTH - 1) // 2
        name = f"{name[:half]}…{name[-half:]}"
    mean, best = float(dataset.episode_returns.mean()), float(dataset.episode_returns.max())
    if dataset.task in REFERENCE:
        quality = f"mean score {score(dataset.task, mean):.1f}, best {score(dataset.task, best):.1f}"
    else:
        quality = f"mean return {_number(mean)}, best {_number(best)}"
    plural = "s" if dataset.episodes != 1 else ""
    rows = "s" if dataset.size != 1 else ""
    details = [f"{dataset.size:,} transition{rows}", f"{dataset.episodes:,} episode{plural}", quality]
    plain: Any = {"va": "center", "parse_math": False}
    figure.text(0.012, 1 - 0.26 / HEIGHT, name, fontsize=13, fontweight="bold", **plain)
    figure.text(0.012, 1 - 0.52 / HEIGHT, "   ·   ".join(details), color=QUIET, fontsize=8.5, **plain)


def _draw_returns(axes: Axes, dataset: Dataset) -> None:
    returns = dataset.episode_returns
    mean, best = float(returns.mean()), float(returns.max())
    low, high = float(returns.min()), best
    equal = high - low <= max(1e-9 * max(abs(low), abs(high)), 1e-30)
    edges = np.linspace(*_widened(low, high, 0.0), (5 if equal else BINS) + 1)
    counts = np.histogram(returns, edges)[0]
    axes.stairs(counts, edges, fill=True, color=DATA, alpha=0.75, linewidth=0)
    axes.set_xlim(_widened(edges[0], edges[-1], 0.03))
    _count_axis(axes, int(counts.max()), "episodes", room=1.32)
    axes.set_title("Returns", y=1.0)
    axes.set_xlabel("return of an episode", labelpad=2)
    _ticks(axes.xaxis)
    if equal:
        _mark(axes, mean, "only episode" if len(returns) == 1 else "all equal", mean, at=0.97)
    else:
        _mark(axes, mean, "mean", mean, at=0.97)
        _mark(axes, best, "best", best, at=0.85)
    if dataset.task in REFERENCE:
        _score_axis(axes, *REFERENCE[dataset.task])


def _score_axis(axes: Axes, low: float, high: float) -> None:
    def to_score(returns: Any) -> Any:
        return 100 * (returns - low) / (high - low)

    def to_return(scores: Any) -> Any:
        return low + scores * (high - low) / 100

    scale = axes.secondary_xaxis(-0.31, functions=(to_score, to_return))
    scale.set_xlabel("D4RL score", labelpad=2)
    _ticks(scale.xaxis)


def _mark(axes: Axes, place: float, name: str, value: float, at: float) -> None:
    """A line with its name beside it, on the side that has more room."""
    axes.axvline(place, color=INK, linewidth=0.9, linestyle=(0, (4, 2)))
    low, high = axes.get_xlim()
    left = place < (low + high) / 2
    axes.annotate(
        f"{name} {_number(value)}", (place, at), xycoords=("data", "axes fraction"), xytext=(4 if left else -4, 0),
        textcoords="offset points", ha="left" if left else "right", va="center", fontsize=8, bbox=HALO,
    )  # fmt: skip


def _draw_lengths(axes: Axes, dataset: Dataset) -> None:
    lengths, ended = dataset.episode_lengths, terminated(dataset)
    low, high = int(lengths.min()), int(lengths.max())
    width = max(1, -(-(high - low + 1) // BINS))
    edges = np.arange(low, high + width + 1, width) - 0.5
    below, above = np.histogram(lengths[ended], edges)[0], np.histogram(lengths[~ended], edges)[0]
    axes.stairs(below, edges, fill=True, color=TERMINATED, alpha=0.85, linewidth=0)
    axes.stairs(below + above, edges, baseline=below, fill=True, color=TRUNCATED, alpha=0.85, linewidth=0)
    room = max(0.03 * (edges[-1] - edges[0]), 2.0 if high - low < 5 else 0.0)
    axes.set_xlim(edges[0] - room, edges[-1] + room)
    _count_axis(axes, int((below + above).max()), "episodes", room=1.08)
    axes.set_title("Lengths", y=1.0)
    axes.set_xlabel("steps of an episode", labelpad=2)
    _ticks(axes.xaxis, integer=True)
    _legend(axes, [("s", TERMINATED, f"terminated {ended.sum():,}"), ("s", TRUNCATED, f"truncated {(~ended).sum():,}")])


def _draw_coverage(axes: Axes, plane: Plane, frame: Any, counts: Array) -> None:
    top = max(int(counts.max()), 1)
    norm = LogNorm(1, max(top, 2))
    _density(axes, frame, counts, DENSITY, norm)
    axes.set_title("Coverage", y=1.0)
    _label_plane(axes, plane, frame)
    _note(axes, _outside(plane.states, frame), "states")
    bar = axes.inset_axes((0.55, 1.035, 0.16, 0.022))
    bar.imshow(np.linspace(0, 1, 128)[None], aspect="auto", cmap=DENSITY)
    bar.set_axis_off()
    beside: Any = {"transform": axes.transAxes, "va": "center", "fontsize": 8, "color": QUIET}
    axes.text(0.535, 1.043, "1", ha="right", **beside)
    axes.text(0.725, 1.043, f"{_number(max(top, 2))} per cell", ha="left", **beside)


def _draw_ends(axes: Axes, plane: Plane, frame: Any, counts: Array, ended: Array) -> None:
    _density(axes, frame, counts, SHADE, LogNorm(1, max(int(counts.max()), 2)))
    kinds = [(ended, TERMINATED, "o", "terminated"), (~ended, TRUNCATED, "D", "truncated")]
    for chosen, colour, marker, _ in sorted(kinds, key=lambda kind: -int(kind[0].sum())):  # the fewer on top
        rows = np.flatnonzero(chosen)
        drawn = rows[np.linspace(0, len(rows) - 1, min(len(rows), DRAWN_ENDS)).astype(np.int64)]
        many = len(drawn) > 200
        axes.plot(
            plane.ends[0][drawn], plane.ends[1][drawn], linestyle="none", marker=marker, color=colour,
            markersize=(2.4 if many else 4.2) * (0.85 if marker == "D" else 1), alpha=0.55 if many else 0.85,
            markeredgecolor="none" if many else "white", markeredgewidth=0.5,
        )  # fmt: skip
    axes.set_title("Where episodes end", y=1.0)
    _label_plane(axes, plane, frame)
    _note(axes, _outside(plane.ends, frame), "ends")
    _legend(axes, [(marker, colour, name) for _, colour, marker, name in kinds])


# Strokes


def _density(axes: Axes, frame: Any, counts: Array, colours: Any, norm: Any) -> None:
    extent = (*frame[0], *frame[1])
    shown = np.ma.masked_equal(counts.T, 0)
    axes.imshow(
        shown, origin="lower", extent=extent, aspect="auto", cmap=colours, norm=norm, interpolation="nearest",
        zorder=0.8,
    )  # fmt: skip


def _label_plane(axes: Axes, plane: Plane, frame: Any) -> None:
    axes.set_xlim(frame[0])
    axes.set_ylim(frame[1])
    axes.set_xlabel(plane.labels[0])
    axes.set_ylabel(plane.labels[1])
    _ticks(axes.xaxis)
    _ticks(axes.yaxis)
    axes.grid(color=FAINT, linewidth=0.5)
    axes.set_axisbelow(True)


def _note(axes: Axes, outside: Array, what: str) -> None:
    if outside.any():
        place: Any = {"transform": axes.transAxes, "ha": "right", "va": "bottom"}
        text = f"{percent(float(outside.mean()))} of {what} beyond the frame"
        axes.text(0.99, 0.015, text, fontsize=7.5, color=QUIET, bbox=HALO, **place)


def _legend(axes: Axes, entries: Sequence[tuple[str, str, str]]) -> None:
    """Beside the title, where it covers nothing."""
    handles = [axes.plot([], [], m, color=colour, markersize=5, label=text)[0] for m, colour, text in entries]
    axes.legend(
        handles=handles, loc="lower right", bbox_to_anchor=(1.015, 1.0), ncols=len(entries), frameon=False, fontsize=8,
        labelcolor=QUIET, handletextpad=0.1, columnspacing=1.0, borderaxespad=0.25, borderpad=0.35,
    )  # fmt: skip


def _count_axis(axes: Axes, most: int, what: str, room: float) -> None:
    axes.set_ylim(0, max(most, 1) * room)
    axes.set_ylabel(what)
    _ticks(axes.yaxis, integer=True)


def _ticks(axis: Any, integer: bool = False) -> None:
    axis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10], integer=integer))
    axis.set_major_formatter(FuncFormatter(lambda value, _: _spelled(value, 10)))


def _number(value: float) -> str:
    """Three digits, or all before the point: 1,422, 0.354, 2.5M, 1e-05."""
    size = abs(value)
    return _spelled(value, 3 if size < 100 or size >= 1e6 else len(f"{size:.0f}"))


def _spelled(value: float, digits: int) -> str:
    size = abs(value)
    text = f"{size / 1e6:.{digits}g}M" if 1e6 <= size < 1e9 else f"{size:,.{digits}g}"
    return f"−{text}" if value < 0 and text != "0" else text
