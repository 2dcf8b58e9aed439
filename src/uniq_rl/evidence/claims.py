"""The paper's claims, each judged by what was measured here and by nothing else.

A claim is about a number, and the number has a 95 % interval, from the seeds within each set unless said otherwise:

- `holds`: the whole interval lies where the claim wants it;
- `does not hold`: none of it does;
- `not shown`: measured, but the interval has both answers in it, or there is none, as with one seed;
- `not tested`: not measured.

Which interval decides, claim by claim. "Bootstrap" is `statistics.gain` or `bootstrap_mean`: seeds drawn anew within
sets, averages over sets. Only UNIQ's runs at one budget count, that of the comparison or the largest.

- Above IQL on each of the nine sets: the gap on a set, by Welch's t, since a bootstrap of the two or three seeds of a
  single set lies on one side of 0 far too often. Holds: on all nine sets the 95 % interval is above 0. Does not hold:
  on some set it is below 0 at the level 1 − 0.05 / sets, so that more sets do not mean more chances to fail; or the
  bootstrap interval of the average gap is below 0. With fewer than nine sets it can fail but not hold.
- Average gain of 3.6 points: bootstrap of the average gain over the nine sets. Holds: it is above 0 and reaches 3.6.
  Does not hold: it does not reach 3.6. With fewer than nine sets it is not tested.
- Better than fixed τ, than raw σ: bootstrap of the average gain over the sets both have, above 0 or below.
- Memory, time, speed against EDAC: one measurement each without an interval, so never `not shown`; within 5 % of the
  printed number counts as it.
- Mechanism active: bootstrap of the share of states with a lowered τ(s), above 5 % or below.
- Coverage: bootstrap of its distance from 1 − δ, within 2 points on either side or beyond.
- σ predicts error, σ is larger where data are thin: bootstrap of the rank correlation, above 0.2 or below.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from uniq_rl.evidence.figures import HARDLY, NEAR
from uniq_rl.evidence.mechanism import (
    error_correlation,
    last_of,
    mean_tau,
    promised,
    share_above,
    share_lowered,
    thinness_correlation,
)
from uniq_rl.evidence.results import RunResult
from uniq_rl.evidence.statistics import (
    LEVEL,
    Comparison,
    Interval,
    average,
    bootstrap_mean,
    by_set,
    compared,
    gain,
    gap_on_set,
    longest,
    probability_of_improvement,
)
from uniq_rl.evidence.tables import budget, cost_row, read_costs, relative
from uniq_rl.evidence.variants import IQL, METHODS, ONE, SETS, UNIQ, label, on_sets
from uniq_rl.evidence.wording import count, percent, signed

Judgement = Literal["holds", "does not hold", "not shown", "not tested"]

GAIN = 3.6
MEMORY, RELATIVE_TIME, FASTER_THAN_EDAC = 250.0, 1.1, 4.6
ROOM = 1.05
"""A measured cost may miss the printed one by so much, which is what its rounding hides."""
MEANINGFUL = 0.2
"""A rank correlation below this predicts next to nothing, however sure its sign is."""
COVERAGE_ROOM = 0.02
"""Coverage may miss what was promised by so much; held-out episodes are few, and their rows alike."""


ONE_SEED = "With one seed there is no interval."


@dataclass(frozen=True)
class Verdict:
    claim: str
    verdict: Judgement
    why: str
    """One or two sentences with the numbers."""
    figure: str
    """The table or figure that shows it."""


def verdicts(results: Sequence[RunResult], costs: Mapping[str, Any] | None = None) -> list[Verdict]:
    costs = read_costs() if costs is None else costs
    nine = on_sets(results, SETS)
    uniq = longest(nine, UNIQ)
    return [
        better_on_every_set(nine),
        better_on_average(nine),
        better_than(nine, "uniq fixed tau", "Adapting τ(s) to the state beats a fixed τ = 0.9 (ablation)"),
        better_than(nine, "uniq raw sigma", "Conformal calibration beats raw σ (ablation)"),
        memory(costs),
        time_of_an_update(costs),
        faster_than_edac(costs),
        active(uniq, longest(nine, ONE)),
        covers(uniq),
        predicts_error(uniq),
        larger_where_thin(uniq),
    ]


# Scores


def better_on_every_set(results: Sequence[RunResult]) -> Verdict:
    claim, figure = "UNIQ scores above IQL on each of the nine sets, by 0.1 to 8.1 points", "Figure 1b"
    found = compared(results, UNIQ, IQL)
    if found is None:
        return _untested(claim, figure, UNIQ, IQL)
    pairs = {name: (on_sets(found.ours, [name]), on_sets(found.theirs, [name])) for name in found.sets}
    gaps = {name: gap_on_set(*pair) for name, pair in pairs.items()}
    strict = {name: gap_on_set(*pair, level=1 - (1 - LEVEL) / len(pairs)) for name, pair in pairs.items()}
    points = [gap.point for gap in gaps.values()]
    below = [name for name, gap in strict.items() if gap.high < 0]
    sure = sum(above(gap, 0.0) == "holds" for gap in gaps.values())
    total = gain(found.ours, found.theirs)
    why = (
        f"Tested on {len(gaps)} of the {len(SETS)} sets, at {budget(found.steps)}: UNIQ's mean is above IQL's on "
        f"{sum(point > 0 for point in points)} of {len(gaps)}, with 95 % confidence on {sure}; gaps from "
        f"{signed(min(points))} to {signed(max(points))}, on average {_shown(total)}. {_chance(found)}"
    )
    if below:
        return Verdict(claim, "does not hold", f"{why} Below with 95 % confidence: {', '.join(below)}.", figure)
    if total.high < 0:
        return Verdict(claim, "does not hold", f"{why} The average is below 0, so some set must be.", figure)
    if sure == len(SETS):
        return Verdict(claim, "holds", why, figure)
    if len(gaps) < len(SETS):
        return Verdict(claim, "not shown", f"{why} It takes all nine sets to hold.", figure)
    return Verdict(claim, "not shown", f"{why} On {count(len(SETS) - sure, 'set')} the seeds cannot tell.", figure)


def better_on_average(results: Sequence[RunResult]) -> Verdict:
    claim, figure = "UNIQ averages 85.2 against IQL's 81.6, a gain of 3.6 points", "Table 1"
    found = compared(results, UNIQ, IQL)
    if found is None:
        return _untested(claim, figure, UNIQ, IQL)
    difference = gain(found.ours, found.theirs)
    why = (
        f"At {budget(found.steps)}, over {count(len(found.sets), 'set')}: UNIQ {average(found.ours):.1f}, IQL "
        f"{average(found.theirs):.1f}, a gain of {_shown(difference)} points. {_chance(found)}{_without_one(found)}"
    )
    if len(found.sets) < len(SETS):
        return Verdict(claim, "not tested", f"{why} The paper's average is over all nine sets.", figure)
    if np.isnan(difference.low):
        return Verdict(claim, "not shown", f"{why} {ONE_SEED}", figure)
    if difference.high < 0:
        return Verdict(claim, "does not hold", f"{why} UNIQ is worse.", figure)
    if difference.high < GAIN:
        less = f"There is a gain, but less than {GAIN:g}." if difference.low > 0 else f"It is less than {GAIN:g}."
        return Verdict(claim, "does not hold", f"{why} {less}", figure)
    if difference.low > 0:
        return Verdict(claim, "holds", why, figure)
    return Verdict(claim, "not shown", f"{why} The seeds cannot tell a gain of {GAIN:g} from none.", figure)


def better_than(results: Sequence[RunResult], other: str, claim: str) -> Verdict:
    """Whether full UNIQ averages more than one of its ablations."""
    found = compared(results, UNIQ, other)
    if found is None:
        return _untested(claim, "Table 3", UNIQ, other)
    difference = gain(found.ours, found.theirs)
    verdict = above(difference, 0.0)
    why = (
        f"At {budget(found.steps)}, over {count(len(found.sets), 'set')}, UNIQ minus {_named(other)} is "
        f"{_shown(difference)} points. {_chance(found)}{_without_one(found)}"
    )
    if verdict == "does not hold":
        why += " UNIQ is worse."
    elif verdict == "not shown":
        why += f" {ONE_SEED}" if np.isnan(difference.low) else " The seeds cannot tell the two apart."
    return Verdict(claim, verdict, why, "Table 3")


def above(interval: Interval, limit: float) -> Judgement:
    """Whether a number is larger than the limit, by its interval; one without an interval shows nothing."""
    if interval.low > limit:
        return "holds"
    return "does not hold" if interval.high < limit else "not shown"


def _without_one(found: Comparison) -> str:
    """What remains of a difference without the set that does most for it; nothing with fewer than three sets."""
    if len(found.sets) < 3:
        return ""

    def on(sets: Sequence[str]) -> Interval:
        return gain(on_sets(found.ours, sets), on_sets(found.theirs, sets))

    sign = 1 if on(found.sets).point >= 0 else -1
    first = max(found.sets, key=lambda name: sign * on([name]).point)
    rest = on([name for name in found.sets if name != first])
    return f" Without {first}, where it is {signed(on([first]).point)}, it is {_shown(rest)}."


def _untested(claim: str, figure: str, *variants: str) -> Verdict:
    names = " and ".join(_named(name) for name in variants)
    return Verdict(claim, "not tested", f"There are no runs of {names} at the same budget on the same sets.", figure)


def _named(variant: str) -> str:
    return METHODS.get(variant) or f"'{label(variant)}'"


def _shown(interval: Interval, spec: str = "+.1f") -> str:
    if np.isnan(interval.low):
        return signed(interval.point, spec)
    return f"{signed(interval.point, spec)} [{signed(interval.low, spec)}, {signed(interval.high, spec)}]"


def _chance(found: Comparison) -> str:
    ours, theirs = (_named(runs[0].variant) for runs in (found.ours, found.theirs))
    chance = probability_of_improvement(found.ours, found.theirs)
    return f"A run of {ours} beats one of {theirs} with probability {_shown(chance, '.2f')}."


# Costs


def memory(costs: Mapping[str, Any]) -> Verdict:
    claim, figure = "UNIQ needs about 250 MB of device memory", "Table 2"
    row = cost_row(costs, UNIQ, 1)
    if row is None or row.get("peak_megabytes_beyond_data") is None:
        return Verdict(claim, "not tested", "Its peak memory was not measured.", figure)
    peak = float(row["peak_megabytes_beyond_data"])
    why = f"One run peaks at {peak:,.0f} MB beyond the data{_where(costs)}."
    return Verdict(claim, "holds" if peak <= ROOM * MEMORY else "does not hold", why, figure)


def time_of_an_update(costs: Mapping[str, Any]) -> Verdict:
    claim, figure = "An update of UNIQ takes 1.1 times as long as IQL's", "Table 2"
    ratio = relative(costs, UNIQ, 1, "microseconds_per_update")
    if ratio is None:
        return Verdict(claim, "not tested", "UNIQ and IQL were not timed side by side.", figure)
    many = relative(costs, UNIQ, 9, "microseconds_per_update")
    why = f"One run alone takes {ratio:.2f} times as long as one of IQL{_where(costs)}"
    why += f"; nine in one program {many:.2f} times." if many is not None else "."
    return Verdict(claim, "holds" if ratio <= ROOM * RELATIVE_TIME else "does not hold", why, figure)


def faster_than_edac(costs: Mapping[str, Any]) -> Verdict:
    claim, figure = "UNIQ is 4.6 times as fast as EDAC with 50 critics", "Table 2"
    ours, theirs = cost_row(costs, UNIQ, 1), cost_row(costs, "edac-50", 1)
    if ours is None or theirs is None:
        return Verdict(claim, "not tested", "UNIQ and EDAC with 50 critics were not timed side by side.", figure)
    ratio = float(theirs["microseconds_per_update"] / ours["microseconds_per_update"])
    why = f"An update of EDAC with 50 critics takes {ratio:.2f} times as long as one of UNIQ{_where(costs)}."
    return Verdict(claim, "holds" if ratio * ROOM >= FASTER_THAN_EDAC else "does not hold", why, figure)


def _where(costs: Mapping[str, Any]) -> str:
    device = (costs.get("hardware") or {}).get("device")
    return f" on {device}" if device else ""


# Mechanism


def active(uniq: Sequence[RunResult], one: Sequence[RunResult]) -> Verdict:
    claim, figure = "The mechanism is active: τ(s) varies from state to state", "Maps of τ(s)"
    share = _over_runs(uniq, share_lowered)
    if share is None:
        return Verdict(claim, "not tested", "No run of UNIQ recorded its τ(s).", figure)
    why = f"τ(s) lies more than {NEAR:g} below τ_max on {_percents(share)} of states"
    beyond, tau = _over_runs(uniq, share_above), _over_runs(uniq, mean_tau)
    why += f", u > 1 on {percent(beyond.point)}" if beyond else ""
    why += f", mean τ {tau.point:.2f}" if tau else ""
    why += f" ({_runs(uniq, share_lowered)}; it would count as active from {percent(1 - HARDLY)} of states on)."
    other = _over_runs(one, share_lowered)
    if other is not None:
        why += f" Calibrated by disagreement, with one configuration: {percent(other.point)} of states."
    return Verdict(claim, above(share, 1 - HARDLY), why + _without_interval(share), figure)


def covers(uniq: Sequence[RunResult]) -> Verdict:
    claim, figure = "q̂ covers a share of 1 − δ of new transitions", "Calibration over time"
    found, missed = (_over_runs(uniq, read) for read in (_coverage, _miss))
    if found is None or missed is None:
        return Verdict(claim, "not tested", "No run of UNIQ measured coverage on unseen episodes.", figure)
    misses = [miss for run in uniq if (miss := _miss(run)) is not None]
    within = sum(abs(miss) <= COVERAGE_ROOM for miss in misses)
    why = (
        f"On episodes used for neither training nor calibration q̂ covers {_percents(found)} of transitions at the "
        f"end of training, {percent(found.point - missed.point)} were promised; {within} of "
        f"{count(len(misses), 'run')} {'is' if len(misses) == 1 else 'are'} within {100 * COVERAGE_ROOM:g} points."
    )
    verdict: Judgement = "not shown"
    if missed.low >= -COVERAGE_ROOM and missed.high <= COVERAGE_ROOM:
        verdict = "holds"
    elif missed.high < -COVERAGE_ROOM or missed.low > COVERAGE_ROOM:
        verdict = "does not hold"
    return Verdict(claim, verdict, why + _without_interval(missed), figure)


def _coverage(run: RunResult) -> float | None:
    return last_of(run, "coverage")


def _miss(run: RunResult) -> float | None:
    """How much more than promised is covered; a billionth is rounding."""
    covered = _coverage(run)
    return None if covered is None else round(covered - promised(run), 9)


def predicts_error(uniq: Sequence[RunResult]) -> Verdict:
    claim = "Disagreement predicts error: where σ is larger, the value is further from the truth"
    what = "rank correlation of σ with the error of the value on unseen episodes"
    return _correlated(uniq, error_correlation, claim, what, "σ against true error")


def larger_where_thin(uniq: Sequence[RunResult]) -> Verdict:
    claim = "Disagreement is larger where the data are thin"
    what = "rank correlation of σ with the distance to the tenth nearest state, on two principal components,"
    return _correlated(uniq, thinness_correlation, claim, what, "Maps of τ(s)")


def _correlated(
    runs: Sequence[RunResult], read: Callable[[RunResult], float | None], claim: str, what: str, figure: str
) -> Verdict:
    found = _over_runs(runs, read)
    if found is None:
        return Verdict(claim, "not tested", f"No run of UNIQ recorded what it takes: the {what} is unknown.", figure)
    why = f"The {what} is {_shown(found, '+.2f')} ({_runs(runs, read)})."
    verdict = above(found, MEANINGFUL)
    if verdict != "holds":
        why += f" It takes more than {MEANINGFUL:g} to mean something."
    return Verdict(claim, verdict, why + _without_interval(found), figure)


def _percents(interval: Interval) -> str:
    ends = "" if np.isnan(interval.low) else f" [{percent(interval.low)}, {percent(interval.high)}]"
    return percent(interval.point) + ends


def _without_interval(interval: Interval) -> str:
    return f" {ONE_SEED}" if np.isnan(interval.low) else ""


def _over_runs(runs: Sequence[RunResult], read: Callable[[RunResult], float | None]) -> Interval | None:
    """Mean over sets of a number that the runs have, with the interval of resampled seeds."""
    sets = by_set(runs)
    strata = [[number for run in seeds if (number := read(run)) is not None] for seeds in sets.values()]
    known = [np.asarray(numbers) for numbers in strata if numbers]
    return bootstrap_mean(known) if known else None


def _runs(runs: Sequence[RunResult], read: Callable[[RunResult], float | None]) -> str:
    known = [run for run in runs if read(run) is not None]
    return f"{count(len(known), 'run')} on {count(len({run.set for run in known}), 'set')}"
