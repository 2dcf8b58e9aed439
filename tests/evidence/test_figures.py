"""The pictures of a training folder, drawn from folders written by hand."""

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from uniq_rl.errors import UniqError
from uniq_rl.evidence import figures
from uniq_rl.evidence.figures import Activity, Histogram, activity, draw_run, read_story, rebinned, verdict
from uniq_rl.evidence.wording import percent

STEPS = range(100, 1001, 100)
UNIQ: dict[str, Any] = {"delta": 0.1, "kappa": 0.5, "tau_min": 0.5, "tau_max": 0.9, "calibrate": "bellman"}


def histogram(edges: list[float], counts: list[int]) -> dict[str, Any]:
    return {"edges": edges, "counts": counts}


SHAPES = {
    "sigma": histogram([0.0, 1.0, 2.0], [3, 1]),
    "u": histogram([0.0, 0.5, 1.0, 1.5], [600, 396, 4]),
    "tau": histogram([0.5, 0.7, 0.88, 0.9], [4, 6, 990]),
    "delta": histogram([-1.0, 0.0, 1.0], [1, 3]),
}


def training_folder(
    folder: Path,
    config: dict[str, Any] = UNIQ,
    algorithm: str = "uniq",
    task: str | None = "hopper",
    episodes: int = 60,
    diverged: dict[str, int] | None = None,
    shapes: dict[str, Any] = SHAPES,
    metrics: tuple[str, ...] = ("value_loss", "critic_loss", "actor_loss", "q", "v"),
    seeds: tuple[str, ...] = ("0", "1", "2"),
) -> Path:
    stop = diverged or {}
    data = {"name": "toy-v0", "task": task, "transitions": 900, "episodes": episodes}
    heldout = 45 if episodes >= 40 else 0
    runs = [
        {"label": seed, "seed": int(seed), "config": config, "data": data, "folds": {"heldout": heldout}}
        for seed in seeds
    ]
    plan = {"steps": 1000, "eval_every": 500, "eval_episodes": 10, "log_every": 100, "physics": "d4rl"}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.json").write_text(json.dumps({"algorithm": algorithm, "plan": plan, "runs": runs}))
    records: list[dict[str, Any]] = []
    scores: list[dict[str, Any]] = []
    for seed in seeds:
        alive = [step for step in STEPS if step < stop.get(seed, 10**9)]
        for step in alive:
            records.append({"kind": "metrics", "step": step, "run": seed} | dict.fromkeys(metrics, step / 7))
            if "delta" in config:
                line = {"kind": "calibration", "step": step, "run": seed, "q_hat": 2.0, "u_above_1": 0.004}
                line["coverage"] = 0.91 if heldout else None
                records.append(line | ({"distributions": shapes} if step % 500 == 0 else {}))
        if seed in stop:
            records.append({"kind": "diverged", "step": stop[seed], "run": seed})
        if task == "hopper":
            values = {500: 20.0 + int(seed), 1000: 40.0 + int(seed)}
            scores += [{"step": s, "run": seed, "score": v if s in alive else None} for s, v in values.items()]
    write_lines(folder / "records.jsonl", records)
    write_lines(folder / "episodes.jsonl", scores)
    return folder


def write_lines(path: Path, lines: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def size_of(path: Path) -> tuple[int, int]:
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    assert content.endswith(b"IEND\xaeB`\x82")
    width, height = struct.unpack(">II", content[16:24])
    return width, height


def texts(figure: Any) -> str:
    """All that is written in a figure."""
    from matplotlib.text import Text

    return "\n".join(text.get_text() for text in figure.findobj(Text))


CASES: dict[str, dict[str, Any]] = {
    "full": {},
    "no scores": {"task": None},
    "one seed": {"seeds": ("0",)},
    "many seeds": {"seeds": tuple(str(seed) for seed in range(9))},
    "no held-out fold": {"episodes": 12},
    "one diverged": {"diverged": {"1": 700}},
    "diverged at once": {"diverged": {"1": 100}},
    "all diverged": {"diverged": {"0": 100, "1": 100, "2": 100}},
    "iql": {"algorithm": "iql", "config": {"expectile": 0.7}},
    "bc": {"algorithm": "bc", "config": {}, "metrics": ("actor_loss",)},
    "raw sigma": {"config": {"calibrate": "none"}},
    "fixed tau": {"config": UNIQ | {"tau_min": 0.9}},
    "nothing finite": {"shapes": dict.fromkeys(SHAPES, histogram([], []))},
    "one value": {"shapes": dict.fromkeys(SHAPES, histogram([0.9, 0.9, 0.9], [0, 7]))},
}


@pytest.mark.parametrize("case", CASES)
def test_draws_both_files(tmp_path: Path, case: str) -> None:
    folder = training_folder(tmp_path / "run", **CASES[case])
    before = {path.name for path in folder.iterdir()}
    drawn = draw_run(folder)
    assert drawn == [folder / "curves.png", folder / "conservatism.png"]
    assert {path.name for path in folder.iterdir()} == before | {"curves.png", "conservatism.png"}
    for path in drawn:
        width, height = size_of(path)
        assert width == 1200
        assert 500 <= height <= 1100
        assert path.stat().st_size > 10_000


def test_same_files_same_picture(tmp_path: Path) -> None:
    first = draw_run(training_folder(tmp_path / "a"))
    second = draw_run(training_folder(tmp_path / "b"))
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert b"Software" not in first[0].read_bytes()


def test_curves_say_what_was_measured_and_how(tmp_path: Path) -> None:
    written = texts(figures.draw_curves(read_story(training_folder(tmp_path))))
    for phrase in ("UNIQ on toy-v0", "d4rl physics", "10 episodes per score", "3 seeds", "mean  41.0", "seed 2  42.0"):
        assert phrase in written


def test_mean_is_over_the_runs_that_did_not_diverge(tmp_path: Path) -> None:
    written = texts(figures.draw_curves(read_story(training_folder(tmp_path, diverged={"2": 700}))))
    assert "mean  40.5" in written
    assert "seed 2 diverged by 700" in written
    assert "1 of 3" in written


def test_runs_with_different_settings_are_not_averaged(tmp_path: Path) -> None:
    folder = training_folder(tmp_path)
    description = json.loads((folder / "run.json").read_text())
    description["runs"][0]["config"] = UNIQ | {"kappa": 1.0}
    (folder / "run.json").write_text(json.dumps(description))
    assert "mean" not in texts(figures.draw_curves(read_story(folder)))


def test_without_scores_the_losses_are_drawn_and_it_says_so(tmp_path: Path) -> None:
    written = texts(figures.draw_curves(read_story(training_folder(tmp_path, task="pendulum"))))
    assert "No simulator for task pendulum" in written
    assert "score;" not in written
    assert {"value loss", "critic loss", "actor loss"} <= set(written.splitlines())


def test_stopped_before_the_first_evaluation(tmp_path: Path) -> None:
    folder = training_folder(tmp_path)
    (folder / "episodes.jsonl").write_text("")
    assert "the first is after 500 updates" in texts(figures.draw_curves(read_story(folder)))


def test_conservatism_shows_the_promises(tmp_path: Path) -> None:
    written = texts(figures.draw_conservatism(read_story(training_folder(tmp_path))))
    assert "1 − δ = 0.9" in written
    assert "dashed: δ = 0.1" in written
    assert "u = 1" in written
    assert "no held-out fold" not in written


def test_no_held_out_fold_is_said(tmp_path: Path) -> None:
    written = texts(figures.draw_conservatism(read_story(training_folder(tmp_path, episodes=12))))
    assert "no held-out fold\n(fewer than 40 episodes)" in written


@pytest.mark.parametrize("case", ["iql", "raw sigma", "bc"])
def test_a_method_without_calibration_says_so(tmp_path: Path, case: str) -> None:
    written = texts(figures.draw_conservatism(read_story(training_folder(tmp_path, **CASES[case]))))
    assert "does not calibrate" in written
    assert ("q (solid) and v (dashed)" in written) == (case != "bc")


def test_verdict_numbers(tmp_path: Path) -> None:
    found = activity(read_story(training_folder(tmp_path)))
    assert found is not None
    assert found.step == 1000
    assert found.u_above_1 == pytest.approx(0.004)
    assert found.near_tau_max == pytest.approx(0.990)
    assert found.mean_tau == pytest.approx((4 * 0.6 + 6 * 0.79 + 990 * 0.89) / 1000)
    assert verdict(found) == (
        "u > 1 on 0.4 % of states; τ(s) within 0.02 of τ_max on 99 %, mean τ 0.89: the mechanism hardly switches on."
    )


@pytest.mark.parametrize(
    ("near", "judgement"), [(0.95, "hardly switches on"), (0.8, "a minority of states"), (0.4, "most states")]
)
def test_verdict_follows_the_share(near: float, judgement: str) -> None:
    assert judgement in verdict(Activity(1, 0.1, near, 0.8, None))


def test_verdict_of_a_fixed_expectile_and_of_nothing(tmp_path: Path) -> None:
    found = activity(read_story(training_folder(tmp_path, **CASES["fixed tau"])))
    assert "τ is fixed at 0.9" in verdict(found)
    assert "No finite uncertainty" in verdict(None)


def test_verdict_leaves_out_runs_that_diverged(tmp_path: Path) -> None:
    story = read_story(training_folder(tmp_path, diverged={"1": 700}))
    assert set(figures.last_distributions(story)) == {0, 2}


@pytest.mark.parametrize(
    ("share", "text"),
    [(0, "0 %"), (1, "100 %"), (0.0004, "0.04 %"), (0.004, "0.4 %"), (0.04, "4 %"), (0.403, "40 %"), (0.996, "99.6 %")],
)
def test_percent(share: float, text: str) -> None:
    assert percent(share) == text


def test_rebinning_keeps_every_state() -> None:
    stored = Histogram(np.asarray([0.0, 1.0, 2.0]), np.asarray([1.0, 3.0]))
    np.testing.assert_allclose(rebinned(stored, np.asarray([0.0, 0.5, 1.0, 2.0])), [0.125, 0.125, 0.75])
    spike = Histogram(np.asarray([0.9, 0.9]), np.asarray([5.0]))
    np.testing.assert_allclose(rebinned(spike, np.linspace(0.5, 0.9, 5)), [0, 0, 0, 1])


def test_labels_are_moved_apart() -> None:
    heights = figures.spread_apart([0.1, 0.5, 0.5, 0.52], gap=0.1)
    assert heights[0] == 0.1
    assert np.diff(heights).min() >= 0.1 - 1e-9
    assert np.mean(heights[1:]) == pytest.approx(np.mean([0.5, 0.5, 0.52]))


@pytest.mark.parametrize("name", ["run.json", "records.jsonl", "episodes.jsonl"])
def test_missing_file(tmp_path: Path, name: str) -> None:
    folder = training_folder(tmp_path)
    (folder / name).unlink()
    with pytest.raises(UniqError, match=name):
        draw_run(folder)
    assert not (folder / "curves.png").exists()


@pytest.mark.parametrize(
    "line",
    [
        '{"kind": "metr',
        "3",
        '{"kind": "metrics", "run": "0"}',
        '{"step": 1, "run": "0"}',
        '{"kind": "metrics", "step": 1, "run": "0", "q": "high"}',
        '{"kind": "calibration", "step": 1, "run": "0", "q_hat": 1, "coverage": 1}',
        '{"kind": "calibration", "step": 1, "run": "0", "q_hat": 1, "coverage": 1, "u_above_1": 0, '
        '"distributions": {"u": {"edges": [0, 1], "counts": [1, 2]}}}',
    ],
)
def test_damaged_records(tmp_path: Path, line: str) -> None:
    folder = training_folder(tmp_path)
    with open(folder / "records.jsonl", "a") as file:
        file.write(line + "\n")
    with pytest.raises(UniqError, match="damaged"):
        draw_run(folder)


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"algorithm": "uniq", "plan": {}, "runs": []}'])
def test_damaged_description(tmp_path: Path, content: str) -> None:
    folder = training_folder(tmp_path)
    (folder / "run.json").write_text(content)
    with pytest.raises(UniqError, match="damaged"):
        draw_run(folder)
