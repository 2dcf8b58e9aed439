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


def test_better_on_every_set() -> None:
    judged(better_on_every_set(table(uniq=70.0, iql=60.0)), "holds", "9 of 9 sets", "1k updates", "probability 1.00")
    judged(better_on_every_set(table(uniq=60.0, iql=70.0)), "does not hold", "0 of 9 sets")
    one_worse = [
        run if run.set != "hopper-medium" or run.variant == "iql" else made_up("uniq", seed=run.recipe.seed, mean=20.0)
        for run in table(uniq=70.0, iql=60.0)
    ]
    judged(better_on_every_set(one_worse), "does not hold", "8 of 9 sets", "Worst: hopper-medium.")
    some = [run for run in table(uniq=70.0, iql=60.0) if run.task == "hopper"]
    judged(better_on_every_set(some), "not tested", "3 of 3 sets", "other 6 sets")
    judged(better_on_every_set(table(uniq=70.0)), "not tested", "no runs")


def test_better_on_average() -> None:
    judged(better_on_average(table(uniq=70.0, iql=60.0)), "holds", "9 sets", "probability")
    judged(better_on_average(table(uniq=61.5, iql=60.0)), "does not hold", "less than 3.6")
    judged(better_on_average(table(uniq=60.0, iql=60.0)), "does not hold", "cannot tell")
    judged(better_on_average(table(uniq=50.0, iql=60.0)), "does not hold", "UNIQ is worse")
    judged(better_on_average(made_up_table({"uniq": 70.0, "iql": 60.0}, seeds=(0,))), "not tested", "one seed")
    some = [run for run in table(uniq=70.0, iql=60.0) if run.task == "hopper"]
    judged(better_on_average(some), "not tested", "nine sets")


def test_budgets_are_not_mixed() -> None:
    runs = [*made_up_table({"uniq": 70.0}, steps=1000), *made_up_table({"iql": 60.0}, steps=300)]
    judged(better_on_average(runs), "not tested", "same budget")
    both = [*runs, *made_up_table({"uniq": 50.0}, steps=300)]
    judged(better_on_average(both), "does not hold", "300 updates")


def test_ablations() -> None:
    runs = made_up_table({"uniq": 70.0, "uniq fixed tau": 60.0, "uniq raw sigma": 70.0, "uniq kappa 0": 90.0})
    judged(better_than(runs, "uniq fixed tau", "claim"), "holds", "9 sets")
    judged(better_than(runs, "uniq raw sigma", "claim"), "does not hold", "cannot tell")
    judged(better_than(runs, "uniq kappa 0", "claim"), "does not hold", "UNIQ is worse")
    judged(better_than(runs, "uniq kappa 1", "claim"), "not tested")


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
    judged(active(idle, []), "does not hold", "on 2 % of states", "u > 1 on 1 %")
    judged(active(idle, busy), "does not hold", "by disagreement, with one configuration: 60 % of states")
    judged(active(busy, []), "holds", "on 60 % of states")
    judged(active(diagnosed(), []), "not tested")
    fixed = diagnosed(config={"tau_min": 0.9, "tau_max": 0.9}, distributions={"tau": near})
    judged(active(fixed, []), "does not hold", "0 %")


def test_tau_is_read_from_the_map_where_there_is_no_histogram() -> None:
    (run,) = diagnosed(1, map={"x": [0, 1], "y": [0, 1], "tau": [0.5, 0.9], "sigma": [1, 2]})
    assert mean_tau(run) == pytest.approx(0.7)
    assert share_lowered(run) == 0.5


def test_coverage() -> None:
    def covering(share: float | None) -> list[RunResult]:
        runs = diagnosed()
        return [replace(run, calibration=[{**line, "coverage": share} for line in run.calibration]) for run in runs]

    judged(covers(covering(0.89)), "holds", "89 %", "90 % were promised", "3 of 3 runs")
    judged(covers(covering(0.80)), "does not hold", "80 %", "0 of 3 runs")
    judged(covers(covering(0.99)), "does not hold")
    judged(covers(covering(None)), "not tested")


def test_sigma_predicts_error_or_not() -> None:
    key = "rank_correlation"
    judged(predicts_error(diagnosed(error={key: 0.45})), "holds", "+0.45", "3 runs on 1 set")
    judged(predicts_error(diagnosed(error={key: 0.05})), "does not hold", "+0.05")
    judged(predicts_error(diagnosed(error={key: -0.4})), "does not hold")
    judged(predicts_error(diagnosed(error={key: None})), "not tested")
    unsure = [run for value in (-0.9, 0.8, 0.9) for run in diagnosed(1, error={key: value})]
    unsure = [replace(run, recipe=replace(run.recipe, seed=seed)) for seed, run in enumerate(unsure)]
    judged(predicts_error(unsure), "does not hold", "+0.27")


def test_sigma_is_larger_where_data_are_thin_or_not() -> None:
    thin = full_diagnosis()["map"]
    judged(larger_where_thin(diagnosed(map=thin)), "holds")
    turned = {**thin, "sigma": [-value for value in thin["sigma"]]}
    judged(larger_where_thin(diagnosed(map=turned)), "does not hold")
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
