"""Every claim is judged both ways by results made up for it, and left open where nothing was measured."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from evidence.made_up import costs, made_up, made_up_table
from uniq_rl.evidence.claims import (
    Verdict,
    active,
    better_on_average,
    better_on_every_set,
    better_than,
    covers,
    faster_than_edac,
    larger_where_thin,
    memory,
    predicts_error,
    time_of_an_update,
    verdicts,
)
from uniq_rl.evidence.mechanism import mean_tau, share_lowered, thinness_correlation
from uniq_rl.evidence.results import RunResult
from uniq_rl.evidence.statistics import rank_correlation


def diagnosed(number: int = 3, config: dict[str, Any] | None = None, **diagnosis: Any) -> list[RunResult]:
    runs = [made_up("uniq", seed=seed) for seed in range(number)]
    return [
        replace(run, diagnosis=diagnosis, recipe=replace(run.recipe, config={**run.recipe.config, **(config or {})}))
        for run in runs
    ]


def table(**means: float) -> list[RunResult]:
    return made_up_table(means)


def test_nothing_measured_nothing_judged() -> None:
    found = verdicts([], {})
    assert len(found) == 11
    assert {verdict.verdict for verdict in found} == {"not tested"}
    assert all(verdict.why.endswith(".") and verdict.figure for verdict in found)


def test_everything_measured_everything_judged() -> None:
    runs = made_up_table({"iql": 60.0, "uniq": 70.0, "uniq fixed tau": 60.0, "uniq raw sigma": 60.0})
    for run in runs:
        if run.variant == "uniq":
            run.diagnosis.update(full_diagnosis())
    found = verdicts(runs, costs(iql=(100.0, 200.0), uniq=(105.0, 200.0), edac__50=(900.0, 2000.0)))
    assert {verdict.verdict for verdict in found} == {"holds"}, [v for v in found if v.verdict != "holds"]


def full_diagnosis() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    place = rng.normal(size=(2, 200))
    sigma = np.square(place).sum(axis=0)  # larger further out, where states are rarer
    return {
        "error": {"rank_correlation": 0.5, "rows": 100, "sigma": list(range(10)), "error": list(range(10))},
        "map": {"x": place[0].tolist(), "y": place[1].tolist(), "tau": [0.9] * 200, "sigma": sigma.tolist()},
        "distributions": {"tau": {"edges": [0.5, 0.7, 0.9], "counts": [50, 50]}},
    }


def judged(verdict: Verdict, expected: str, *numbers: str) -> None:
    assert verdict.verdict == expected, verdict.why
    for number in numbers:
        assert number in verdict.why


def scored(run: RunResult, score: float) -> RunResult:
    """The same run with another last score."""
    return replace(run, evaluations=[*run.evaluations[:-1], {**run.evaluations[-1], "score": score}])


def by_seed(**scores: Sequence[float] | dict[str, Sequence[float]]) -> list[RunResult]:
    """Runs with these last scores by seed: the same on each of the nine sets, or what is given for a set."""
    found = []
    for variant, given in scores.items():
        seeds = given if not isinstance(given, dict) else given["others"]
        for run in made_up_table({variant.replace("_", " "): 60.0}, seeds=range(len(seeds))):
            chosen = given.get(run.set, given["others"]) if isinstance(given, dict) else given
            found.append(scored(run, chosen[run.recipe.seed]))
    return found


def hopper(runs: Sequence[RunResult]) -> list[RunResult]:
    return [run for run in runs if run.task == "hopper"]


IQL_SCORES = [59.0, 60.0, 61.0]


def test_better_on_every_set() -> None:
    ahead = by_seed(uniq=[69.0, 70.0, 71.0], iql=IQL_SCORES)
    judged(better_on_every_set(ahead), "holds", "9 of the 9 sets", "9 of 9", "confidence on 9", "probability 1.00")
    behind = by_seed(uniq=[49.0, 50.0, 51.0], iql=IQL_SCORES)
    judged(better_on_every_set(behind), "does not hold", "above IQL's on 0 of 9", "Below with 95 % confidence: ")
    judged(better_on_every_set(table(uniq=70.0)), "not tested", "no runs")


def test_one_set_that_is_lower_refutes_every_set() -> None:
    one_worse = by_seed(uniq={"hopper-medium": [19.0, 20.0, 21.0], "others": [69.0, 70.0, 71.0]}, iql=IQL_SCORES)
    judged(better_on_every_set(one_worse), "does not hold", "8 of 9", "Below with 95 % confidence: hopper-medium.")
    # Three seeds, all below: on one of nine sets that happens by chance.
    unsure = by_seed(uniq={"hopper-medium": [54.0, 56.0, 58.0], "others": [69.0, 70.0, 71.0]}, iql=IQL_SCORES)
    judged(better_on_every_set(unsure), "not shown", "8 of 9", "confidence on 8", "On 1 set the seeds cannot tell")


def test_a_lower_average_refutes_every_set() -> None:
    wide = by_seed(uniq=[50.0, 58.0], iql=[59.0, 60.0])
    judged(better_on_every_set(wide), "does not hold", "The average is below 0")
    judged(better_on_every_set(hopper(wide)), "does not hold", "3 of the 9 sets")


def test_every_set_takes_nine_sets_and_two_seeds() -> None:
    some = hopper(by_seed(uniq=[69.0, 70.0, 71.0], iql=IQL_SCORES))
    judged(better_on_every_set(some), "not shown", "Tested on 3 of the 9 sets", "3 of 3", "It takes all nine sets")
    judged(better_on_every_set(by_seed(uniq=[90.0], iql=[60.0])), "not shown", "9 of 9", "confidence on 0")
    judged(better_on_every_set(by_seed(uniq=[30.0], iql=[60.0])), "not shown", "0 of 9")


def test_better_on_average() -> None:
    judged(better_on_average(by_seed(uniq=[69.0, 70.0, 71.0], iql=IQL_SCORES)), "holds", "9 sets", "+10.0 [")
    exact = by_seed(uniq=[60.0, 63.6, 67.2], iql=IQL_SCORES)
    judged(better_on_average(exact), "holds", "gain of +3.6 [")
    judged(better_on_average(by_seed(uniq=[61.0, 61.5, 62.0], iql=IQL_SCORES)), "does not hold", "less than 3.6")
    judged(better_on_average(by_seed(uniq=IQL_SCORES, iql=IQL_SCORES)), "does not hold", "It is less than 3.6")
    judged(better_on_average(by_seed(uniq=[49.0, 50.0, 51.0], iql=IQL_SCORES)), "does not hold", "UNIQ is worse")
    wild = by_seed(uniq=[40.0, 62.0, 84.0], iql=[40.0, 60.0, 80.0])
    judged(better_on_average(wild), "not shown", "cannot tell a gain of 3.6 from none")
    judged(better_on_average(by_seed(uniq=[70.0], iql=[60.0])), "not shown", "one seed")
    judged(better_on_average(hopper(table(uniq=70.0, iql=60.0))), "not tested", "over 3 sets", "all nine sets")


def test_a_difference_that_one_set_makes() -> None:
    high = by_seed(uniq={"others": IQL_SCORES, "walker2d-medium": [86.0, 87.0, 88.0]}, iql=IQL_SCORES)
    judged(better_on_average(high), "does not hold", " Without walker2d-medium, where it is +27.0, it is +0.0 [")
    low = by_seed(uniq={"others": [60.0, 61.0, 62.0], "hopper-medium": [32.0, 33.0, 34.0]}, iql=IQL_SCORES)
    judged(better_on_average(low), "does not hold", " Without hopper-medium, where it is −27.0, it is +1.0 [")


def test_budgets_are_not_mixed() -> None:
    runs = [*made_up_table({"uniq": 70.0}, steps=1000), *made_up_table({"iql": 60.0}, steps=300)]
    judged(better_on_average(runs), "not tested", "same budget")
    both = [*runs, *made_up_table({"uniq": 50.0}, steps=300)]
    judged(better_on_average(both), "does not hold", "300 updates")


def test_ablations() -> None:
    runs = made_up_table({"uniq": 70.0, "uniq fixed tau": 60.0, "uniq raw sigma": 70.0, "uniq kappa 0": 90.0})
    judged(better_than(runs, "uniq fixed tau", "claim"), "holds", "9 sets")
    judged(better_than(runs, "uniq raw sigma", "claim"), "not shown", "cannot tell")
    judged(better_than(runs, "uniq kappa 0", "claim"), "does not hold", "UNIQ is worse")
    judged(better_than(runs, "uniq kappa 1", "claim"), "not tested")
    one = made_up_table({"uniq": 70.0, "uniq fixed tau": 60.0}, seeds=(0,))
    judged(better_than(one, "uniq fixed tau", "claim"), "not shown", "one seed")


def test_costs() -> None:
    cheap = costs(iql=(100.0, 200.0), uniq=(110.0, 240.0), edac__50=(600.0, 2000.0))
    dear = costs(iql=(100.0, 200.0), uniq=(180.0, 800.0), edac__50=(600.0, 2000.0))
    judges: tuple[Callable[[Any], Verdict], ...] = (memory, time_of_an_update, faster_than_edac)
    for judge, numbers in zip(judges, (("240 MB", "800 MB"), ("1.10", "1.80"), ("5.45", "3.33")), strict=True):
        judged(judge(cheap), "holds", numbers[0], "made up")
        judged(judge(dear), "does not hold", numbers[1])
        judged(judge({}), "not tested")


def test_the_mechanism_is_active_or_not() -> None:
    bounds = {"tau_min": 0.5, "tau_max": 0.9}
    near = {"edges": [0.5, 0.88, 0.9], "counts": [2, 98]}
    spread = {"edges": [0.5, 0.88, 0.9], "counts": [60, 40]}
    idle, busy = (diagnosed(config=bounds, distributions={"tau": shape}) for shape in (near, spread))
    judged(active(idle, []), "does not hold", "on 2 % [2 %, 2 %] of states", "u > 1 on 1 %")
    judged(active(idle, busy), "does not hold", "by disagreement, with one configuration: 60 % of states")
    judged(active(busy, []), "holds", "on 60 % [60 %, 60 %] of states")
    judged(active(diagnosed(), []), "not tested")
    fixed = diagnosed(config={"tau_min": 0.9, "tau_max": 0.9}, distributions={"tau": near})
    judged(active(fixed, []), "does not hold", "0 %")
    mixed = seeds_of(idle[:1], busy[:1])
    judged(active(mixed, []), "not shown", "on 31 % [2 %, 60 %] of states")
    judged(active(busy[:1], []), "not shown", "1 run on 1 set", "one seed")


def seeds_of(*runs: Sequence[RunResult]) -> list[RunResult]:
    """These runs as seeds of one another."""
    together = [run for some in runs for run in some]
    return [replace(run, recipe=replace(run.recipe, seed=seed)) for seed, run in enumerate(together)]


def test_tau_is_read_from_the_map_where_there_is_no_histogram() -> None:
    (run,) = diagnosed(1, map={"x": [0, 1], "y": [0, 1], "tau": [0.5, 0.9], "sigma": [1, 2]})
    assert mean_tau(run) == pytest.approx(0.7)
    assert share_lowered(run) == 0.5


def test_coverage() -> None:
    def covering(*shares: float | None) -> list[RunResult]:
        return [
            replace(run, calibration=[{**line, "coverage": share} for line in run.calibration])
            for run, share in zip(diagnosed(len(shares)), shares, strict=True)
        ]

    judged(covers(covering(0.88, 0.89, 0.92)), "holds", "90 % were promised", "3 of 3 runs are within")
    judged(covers(covering(0.80, 0.80)), "does not hold", "80 % [80 %, 80 %]", "0 of 2 runs")
    judged(covers(covering(0.99, 0.98)), "does not hold")
    judged(covers(covering(0.90, 0.94)), "not shown", "92 % [90 %, 94 %]", "1 of 2 runs are within")
    judged(covers(covering(0.90)), "not shown", "1 of 1 run is within", "one seed")
    judged(covers(covering(None, None)), "not tested")


def test_sigma_predicts_error_or_not() -> None:
    def correlated(*values: float | None) -> list[RunResult]:
        return seeds_of(*(diagnosed(1, error={"rank_correlation": value}) for value in values))

    judged(predicts_error(correlated(0.4, 0.5)), "holds", "+0.45 [+0.40, +0.50]", "2 runs on 1 set")
    judged(predicts_error(correlated(0.0, 0.1)), "does not hold", "+0.05", "more than 0.2")
    judged(predicts_error(correlated(-0.4, -0.3)), "does not hold", "−0.35 [−0.40, −0.30]")
    judged(predicts_error(correlated(-0.9, 0.8, 0.9)), "not shown", "+0.27", "more than 0.2")
    judged(predicts_error(correlated(0.1, 0.5)), "not shown", "+0.30 [+0.10, +0.50]")
    judged(predicts_error(correlated(0.9)), "not shown", "1 run on 1 set", "one seed")
    judged(predicts_error(correlated(None, None)), "not tested")


def test_sigma_is_larger_where_data_are_thin_or_not() -> None:
    thin = full_diagnosis()["map"]
    judged(larger_where_thin(diagnosed(map=thin)), "holds")
    turned = {**thin, "sigma": [-value for value in thin["sigma"]]}
    judged(larger_where_thin(diagnosed(map=turned)), "does not hold")
    judged(larger_where_thin(seeds_of(diagnosed(1, map=thin), diagnosed(1, map=turned))), "not shown")
    judged(larger_where_thin(diagnosed(map={"x": [1.0], "y": [1.0], "tau": [0.9], "sigma": [1.0]})), "not tested")
    equal = {**thin, "sigma": [1.0] * 200}
    assert thinness_correlation(diagnosed(1, map=equal)[0]) is None


@pytest.mark.parametrize("seed", range(3))
def test_rank_correlation_is_spearmans(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, 20, 60).astype(float), rng.normal(size=60)  # with ties
    assert rank_correlation(a, b) == pytest.approx(stats.spearmanr(a, b).statistic)
    assert rank_correlation(np.ones(5), np.arange(5.0)) is None


def test_gaps_of_a_map_are_left_out() -> None:
    (run,) = diagnosed(1, map={"x": [0, 1, 2], "y": [0, 1, None], "tau": [0.5, 0.9, 0.1], "sigma": [1, 2, 3]})
    assert mean_tau(run) == pytest.approx(0.7)
    (ragged,) = diagnosed(1, map={"x": [0, 1], "y": [0]})
    assert mean_tau(ragged) is None


def test_sentences_read_well() -> None:
    found: Sequence[Verdict] = verdicts(table(uniq=70.0, iql=60.0), {})
    for verdict in found:
        assert "  " not in verdict.why
        assert "nan" not in verdict.why
