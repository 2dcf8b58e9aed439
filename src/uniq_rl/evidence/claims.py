"""The paper's claims, each judged by what was measured here and by nothing else.

A comparison holds when its 95 % bootstrap interval lies on the claimed side: a difference that the seeds cannot tell
from none does not support a claim. What the runs at hand cannot decide is "not tested", and the reason says what is
missing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from uniq_rl.evidence.figures import HARDLY, NEAR, percent
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
    Comparison,
    Interval,
    average,
    bootstrap_mean,
    by_set,
    compared,
    gain,
    longest,
    probability_of_improvement,
)
from uniq_rl.evidence.tables import budget, cost_row, read_costs, relative
from uniq_rl.evidence.variants import IQL, ONE, SETS, UNIQ, label, on_sets

Judgement = Literal["holds", "does not hold", "not tested"]

GAIN = 3.6
MEMORY, RELATIVE_TIME, FASTER_THAN_EDAC = 250.0, 1.1, 4.6
ROOM = 1.05
"""A measured cost may miss the printed one by so much, which is what its rounding hides."""
MEANINGFUL = 0.2
"""A rank correlation below this predicts next to nothing, however sure its sign is."""
COVERAGE_ROOM = 0.02
"""Coverage may miss what was promised by so much; held-out episodes are few, and their rows alike."""


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
    gaps = {name: gain(on_sets(found.ours, [name]), on_sets(found.theirs, [name])).point for name in found.sets}
    behind = [name for name, gap in gaps.items() if gap <= 0]
    why = (
        f"At {budget(found.steps)} UNIQ is above IQL on {len(gaps) - len(behind)} of {len(gaps)} sets; "
        f"gaps from {min(gaps.values()):+.1f} to {max(gaps.values()):+.1f}. {_chance(found)}"
    )
    if behind:
        worst = min(gaps, key=lambda name: gaps[name])
        return Verdict(claim, "does not hold", f"{why} Worst: {worst}.", figure)
    if len(gaps) < len(SETS):
        return Verdict(claim, "not tested", f"{why} The other {len(SETS) - len(gaps)} sets were not run.", figure)
    return Verdict(claim, "holds", why, figure)


def better_on_average(results: Sequence[RunResult]) -> Verdict:
    claim, figure = "UNIQ averages 85.2 against IQL's 81.6, a gain of 3.6 points", "Table 1"
    found = compared(results, UNIQ, IQL)
    if found is None:
        return _untested(claim, figure, UNIQ, IQL)
    difference = gain(found.ours, found.theirs)
    why = (
        f"At {budget(found.steps)}, over {len(found.sets)} sets: UNIQ {average(found.ours):.1f}, IQL "
        f"{average(found.theirs):.1f}, a gain of {_shown(difference)} points. {_chance(found)}"
    )
    if np.isnan(difference.low):
        return Verdict(claim, "not tested", f"{why} With one seed there is no interval.", figure)
    if len(found.sets) < len(SETS):
        return Verdict(claim, "not tested", f"{why} The average is over all nine sets in the paper.", figure)
    if difference.low <= 0:
        reason = "UNIQ is worse" if difference.high < 0 else "The seeds cannot tell the gain from none"
        return Verdict(claim, "does not hold", f"{why} {reason}.", figure)
    if difference.high < GAIN:
        return Verdict(claim, "does not hold", f"{why} There is a gain, but less than {GAIN:g}.", figure)
    return Verdict(claim, "holds", why, figure)


def better_than(results: Sequence[RunResult], other: str, claim: str) -> Verdict:
    """Whether full UNIQ averages more than one of its ablations."""
    found = compared(results, UNIQ, other)
    if found is None:
        return _untested(claim, "Table 3", UNIQ, other)
    difference = gain(found.ours, found.theirs)
    why = (
        f"At {budget(found.steps)}, over {len(found.sets)} set{'s' if len(found.sets) > 1 else ''}, UNIQ minus "
        f"'{label(other)}' is {_shown(difference)} points. {_chance(found)}"
    )
    if np.isnan(difference.low):
        return Verdict(claim, "not tested", f"{why} With one seed there is no interval.", "Table 3")
    if difference.low > 0:
        return Verdict(claim, "holds", why, "Table 3")
    reason = "UNIQ is worse" if difference.high < 0 else "The seeds cannot tell the two apart"
    return Verdict(claim, "does not hold", f"{why} {reason}.", "Table 3")


def _untested(claim: str, figure: str, *variants: str) -> Verdict:
    names = " and ".join(f"'{name}'" for name in variants)
    return Verdict(claim, "not tested", f"There are no runs of {names} at the same budget on the same sets.", figure)


def _shown(interval: Interval, spec: str = "+.1f") -> str:
    if np.isnan(interval.low):
        return f"{interval.point:{spec}}"
    return f"{interval.point:{spec}} [{interval.low:{spec}}, {interval.high:{spec}}]"


def _chance(found: Comparison) -> str:
    ours, theirs = (label(runs[0].variant) for runs in (found.ours, found.theirs))
    chance = probability_of_improvement(found.ours, found.theirs)
    return f"A run of {ours} beats one of '{theirs}' with probability {_shown(chance, '.2f')}."


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
    why = f"τ(s) lies more than {NEAR:g} below τ_max on {percent(share.point)} of states"
    above, tau = _over_runs(uniq, share_above), _over_runs(uniq, mean_tau)
    why += f", u > 1 on {percent(above.point)}" if above else ""
    why += f", mean τ {tau.point:.2f}" if tau else ""
    why += f" ({_runs(uniq, share_lowered)}; it would count as active from {percent(1 - HARDLY)} of states on)."
    other = _over_runs(one, share_lowered)
    if other is not None:
        why += f" Calibrated by disagreement, with one configuration: {percent(other.point)} of states."
    return Verdict(claim, "holds" if share.point > 1 - HARDLY else "does not hold", why, figure)


def covers(uniq: Sequence[RunResult]) -> Verdict:
    claim, figure = "q̂ covers a share of 1 − δ of new transitions", "Calibration over time"
    found = _over_runs(uniq, lambda run: last_of(run, "coverage"))
    if found is None:
        return Verdict(claim, "not tested", "No run of UNIQ measured coverage on unseen episodes.", figure)
    known = [(last_of(run, "coverage"), promised(run)) for run in uniq]
    misses = [abs(covered - wanted) for covered, wanted in known if covered is not None]
    wanted = float(np.mean([promise for covered, promise in known if covered is not None]))
    within = sum(miss <= COVERAGE_ROOM + 1e-9 for miss in misses)
    why = (
        f"On episodes used for neither training nor calibration q̂ covers {percent(found.point)} of transitions at the "
        f"end of training, {percent(wanted)} were promised; {within} of {len(misses)} runs are within "
        f"{100 * COVERAGE_ROOM:g} points."
    )
    holds = abs(found.point - wanted) <= COVERAGE_ROOM + 1e-9
    return Verdict(claim, "holds" if holds else "does not hold", why, figure)


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
    sure = np.isnan(found.low) or found.low > 0
    if found.point >= MEANINGFUL and sure:
        return Verdict(claim, "holds", why, figure)
    return Verdict(claim, "does not hold", f"{why} It takes at least {MEANINGFUL:g} to mean something.", figure)


def _over_runs(runs: Sequence[RunResult], read: Callable[[RunResult], float | None]) -> Interval | None:
    """Mean over sets of a number that the runs have, with the interval of resampled seeds."""
    sets = by_set(runs)
    strata = [[number for run in seeds if (number := read(run)) is not None] for seeds in sets.values()]
    known = [np.asarray(numbers) for numbers in strata if numbers]
    return bootstrap_mean(known) if known else None


def _runs(runs: Sequence[RunResult], read: Callable[[RunResult], float | None]) -> str:
    known = [run for run in runs if read(run) is not None]
    sets = len({run.set for run in known})
    return f"{len(known)} run{'s' if len(known) > 1 else ''} on {sets} set{'s' if sets > 1 else ''}"
