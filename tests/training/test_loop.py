"""The loop around the compiled program: what happens when, what a diverging run does to the others, what is written."""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import uniq_rl as ur
from uniq_rl.errors import UniqError
from uniq_rl.training import loop
from uniq_rl.training.cohort import Cohort, Progress

METHOD = ur.UNIQ(hidden=(64, 64), batch_size=16, recalibrate_every=20)
RUNS = ("a", "b", "c", "d")
WILD = "b"
PLAN = ur.Plan(steps=60, eval_every=20, eval_episodes=2, log_every=10)


@pytest.fixture(scope="module")
def data() -> ur.Dataset:
    """Noise with hopper's widths, so that it can be scored."""
    rng = np.random.default_rng(0)
    return ur.from_arrays(
        {
            "obs": rng.normal(size=(400, 11)).astype(np.float32),
            "action": rng.uniform(-1, 1, size=(400, 3)).astype(np.float32),
            "reward": rng.normal(size=400).astype(np.float32),
            "next_obs": rng.normal(size=(400, 11)).astype(np.float32),
            "terminated": np.arange(400) % 8 == 7,
            "truncated": np.zeros(400, bool),
        },
        task="hopper",
    )


# When


@pytest.mark.parametrize("limit", [200, 1000])
@pytest.mark.parametrize(
    ("plan", "interval"),
    [
        (ur.Plan(1_000_000, 50_000), 5000),
        (ur.Plan(3000, 1000), 5000),
        (ur.Plan(3000, 500, log_every=100), None),
        (ur.Plan(300, 100), 5000),
        (ur.Plan(1001, 997, log_every=1000), 5000),
        (ur.Plan(2500, 700, log_every=300), 110),
        (ur.Plan(7, 3, log_every=2), None),
        (ur.Plan(1, 1, log_every=1), 1),
    ],
)
def test_chunks_end_wherever_something_is_due(plan: ur.Plan, interval: int | None, limit: int) -> None:
    ends = plan.boundaries(interval, limit)
    assert ends == sorted(set(ends))
    assert ends[-1] == plan.steps
    assert all(0 < length <= limit for length in np.diff([0, *ends]))
    for every in (plan.eval_every, plan.log_every, interval):
        if every:
            assert set(range(every, plan.steps + 1, every)) <= set(ends)


@pytest.mark.parametrize(
    ("plan", "interval", "length"),
    [
        (ur.Plan(1_000_000, 50_000), 5000, 200),
        (ur.Plan(3000, 1000), 5000, 200),
        (ur.Plan(3000, 500), None, 125),
        (ur.Plan(300, 100), 5000, 100),
    ],
)
def test_intervals_with_a_common_divisor_need_one_program(plan: ur.Plan, interval: int | None, length: int) -> None:
    assert set(np.diff([0, *plan.boundaries(interval, 200)])) == {length}


def test_intervals_without_one_do_not_make_chunks_tiny() -> None:
    ends = ur.Plan(10_000, 997, log_every=1000).boundaries(None, 200)
    assert len(ends) <= 10_000 // 200 + 10_000 // 997 + 10_000 // 1000


def test_evaluations_and_records_are_due_at_their_intervals_and_at_the_end() -> None:
    plan = ur.Plan(10, 4, log_every=3)
    assert [step for step in range(11) if plan.evaluates_at(step)] == [4, 8, 10]
    assert [step for step in range(1, 11) if plan.logs_at(step)] == [3, 6, 9, 10]


@pytest.mark.parametrize("name", ["steps", "eval_every", "eval_episodes", "log_every"])
def test_a_plan_needs_positive_numbers(name: str) -> None:
    with pytest.raises(ur.UniqError, match=f"{name} is 0"):
        ur.Plan(**({"steps": 10, "eval_every": 5} | {name: 0}))


def test_a_plan_needs_a_known_physics() -> None:
    with pytest.raises(ur.UniqError, match="bullet"):
        ur.Plan(10, 5, physics="bullet")


# A run that diverges


class Notes(ur.Monitor):
    def __init__(self) -> None:
        self.sentences: list[str] = []
        self.steps: list[int] = []

    def noted(self, sentence: str) -> None:
        self.sentences.append(sentence)

    def advanced(self, step: int) -> None:
        self.steps.append(step)


def cohort(data: ur.Dataset, labels: tuple[str, ...], wild_rate: float) -> list[ur.Run]:
    """Runs that differ in seed and kappa; the wild one also in its learning rate."""
    return [
        ur.Run(
            dataclasses.replace(METHOD, kappa=0.2 * seed, learning_rate=wild_rate if label == WILD else 1e-3),
            data,
            seed,
            label,
        )
        for seed, label in enumerate(RUNS)
        if label in labels
    ]


@pytest.fixture(scope="module")
def notes() -> Notes:
    return Notes()


@pytest.fixture(scope="module")
def diverged(data: ur.Dataset, notes: Notes, tmp_path_factory: pytest.TempPathFactory) -> ur.Result:
    return ur.train_runs(cohort(data, RUNS, 1e3), PLAN, tmp_path_factory.mktemp("diverged") / "out", notes)


@pytest.fixture(scope="module")
def sane(data: ur.Dataset) -> ur.Result:
    return ur.train_runs(cohort(data, RUNS, 1e-3), PLAN)


def by_label(result: ur.Result, label: str) -> Any:
    """The result's key of a run: its seed where seeds are unique."""
    return RUNS.index(label)


def leaves(policy: ur.Policy) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves((policy.state, policy.obs_mean, policy.obs_std))]


def lines_of(result: ur.Result, label: str) -> list[dict[str, Any]]:
    return [line for line in (*result.records, *result.episodes) if line["run"] == label]


def test_divergence_is_reported(diverged: ur.Result, notes: Notes) -> None:
    assert diverged.finished
    assert diverged.diverged == (by_label(diverged, WILD),)
    (line,) = [line for line in diverged.records if line["kind"] == "diverged"]
    assert line["run"] == WILD
    (sentence,) = [sentence for sentence in notes.sentences if "diverged" in sentence]
    assert sentence.startswith(f"Run {WILD} diverged by step {line['step']}:")


def test_divergent_run_is_given_up_and_scored_as_failed(diverged: ur.Result) -> None:
    assert diverged.out
    (divergence,) = [line["step"] for line in diverged.records if line["kind"] == "diverged"]
    assert all(
        line["step"] < divergence for line in diverged.records if line["run"] == WILD and line["kind"] != "diverged"
    )
    scored = {line["step"]: line for line in diverged.episodes if line["run"] == WILD}
    assert set(scored) == {20, 40, 60}
    for step, line in scored.items():
        if step >= divergence:
            assert line == {"step": step, "run": WILD, "score": None}
    assert np.isnan(diverged.scores[by_label(diverged, WILD)])
    assert by_label(diverged, WILD) not in diverged.policies
    assert {path.name for path in diverged.out.glob("policy-*")} == {
        f"policy-{label}.safetensors" for label in RUNS if label != WILD
    }
    json.loads((diverged.out / "episodes.jsonl").read_text().splitlines()[-1], parse_constant=pytest.fail)


def test_the_others_equal_what_they_are_beside_a_sane_run(diverged: ur.Result, sane: ur.Result) -> None:
    assert sane.diverged == ()
    for label in RUNS:
        if label != WILD:
            assert lines_of(diverged, label) == lines_of(sane, label)
            pairs = zip(
                leaves(diverged.policies[by_label(diverged, label)]),
                leaves(sane.policies[by_label(sane, label)]),
                strict=True,
            )
            assert all(np.array_equal(mine, theirs) for mine, theirs in pairs)


def test_the_others_equal_what_they_are_without_it(data: ur.Dataset, diverged: ur.Result) -> None:
    """Three runs are another program than four, so up to rounding."""
    others = tuple(label for label in RUNS if label != WILD)
    alone = ur.train_runs(cohort(data, others, 1e3), PLAN)
    for label in others:
        for mine, theirs in zip(
            leaves(diverged.policies[by_label(diverged, label)]),
            leaves(alone.policies[by_label(alone, label)]),
            strict=True,
        ):
            np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


def test_evaluation_of_a_cohort_with_a_divergent_run_repeats_exactly(diverged: ur.Result) -> None:
    assert diverged.out
    labels, evaluation = ur.evaluate(diverged.out, repeat=True)
    last = diverged.episodes[-len(RUNS) :]
    assert labels == [line["run"] for line in last]
    assert [None if np.isnan(score) else score for score in evaluation.scores] == [line["score"] for line in last]


def test_a_finished_training_resumes_to_itself(data: ur.Dataset, diverged: ur.Result) -> None:
    assert diverged.out
    before = {path.name: path.read_bytes() for path in diverged.out.glob("*.*")}
    again = ur.resume(diverged.out, data)
    assert {path.name: path.read_bytes() for path in diverged.out.glob("*.*")} == before
    assert again.diverged == diverged.diverged
    assert again.records == diverged.records
    assert again.episodes == diverged.episodes


# What is written


def test_training_in_memory_writes_nothing(data: ur.Dataset, sane: ur.Result, tmp_path: Path) -> None:
    assert sane.out is None
    assert list(tmp_path.iterdir()) == []
    assert sane.finished
    assert set(sane.policies) == set(sane.scores) == set(range(len(RUNS)))
    obs = data.obs[:5]
    for policy in sane.policies.values():
        assert policy(obs).shape == (5, 3)
        assert policy.uncertainty(obs).sigma.shape == (5,)


def test_memory_and_folder_tell_the_same(diverged: ur.Result, sane: ur.Result) -> None:
    kinds = [(line["kind"], line["step"], line["run"]) for line in sane.records]
    others = [entry for entry in kinds if entry[2] != WILD]
    assert others == [(line["kind"], line["step"], line["run"]) for line in diverged.records if line["run"] != WILD]
    last = {line["run"]: line["score"] for line in sane.episodes}
    assert sane.scores == {by_label(sane, label): last[label] for label in RUNS}


def test_records_hold_no_clock(diverged: ur.Result) -> None:
    """Else a resumed training could not end with the same bytes."""
    keys = {key for line in (*diverged.records, *diverged.episodes) for key in line}
    assert not {key for key in keys if re.search("time|second|date|clock|host|rate$|pid", key)}
    assert {"kind", "step", "run", "value_loss", "q_hat", "coverage", "score", "returns", "lengths"} <= keys


def test_progress_is_told_at_every_chunk(notes: Notes, diverged: ur.Result) -> None:
    assert notes.steps == PLAN.boundaries(METHOD.recalibrate_every, loop.CHUNK["cpu"])


@pytest.mark.parametrize("content", ["run.json", "notes.txt"])
def test_a_folder_with_anything_in_it_is_refused(content: str, data: ur.Dataset, tmp_path: Path) -> None:
    (tmp_path / content).write_text("mine")
    with pytest.raises(ur.UniqError, match="exists already"):
        ur.train(METHOD, data, steps=2, out=tmp_path)
    assert (tmp_path / content).read_text() == "mine"
    assert len(list(tmp_path.iterdir())) == 1


def test_nothing_is_written_before_all_is_checked(data: ur.Dataset, tmp_path: Path) -> None:
    with pytest.raises(ur.UniqError, match="too few for delta"):
        ur.train(dataclasses.replace(METHOD, delta=0.001), data, steps=2, out=tmp_path / "new" / "out")
    with pytest.raises(ur.UniqError, match="of width 17"):
        ur.train(METHOD, data, steps=2, out=tmp_path / "new" / "out", task="walker2d")
    assert list(tmp_path.iterdir()) == []


def test_runs_of_a_cohort_must_share_a_structure(data: ur.Dataset) -> None:
    runs = [ur.Run(METHOD, data, 0, "a"), ur.Run(dataclasses.replace(METHOD, hidden=(4,)), data, 0, "b")]
    with pytest.raises(ur.UniqError, match="differ in numbers only"):
        ur.train_runs(runs, PLAN)


def test_what_lies_in_memory_must_be_passed_again(data: ur.Dataset, diverged: ur.Result) -> None:
    assert diverged.out
    with pytest.raises(ur.UniqError, match="arrays in memory"):
        ur.resume(diverged.out)


def test_data_with_a_task_of_ones_own_train_without_scores_and_resume(data: ur.Dataset, tmp_path: Path) -> None:
    own = dataclasses.replace(data, task="my-robot")
    result = ur.train(ur.IQL(hidden=(8,), batch_size=16), own, steps=1, out=tmp_path / "out")
    assert (result.scores, result.episodes) == ({}, [])
    assert ur.resume(tmp_path / "out", own).records == result.records


# A clean stop, at every chunk there is


class StopAtOnce(ur.Monitor):
    def stop_requested(self) -> bool:
        return True


def test_a_stop_at_every_chunk_resumes_to_the_same_end(data: ur.Dataset, diverged: ur.Result, tmp_path: Path) -> None:
    """Also at the steps of an evaluation, which must then be neither lost nor told twice."""
    assert diverged.out
    out = tmp_path / "out"
    result = ur.train_runs(cohort(data, RUNS, 1e3), PLAN, out, StopAtOnce())
    stops = 0
    while not result.finished:
        stops += 1
        result = ur.resume(out, data, StopAtOnce())
    assert stops == PLAN.steps // 10 - 1
    names = ["records.jsonl", "episodes.jsonl", *(path.name for path in diverged.out.glob("policy-*"))]
    assert {name: (out / name).read_bytes() for name in names} == {
        name: (diverged.out / name).read_bytes() for name in names
    }


def test_a_chunk_begins_before_the_one_before_is_written_down(
    data: ur.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing between two chunks waits for the device, unless an evaluation is due."""
    order: list[str] = []
    advance, notes = Cohort.advance, Notes()

    def noted(self: Cohort, progress: Progress, length: int, begin: int | None = None) -> Progress:
        order.append(f"to {begin + length}" if begin is not None else "asked")
        return advance(self, progress, length, begin)

    monkeypatch.setattr(Cohort, "advance", noted)
    monkeypatch.setattr(notes, "advanced", lambda step: order.append(f"written {step}"))
    ur.train_runs(cohort(data, ("a",), 1e-3), PLAN, monitor=notes)
    assert order == [
        *("to 10", "to 20", "written 10", "written 20"),
        *("to 30", "to 40", "written 30", "written 40"),
        *("to 50", "to 60", "written 50", "written 60"),
    ]


class TooSmall:
    """A device whose memory is full from a step on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, step: int, message: str) -> None:
        advance = Cohort.advance

        def failing(self: Cohort, progress: Progress, length: int, begin: int | None = None) -> Progress:
            if int(progress.step) >= step:
                raise jax.errors.JaxRuntimeError(message)
            return advance(self, progress, length, begin)

        monkeypatch.setattr(Cohort, "advance", failing)


@pytest.mark.parametrize(
    "message", ["RESOURCE_EXHAUSTED: Out of memory while trying\nmore", "INTERNAL: Out of memory allocating 9 bytes."]
)
def test_too_little_memory_is_one_sentence_and_no_empty_folder(
    message: str, data: ur.Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    TooSmall(monkeypatch, 0, message)
    with pytest.raises(
        UniqError, match=r"^The device has too little memory .*ut of memory[^.]*; train fewer runs[^\n]*$"
    ):
        ur.train_runs(cohort(data, RUNS, 1e3), PLAN, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_what_was_saved_before_memory_ran_out_is_kept(
    data: ur.Dataset, diverged: ur.Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert diverged.out
    with monkeypatch.context() as small:
        TooSmall(small, 30, "RESOURCE_EXHAUSTED: Out of memory")
        with pytest.raises(UniqError, match="too little memory"):
            ur.train_runs(cohort(data, RUNS, 1e3), PLAN, tmp_path / "out")
    assert ur.resume(tmp_path / "out", data).finished
    for name in ("records.jsonl", "episodes.jsonl"):
        assert (tmp_path / "out" / name).read_bytes() == (diverged.out / name).read_bytes()


def test_other_errors_of_the_device_are_not_explained_away(
    data: ur.Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    TooSmall(monkeypatch, 0, "INTERNAL: an illegal instruction was encountered")
    with pytest.raises(jax.errors.JaxRuntimeError, match="illegal instruction"):
        ur.train_runs(cohort(data, RUNS, 1e3), PLAN)
