"""Figures: each is drawn from whatever results there are, and says what is missing."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from evidence.made_up import costs, made_up, made_up_table
from evidence.test_claims import full_diagnosis
from uniq_rl.evidence import plots
from uniq_rl.evidence.results import RunResult
from uniq_rl.evidence.variants import ONE

FIGURES = {
    "figure-1b",
    "figure-2",
    "calibration",
    "tau-maps",
    "tau-maps-one",
    "sigma-error",
    "score-cost",
    "profiles",
}


@pytest.fixture
def texts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """All texts of the figures that are drawn."""
    found: list[str] = []
    render = plots.png

    def spying(figure: Figure) -> bytes:
        content = render(figure)
        found.extend(text.get_text() for text in figure.findobj(match=lambda artist: hasattr(artist, "get_text")))
        return content

    monkeypatch.setattr(plots, "png", spying)
    return found


def everything() -> list[RunResult]:
    runs = made_up_table({"iql": 60.0, "uniq": 64.0, ONE: 66.0, "bc": 40.0}, seeds=(0, 1))
    return [replace(run, diagnosis=full_diagnosis()) if run.calibration else run for run in runs]


def assert_drawn(drawn: dict[str, Path]) -> None:
    assert set(drawn) == FIGURES
    for path in drawn.values():
        assert path.read_bytes().startswith(b"\x89PNG")
        assert b"</svg>" in path.with_suffix(".svg").read_bytes()


def test_all_figures(tmp_path: Path, texts: list[str]) -> None:
    drawn = plots.draw_all(everything(), tmp_path / "new", costs(iql=(100.0, 200.0), uniq=(120.0, 240.0)))
    assert_drawn(drawn)
    seen = "\n".join(texts)
    for wanted in (
        "UNIQ minus IQL: above on 9 of 9 sets",
        "promised: 90 %",
        "δ: 10 %",
        "rank correlation of σ with the error",
        "+0.50",
        "time measured on made up",
        "IQL (1k)",
        "band: 95 % of stratified bootstraps",
        "τ from 0.90 to 0.90",
    ):
        assert wanted in seen
    for absent in ("not run", "not recorded", "Nothing to show"):
        assert absent not in seen


def test_figures_without_results_say_so(tmp_path: Path, texts: list[str]) -> None:
    assert_drawn(plots.draw_all([], tmp_path, {}))
    seen = "\n".join(texts)
    for wanted in (
        "There are no runs of UNIQ and IQL",
        "neither was run yet",
        "not recorded",
        "no map of τ(s) recorded",
        "no error on unseen episodes recorded",
        "the cost of updates was not measured",
        "No method was run on all nine sets",
    ):
        assert wanted in seen


def test_one_seed_of_one_set(tmp_path: Path, texts: list[str]) -> None:
    runs = [made_up("uniq", mean=50.0), made_up("iql", mean=60.0), made_up("uniq", "walker2d", diverged=True)]
    assert_drawn(plots.draw_all(runs, tmp_path, costs(iql=(100.0, 200.0), uniq=(120.0, 240.0))))
    seen = "\n".join(texts)
    assert "above on 0 of 1 sets" in seen
    assert "8 sets not run" in seen
    assert "nan" not in seen


def test_the_same_results_give_the_same_bytes(tmp_path: Path) -> None:
    first, second = (plots.draw_gaps(everything(), tmp_path / name) for name in ("a", "b"))
    assert first.read_bytes() == second.read_bytes()
    assert first.with_suffix(".svg").read_bytes() == second.with_suffix(".svg").read_bytes()


def scored(scores: Sequence[float | None], seed: int) -> RunResult:
    lines = [{"step": 10 * (i + 1), "score": score} for i, score in enumerate(scores)]
    return replace(made_up(seed=seed), evaluations=lines, diverged=None in scores)


def test_bands_by_hand() -> None:
    steps, mean, std = plots.band([scored([1.0, 4.0], 0), scored([3.0, None], 1)])
    np.testing.assert_array_equal(steps, [10, 20])
    np.testing.assert_allclose(mean, [2, 2])  # a run that diverged scores nothing
    np.testing.assert_allclose(std, [np.sqrt(2), np.sqrt(8)])
    assert (plots.band([scored([1.0, 4.0], 0)])[2] == 0).all()


def test_calibration_curves_by_hand() -> None:
    runs = [made_up("uniq", seed=seed) for seed in (0, 1)]
    lines = ([{"step": 5, "q_hat": 1.0}, {"step": 10, "q_hat": None}], [{"step": 5, "q_hat": 3.0}])
    curve = plots.mean_curve([replace(run, calibration=c) for run, c in zip(runs, lines, strict=True)], "q_hat")
    assert (curve.steps.tolist(), curve.values.tolist()) == ([5], [2.0])
    assert not len(plots.mean_curve(runs, "coverage_of_something_else").steps)


def test_cost_points_by_hand() -> None:
    runs = made_up_table({"iql": 60.0, "uniq": 64.0})
    points = plots.score_cost_points(runs, costs(iql=(100.0, 200.0), uniq=(150.0, 240.0), bc=(10.0, 1.0)))
    assert [(name, time, full) for name, time, _, _, full in points] == [
        ("UNIQ (1k)", 1.5, True),
        ("IQL (1k)", 1, True),
    ]
    assert points[0][2] == pytest.approx(np.mean([run.last for run in runs if run.variant == "uniq"]))


def test_names_beside_points_do_not_cover_each_other() -> None:
    places = (("a", 1.0, 50.0), ("b", 1.1, 50.2), ("c", 9.0, 50.1))
    points = [(name, time, score, "k", True) for name, time, score in places]
    assert plots.label_heights(points, gap=1.0) == [51.2, 50.2, 50.1]  # the name of a would run into the point of b
