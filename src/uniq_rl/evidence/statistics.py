"""Numbers over runs: means and spreads over seeds, and the intervals of Agarwal et al. 2021 ("rliable").

Own code, since that package brings a heavy tree of dependencies for four formulas. Sets are the strata: a bootstrap
draws seeds anew within each set, never across sets. Every function that pools runs wants those of one variant and one
budget, and refuses a mixture, so that different budgets are never averaged unseen.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
from scipy.special import stdtrit

from uniq_rl.errors import UniqError
from uniq_rl.evidence.results import RunResult

Reading = Literal["last", "mean_of_last", "best", "mean_of_all"]
READINGS: tuple[Reading, ...] = ("last", "mean_of_last", "best")
"""What tables have of every run; the mean of all evaluations is for comparing learning curves."""
READING_NAMES: dict[Reading, str] = {
    "last": "last",
    "mean_of_last": "mean of the last 10",
    "best": "best (oracle)",
    "mean_of_all": "mean of all evaluations",
}
"""How a reading is named wherever it is shown; the best evaluation is always marked as an oracle."""
RESAMPLES = 2000
LEVEL = 0.95
SEED = 0


class Cell(NamedTuple):
    """The seeds of one variant on one set."""

    mean: float
    std: float
    """Sample standard deviation (ddof = 1); NaN with one seed."""
    values: tuple[float, ...]
    seeds: tuple[int, ...]


class Interval(NamedTuple):
    """A number and its 95 % bootstrap interval; the ends are NaN where some set has one seed, which cannot vary."""

    point: float
    low: float
    high: float


class Profile(NamedTuple):
    """Share of runs above each threshold, averaged over sets."""

    thresholds: np.ndarray
    point: np.ndarray
    low: np.ndarray
    high: np.ndarray


class Comparison(NamedTuple):
    """Two variants at one budget, on the sets both have."""

    steps: int
    sets: list[str]
    ours: list[RunResult]
    theirs: list[RunResult]


NOTHING = Interval(np.nan, np.nan, np.nan)


# Grouping


def columns(results: Iterable[RunResult]) -> dict[tuple[str, int], list[RunResult]]:
    """The runs of each variant at each budget."""
    groups: defaultdict[tuple[str, int], list[RunResult]] = defaultdict(list)
    for run in results:
        groups[run.variant, run.recipe.steps].append(run)
    return dict(groups)


def by_cell(results: Iterable[RunResult], steps: int | None = None) -> dict[tuple[str, str], list[RunResult]]:
    """The seeds of each variant on each set: at the budget `steps`, or each cell's largest budget."""
    groups: defaultdict[tuple[str, str], list[RunResult]] = defaultdict(list)
    for run in results:
        groups[run.variant, run.set].append(run)
    cells = {}
    for key, runs in groups.items():
        budget = max(run.recipe.steps for run in runs) if steps is None else steps
        chosen = [run for run in runs if run.recipe.steps == budget]
        if chosen:
            cells[key] = _one_seed_each(chosen)
    return cells


def by_set(results: Iterable[RunResult]) -> dict[str, list[RunResult]]:
    """The seeds on each set, of runs of one variant at one budget."""
    runs = list(results)
    kinds = sorted({(run.variant, run.recipe.steps) for run in runs})
    if len(kinds) > 1:
        named = " and ".join(f"{variant} at {steps:,} updates" for variant, steps in kinds[:2])
        raise UniqError(f"Runs of {named} are not to be averaged with each other.")
    return {name: seeds for (_, name), seeds in by_cell(runs).items()}


def _one_seed_each(runs: Sequence[RunResult]) -> list[RunResult]:
    ordered = sorted(runs, key=lambda run: run.recipe.seed)
    for one, other in pairwise(ordered):
        if one.recipe.seed == other.recipe.seed:
            raise UniqError(
                f"The results hold two runs of {one.variant} on {one.set} with seed {one.recipe.seed} and "
                f"{one.recipe.steps:,} updates ({one.recipe.id} and {other.recipe.id}), whose recipes differ elsewhere."
            )
    return ordered


def compared(results: Sequence[RunResult], ours: str, theirs: str) -> Comparison | None:
    """At the budget at which both have the most sets in common, or the larger of such budgets."""
    found = columns(results)
    options = []
    for (variant, steps), runs in found.items():
        if variant == ours and (theirs, steps) in found:
            others = by_set(found[theirs, steps])
            sets = [name for name in by_set(runs) if name in others]
            options.append(
                Comparison(
                    steps,
                    sets,
                    [run for run in runs if run.set in sets],
                    [run for run in found[theirs, steps] if run.set in sets],
                )
            )
    best = max(options, key=lambda option: (len(option.sets), option.steps), default=None)
    return best if best is not None and best.sets else None


def longest(results: Sequence[RunResult], variant: str) -> list[RunResult]:
    """The runs of a variant at its largest budget."""
    steps = max((run.recipe.steps for run in results if run.variant == variant), default=0)
    return [run for run in results if (run.variant, run.recipe.steps) == (variant, steps)]


def value(run: RunResult, reading: Reading) -> float:
    if reading not in READING_NAMES:
        raise UniqError(f"A run is read by one of {', '.join(READING_NAMES)}, not {reading!r}.")
    return float(getattr(run, reading))


# Means


def cell(runs: Sequence[RunResult], reading: Reading = "last") -> Cell:
    """Mean and sample standard deviation over seeds."""
    seeds = by_set(runs)
    if len(seeds) != 1:
        raise UniqError(f"A cell of a table is about one set, not {len(seeds)}.")
    (ordered,) = seeds.values()
    values = [value(run, reading) for run in ordered]
    return Cell(float(np.mean(values)), sample_std(values), tuple(values), tuple(run.recipe.seed for run in ordered))


def sample_std(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1)) if len(values) > 1 else float("nan")


def average(results: Iterable[RunResult], reading: Reading = "last") -> float:
    """Mean over sets of the mean over seeds; NaN without runs."""
    means = [scores.mean() for scores in _strata(results, reading).values()]
    return float(np.mean(means)) if means else float("nan")


def average_interval(results: Iterable[RunResult], reading: Reading = "last") -> Interval:
    strata = list(_strata(results, reading).values())
    return bootstrap_mean(strata) if strata else NOTHING


def bootstrap_mean(strata: Sequence[np.ndarray]) -> Interval:
    """Mean over sets of the mean over seeds, of any number that runs have."""
    return _interval(_mean_over_sets(strata), _mean_over_sets(_resampled(strata)), strata)


def gain(a: Iterable[RunResult], b: Iterable[RunResult], reading: Reading = "last") -> Interval:
    """Average of `a` minus average of `b` over the sets both have, at one budget; NaN where there are none."""
    pairs = _pairs(a, b, reading)
    if not pairs:
        return NOTHING
    ours, theirs = ([pair[i] for pair in pairs] for i in (0, 1))
    drawn = _mean_over_sets(_resampled(ours, stream=0)) - _mean_over_sets(_resampled(theirs, stream=1))
    return _interval(_mean_over_sets(ours) - _mean_over_sets(theirs), drawn, [*ours, *theirs])


def gap_on_set(a: Iterable[RunResult], b: Iterable[RunResult], level: float = LEVEL) -> Interval:
    """Mean of `a` minus mean of `b` on the one set both have, with the interval of Welch's t.

    For a single set: two or three seeds drawn anew hardly vary, and a bootstrap of them would look too sure.
    """
    ((ours, theirs),) = _pairs(a, b, "last")
    point = float(ours.mean() - theirs.mean())
    if min(len(ours), len(theirs)) < 2:
        return Interval(point, np.nan, np.nan)
    parts = [(scores.var(ddof=1) / len(scores), len(scores) - 1) for scores in (ours, theirs)]
    square = sum(part for part, _ in parts)
    if not square:
        return Interval(point, point, point)
    freedom = square**2 / sum(part**2 / less for part, less in parts)
    reach = float(stdtrit(freedom, (1 + level) / 2) * np.sqrt(square))
    return Interval(point, point - reach, point + reach)


def interquartile_mean(results: Iterable[RunResult], reading: Reading = "last") -> Interval:
    """Mean of the middle half of all runs on all sets, pooled."""
    strata = list(_strata(results, reading).values())
    if not strata:
        return NOTHING
    pooled, drawn = np.concatenate(strata), np.concatenate(_resampled(strata), axis=-1)
    return _interval(_middle_mean(pooled), _middle_mean(drawn), strata)


def _middle_mean(scores: np.ndarray) -> np.ndarray:
    """Mean along the last axis without the lowest and the highest quarter (rounded down to whole runs)."""
    count = scores.shape[-1]
    cut = int(0.25 * count)
    return np.asarray(np.sort(scores, axis=-1)[..., cut : count - cut].mean(axis=-1))


def _mean_over_sets(strata: Sequence[np.ndarray]) -> np.ndarray:
    return np.asarray(np.mean([scores.mean(axis=-1) for scores in strata], axis=0))


# Comparisons


def probability_of_improvement(a: Iterable[RunResult], b: Iterable[RunResult], reading: Reading = "last") -> Interval:
    """Probability that a run of `a` beats one of `b` on the same set, ties counting half, averaged over sets.

    NaN where the two cannot be compared: no set in common, or different budgets.
    """
    pairs = _pairs(a, b, reading)
    if not pairs:
        return NOTHING
    ours, theirs = ([pair[i] for pair in pairs] for i in (0, 1))
    drawn = zip(_resampled(ours, stream=0), _resampled(theirs, stream=1), strict=True)
    point = np.mean([_wins(x, y) for x, y in pairs])
    return _interval(point, np.mean([_wins(x, y) for x, y in drawn], axis=0), [*ours, *theirs])


def _wins(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The Mann-Whitney statistic as a share of all pairs, along the last axis."""
    return np.asarray((0.5 + 0.5 * np.sign(x[..., :, None] - y[..., None, :])).mean(axis=(-2, -1)))


def _pairs(a: Iterable[RunResult], b: Iterable[RunResult], reading: Reading) -> list[tuple[np.ndarray, np.ndarray]]:
    first, second = list(a), list(b)
    if {run.recipe.steps for run in first} != {run.recipe.steps for run in second}:
        return []
    ours, theirs = _strata(first, reading), _strata(second, reading)
    return [(ours[name], theirs[name]) for name in ours if name in theirs]


def performance_profile(
    results: Iterable[RunResult], thresholds: Sequence[float] | np.ndarray, reading: Reading = "last"
) -> Profile:
    """Share of runs that score above each threshold."""
    limits = np.asarray(thresholds, np.float64)
    strata = list(_strata(results, reading).values())
    if not strata:
        empty = np.full(len(limits), np.nan)
        return Profile(limits, empty, empty, empty)
    point = np.mean([(scores[:, None] > limits).mean(axis=0) for scores in strata], axis=0)
    drawn = np.mean([(scores[:, :, None] > limits).mean(axis=1) for scores in _resampled(strata)], axis=0)
    low, high = _ends(drawn, strata)
    return Profile(limits, point, low, high)


# Bootstrap


def _strata(results: Iterable[RunResult], reading: Reading) -> dict[str, np.ndarray]:
    """The scores of the seeds on each set, in the order of the sets' names."""
    sets = by_set(results)
    return {name: np.array([value(run, reading) for run in sets[name]]) for name in sorted(sets)}


def _resampled(strata: Sequence[np.ndarray], stream: int = 0) -> list[np.ndarray]:
    """[RESAMPLES, seeds] for each set: its seeds drawn with replacement."""
    rng = np.random.default_rng([SEED, stream])
    return [scores[rng.integers(len(scores), size=(RESAMPLES, len(scores)))] for scores in strata]


def _interval(point: float | np.ndarray, drawn: np.ndarray, strata: Sequence[np.ndarray]) -> Interval:
    low, high = _ends(drawn, strata)
    return Interval(float(point), float(low), float(high))


def _ends(drawn: np.ndarray, strata: Sequence[np.ndarray]) -> np.ndarray:
    ends = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    if min(len(scores) for scores in strata) < 2:  # one seed drawn again and again would look certain
        return np.full_like(ends, np.nan)
    return np.asarray(ends)


def rank_correlation(a: np.ndarray, b: np.ndarray) -> float | None:
    """Spearman's; None where all values of one side are equal."""
    first, second = (ranks - ranks.mean() for ranks in (average_ranks(a), average_ranks(b)))
    scale = float(np.sqrt(np.square(first).sum() * np.square(second).sum()))
    return float((first * second).sum() / scale) if scale > 0 else None


def average_ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 1 on; equal values share the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[inverse])
