"""Statistics against numbers worked out by hand, and against SciPy where SciPy has the quantity."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from evidence.made_up import made_up, made_up_table
from uniq_rl.errors import UniqError
from uniq_rl.evidence import statistics
from uniq_rl.evidence.results import RunResult
from uniq_rl.evidence.statistics import (
    average,
    average_interval,
    by_cell,
    cell,
    columns,
    gain,
    gap_on_set,
    interquartile_mean,
    performance_profile,
    probability_of_improvement,
)


def scored(scores: dict[str, list[float]], variant: str = "iql", steps: int = 1000) -> list[RunResult]:
    """Runs whose every evaluation is the given score."""
    runs = []
    for kind, values in scores.items():
        for seed, score in enumerate(values):
            run = made_up(variant, "hopper", kind, seed, steps)
            runs.append(replace(run, evaluations=[{**line, "score": score} for line in run.evaluations]))
    return runs


def random_scores(seed: int, sets: int = 9, seeds: int = 5) -> dict[str, list[float]]:
    rng = np.random.default_rng(seed)
    return {f"set-{i}": rng.integers(0, 100, seeds).astype(float).tolist() for i in range(sets)}


def pooled(scores: dict[str, list[float]]) -> np.ndarray:
    return np.concatenate([np.array(values) for values in scores.values()])


def test_a_cell_by_hand() -> None:
    found = cell(scored({"medium": [10.0, 20.0, 60.0]}))
    assert found.mean == 30
    assert found.std == pytest.approx(np.sqrt((400 + 100 + 900) / 2))
    assert (found.values, found.seeds) == ((10, 20, 60), (0, 1, 2))
    assert np.isnan(cell(scored({"medium": [10.0]})).std)


def test_each_reading() -> None:
    runs = [made_up(seed=seed) for seed in range(3)]
    for reading in statistics.READINGS:
        assert cell(runs, reading).mean == pytest.approx(np.mean([getattr(run, reading) for run in runs]))
    assert "oracle" in statistics.READING_NAMES["best"]
    with pytest.raises(UniqError, match="one of last, mean_of_last, best"):
        cell(runs, "median")  # type: ignore[arg-type]


def test_cells_are_of_one_budget_and_mixtures_are_refused() -> None:
    short, long = scored({"medium": [1.0, 2.0]}, steps=300), scored({"medium": [5.0, 6.0, 7.0]}, steps=1000)
    assert cell(by_cell(short + long)["iql", "hopper-medium"]).values == (5, 6, 7)
    assert cell(by_cell(short + long, steps=300)["iql", "hopper-medium"]).values == (1, 2)
    assert set(columns(short + long)) == {("iql", 300), ("iql", 1000)}
    for function in (cell, average, interquartile_mean, average_interval):
        with pytest.raises(UniqError, match="not to be averaged"):
            function(short + long)
    with pytest.raises(UniqError, match="not to be averaged"):
        average(long + scored({"medium": [5.0]}, "uniq"))
    with pytest.raises(UniqError, match="one set, not 2"):
        cell(scored({"medium": [1.0], "expert": [2.0]}))


def test_a_seed_counts_once() -> None:
    run = made_up()
    other = replace(run, recipe=replace(run.recipe, eval_every=7))
    with pytest.raises(UniqError, match="two runs of iql on hopper-medium with seed 0"):
        by_cell([run, other])


def test_averages_over_sets_weigh_sets_alike() -> None:
    assert average(scored({"medium": [10.0, 20.0, 30.0], "expert": [100.0]})) == 60
    assert np.isnan(average([]))


def test_a_run_that_diverged_counts_as_nothing() -> None:
    runs = [made_up(seed=0, mean=60.0), made_up(seed=1, diverged=True)]
    assert cell(runs).values[1] == 0


def test_interquartile_mean_by_hand() -> None:
    # Eight runs: the lowest two and the highest two go.
    found = interquartile_mean(scored({"a": [0.0, 1.0, 50.0, 1000.0], "b": [40.0, 60.0, 10.0, 900.0]}))
    assert found.point == (10 + 40 + 50 + 60) / 4
    assert found.low < found.point < found.high


@pytest.mark.parametrize("seeds", [2, 3, 4, 5, 7])
def test_interquartile_mean_is_scipys_trimmed_mean(seeds: int) -> None:
    scores = random_scores(seeds, seeds=seeds)
    assert interquartile_mean(scored(scores)).point == pytest.approx(stats.trim_mean(pooled(scores), 0.25))


def test_bootstrap_of_a_mean_agrees_with_scipys() -> None:
    values = np.random.default_rng(3).normal(50, 10, 30)
    found = average_interval(scored({"medium": values.tolist()}))
    expected = stats.bootstrap((values,), np.mean, n_resamples=5000, method="percentile", random_state=0)
    assert found.low == pytest.approx(expected.confidence_interval.low, abs=0.4)
    assert found.high == pytest.approx(expected.confidence_interval.high, abs=0.4)


def test_the_interval_agrees_with_a_plain_loop() -> None:
    scores = random_scores(5, sets=4, seeds=6)
    rng = np.random.default_rng(9)
    drawn = [
        stats.trim_mean(np.concatenate([rng.choice(values, len(values)) for values in scores.values()]), 0.25)
        for _ in range(2000)
    ]
    found = interquartile_mean(scored(scores))
    np.testing.assert_allclose([found.low, found.high], np.percentile(drawn, [2.5, 97.5]), atol=1.5)


def test_the_bootstrap_is_stratified() -> None:
    """Seeds that agree within each set leave nothing to doubt, however far apart the sets are."""
    found = interquartile_mean(scored({"a": [10.0, 10.0, 10.0], "b": [90.0, 90.0, 90.0]}))
    assert found.low == found.point == found.high == 50


def test_intervals_are_seeded_and_absent_with_one_seed() -> None:
    runs = made_up_table({"iql": 60.0})
    assert interquartile_mean(runs) == interquartile_mean(runs)
    assert interquartile_mean(runs) == interquartile_mean(runs[::-1])
    alone = interquartile_mean(made_up_table({"iql": 60.0}, seeds=(0,)))
    assert np.isfinite(alone.point)
    assert np.isnan([alone.low, alone.high]).all()
    assert np.isnan(interquartile_mean([])).all()


def test_probability_of_improvement_by_hand() -> None:
    a = scored({"a": [3.0, 5.0], "b": [1.0, 1.0]}, "uniq")
    b = scored({"a": [3.0, 4.0], "b": [2.0, 2.0]})
    # On set a: 3 = 3 (half), 3 < 4, 5 > 3, 5 > 4: 2.5 of 4; on set b: none of 4.
    found = probability_of_improvement(a, b)
    assert found.point == pytest.approx((2.5 / 4 + 0) / 2)
    assert 0 <= found.low <= found.point <= found.high <= 1
    assert probability_of_improvement(b, a).point == pytest.approx(1 - found.point)


def test_probability_of_improvement_is_mann_whitneys() -> None:
    ours, theirs = random_scores(1, seeds=6), random_scores(2, seeds=4)
    expected = [stats.mannwhitneyu(ours[name], theirs[name]).statistic / (6 * 4) for name in ours]
    found = probability_of_improvement(scored(ours, "uniq"), scored(theirs))
    assert found.point == pytest.approx(np.mean(expected))


def test_what_cannot_be_compared_has_no_probability() -> None:
    a, b = scored({"a": [3.0, 5.0]}, "uniq"), scored({"b": [3.0, 4.0]})
    assert np.isnan(probability_of_improvement(a, b)).all()
    assert np.isnan(probability_of_improvement(a, scored({"a": [3.0, 4.0]}, steps=300))).all()
    assert np.isnan(gain(a, b)).all()


def test_only_sets_in_common_are_compared() -> None:
    a = scored({"a": [3.0, 5.0], "b": [100.0, 100.0]}, "uniq")
    b = scored({"a": [1.0, 2.0]})
    assert probability_of_improvement(a, b).point == 1
    assert gain(a, b).point == pytest.approx(4 - 1.5)


def test_gain_and_its_interval() -> None:
    a, b = made_up_table({"uniq": 70.0}), made_up_table({"iql": 60.0})
    found = gain(a, b)
    assert found.point == pytest.approx(average(a) - average(b))
    assert found.low < found.point < found.high


def test_the_gap_on_one_set_has_welchs_interval() -> None:
    ours, theirs = [3.0, 5.0, 10.0], [1.0, 2.0]
    for level in (0.95, 0.99):
        found = gap_on_set(scored({"a": ours}, "uniq"), scored({"a": theirs}), level)
        welch = stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval(level)
        assert found == pytest.approx((4.5, welch.low, welch.high))
    assert np.isnan(gap_on_set(scored({"a": ours}, "uniq"), scored({"a": [1.0]})).low)
    assert gap_on_set(scored({"a": [2.0, 2.0]}, "uniq"), scored({"a": [1.0, 1.0]})) == (1, 1, 1)


def test_performance_profile_by_hand() -> None:
    runs = scored({"a": [10.0, 20.0], "b": [20.0, 40.0, 60.0, 80.0]})
    found = performance_profile(runs, [0, 10, 20, 50, 80])
    expected = [1, (0.5 + 1) / 2, (0 + 0.75) / 2, (0 + 0.5) / 2, 0]  # strictly above, sets weighing alike
    np.testing.assert_allclose(found.point, expected)
    assert (found.low <= found.point + 1e-12).all()
    assert (found.point <= found.high + 1e-12).all()
    assert np.isnan(performance_profile([], [0.0, 1.0]).point).all()
