"""`uniq-rl bench`: what is missing is run, once, whatever interrupts it."""

import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import pytest

from evidence.tiny import TINY
from uniq_rl import cli
from uniq_rl.evidence import bench
from uniq_rl.evidence.bench import Busy, Place, claimed, finish, prepare, standing
from uniq_rl.evidence.grid import Grid, read_grid
from uniq_rl.evidence.results import path_of, read_results
from uniq_rl.suite import datasets
from uniq_rl.training.cohort import Cohort, Progress
from uniq_rl.training.loop import Monitor

SOURCE = Path(__file__).resolve().parents[2] / "src"

# Runs the command and falls right after the n-th file or folder got its final name: all that lasts passes there.
FALL = """
import os, signal, sys
from uniq_rl.cli import main

count = int(sys.argv[1])

def falling(move):
    def moved(source, target, **options):
        global count
        move(source, target, **options)
        count -= sys.argv[2] in str(target)
        if count == 0:
            os.kill(os.getpid(), signal.SIGKILL)
    return moved

os.replace, os.rename = falling(os.replace), falling(os.rename)
main(sys.argv[3:])
"""


class Desk:
    """A folder with a tiny grid and its results."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self.folder, self.results, self.work = folder, folder / "results", folder / "results" / ".work"
        self.environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": str(programs), "PYTHONPATH": str(SOURCE)}
        folder.mkdir(exist_ok=True)
        (folder / "tiny.toml").write_text(TINY)

    @property
    def grid(self) -> Grid:
        return read_grid(self.folder / "tiny.toml")

    @property
    def place(self) -> Place:
        return Place(self.results, self.work)

    def bench(self, *options: str, fall: tuple[int, str] | None = None) -> subprocess.CompletedProcess[str]:
        start = ["-m", "uniq_rl"] if fall is None else ["-c", FALL, str(fall[0]), fall[1]]
        return subprocess.run(
            [sys.executable, *start, "bench", "tiny.toml", *options],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def kept(self) -> dict[str, Any]:
        """Every result without what the clock says."""
        content = {path.name: json.loads(path.read_text()) for path in (self.results / "runs").glob("*")}
        return {
            name: {key: value for key, value in result.items() if key != "cost"} for name, result in content.items()
        }

    def times(self) -> dict[str, int]:
        return {path.name: path.stat().st_mtime_ns for path in (self.results / "runs").iterdir()}

    def begun(self) -> list[Path]:
        return sorted(self.work.iterdir()) if self.work.exists() else []


@contextmanager
def quiet(name: str) -> Iterator[Any]:
    yield None


class StopAtOnce(Monitor):
    def stop_requested(self) -> bool:
        return True


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("programs")


@pytest.fixture
def desk(tmp_path: Path, programs: Path) -> Desk:
    return Desk(tmp_path / "desk", programs)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory, programs: Path) -> Desk:
    desk = Desk(tmp_path_factory.mktemp("uninterrupted"), programs)
    done = desk.bench()
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(line.startswith("suite/") for line in done.stderr.splitlines())  # the making of the data, nothing else
    desk.out = done.stdout  # type: ignore[attr-defined]
    return desk


def test_every_run_gets_its_file(uninterrupted: Desk) -> None:
    out: str = uninterrupted.out  # type: ignore[attr-defined]
    assert "0 of 4 runs are there" in out
    assert "Cohort 1 of 2: uniq on hopper-random; 2 runs of 40 updates" in out
    assert "Cohort 2 of 2: iql on hopper-random" in out
    assert out.endswith("All 4 runs of tiny are in results.\n")
    results = read_results(uninterrupted.results)
    assert {(r.variant, r.set, r.recipe.seed) for r in results} == {
        (variant, "hopper-random", seed) for variant in ("uniq", "iql") for seed in (0, 1)
    }
    assert {r.recipe.id for r in results} == {job.recipe.id for job in uninterrupted.grid.jobs}
    for result in results:
        assert [line["step"] for line in result.evaluations] == [20, 40]
        assert all(len(line["returns"]) == 1 for line in result.evaluations)
        assert result.data["transitions"] == 2000
        assert result.cost["runs"] == 2
        assert result.cost["seconds"] == pytest.approx(80 / result.cost["run_updates_per_second"], abs=0.1)
        assert set(result.environment) == {"versions", "hardware", "commit"}
        if result.variant == "uniq":
            assert [line["step"] for line in result.calibration] == [0, 20, 40]
            assert set(result.diagnosis) == {"error", "map", "distributions"}
            assert result.diagnosis["map"]["states"] == "held-out"
            assert result.diagnosis["error"]["rows"] > 50
            assert len(result.diagnosis["error"]["sigma"]) == 10
            assert set(result.diagnosis["distributions"]) == {"step", "sigma", "u", "tau", "delta"}
        else:
            assert (result.calibration, result.diagnosis) == ([], {})
        assert path_of(uninterrupted.results, result.recipe).stat().st_size < 20_000
    assert uninterrupted.begun() == []


def test_twice_does_nothing_twice(uninterrupted: Desk) -> None:
    before = uninterrupted.times()
    again = uninterrupted.bench()
    assert again.returncode == 0
    assert "4 of 4 runs are there" in again.stdout
    assert "Cohort" not in again.stdout
    assert uninterrupted.times() == before


@pytest.mark.parametrize(
    ("count", "name"),
    [
        (1, "state.safetensors"),  # the checkpoint before the first evaluation
        (1, "results/runs/"),  # one result of two
        pytest.param(1, "cohort.json", marks=pytest.mark.slow),
        pytest.param(1, "run.json", marks=pytest.mark.slow),
        pytest.param(3, "state.safetensors", marks=pytest.mark.slow),  # trained to the end, no result yet
        pytest.param(2, "results/runs/", marks=pytest.mark.slow),  # all results, and the folder still there
        pytest.param(1, "done", marks=pytest.mark.slow),
    ],
)
def test_killed_and_started_again(count: int, name: str, desk: Desk, uninterrupted: Desk) -> None:
    killed = desk.bench(fall=(count, name))
    assert killed.returncode == -signal.SIGKILL, killed.stdout + killed.stderr
    assert len(desk.begun()) == 1
    before = desk.times() if (desk.results / "runs").exists() else {}
    done = desk.bench()
    assert done.returncode == 0, done.stdout + done.stderr
    assert desk.kept() == uninterrupted.kept()
    assert {name: time for name, time in desk.times().items() if name in before} == before
    assert desk.begun() == []


@pytest.mark.slow
def test_killed_over_and_over(desk: Desk, uninterrupted: Desk) -> None:
    """Each session lives until one to four more things are on disk."""
    sessions = 0
    while (done := desk.bench("--only", "uniq", fall=(1 + sessions % 4, ""))).returncode != 0:
        assert done.returncode == -signal.SIGKILL, done.stdout + done.stderr
        sessions += 1
        assert sessions < 20
    assert sessions > 4
    assert desk.kept() == of_variant(uninterrupted, "uniq")
    assert desk.begun() == []


def of_variant(desk: Desk, variant: str) -> dict[str, Any]:
    return {name: result for name, result in desk.kept().items() if result["variant"] == variant}


def test_time_is_up(desk: Desk, uninterrupted: Desk) -> None:
    """A moment is enough for one chunk and a checkpoint; the rest is for another time."""
    done = desk.bench("--only", "iql", "--minutes", "0.0001")
    assert done.returncode == 1, done.stderr
    assert done.stdout.endswith("2 of 2 runs of tiny are still missing; go on with the same command.\n")
    assert len(desk.begun()) == 1
    done = desk.bench("--only", "iql")
    assert done.returncode == 0
    assert "Resuming at step 20." in done.stdout
    assert desk.kept() == of_variant(uninterrupted, "iql")


def test_results_that_arrive_from_elsewhere(desk: Desk, uninterrupted: Desk) -> None:
    """A cohort that has begun goes on as it began; what is there already stays as it is."""
    jobs = desk.grid.jobs
    with claimed(desk.place, jobs) as claim:
        assert claim is not None
        assert not prepare(claim, desk.place, quiet).run(StopAtOnce()).finished
    arrived = path_of(desk.results, jobs[0].recipe)
    arrived.parent.mkdir()
    shutil.copy(path_of(uninterrupted.results, jobs[0].recipe), arrived)
    before = arrived.stat().st_mtime_ns
    with claimed(desk.place, jobs) as again:
        assert again is not None
        assert (again.folder, again.jobs) == (claim.folder, claim.jobs)
        training = prepare(again, desk.place, quiet)
        assert training.run(Monitor()).finished
        assert finish(again, desk.place, training) == 1
    assert arrived.stat().st_mtime_ns == before
    assert not claim.folder.exists()
    ours = {name: result for name, result in desk.kept().items() if name != arrived.name}
    theirs = uninterrupted.kept()
    # XLA's flags of this process are those of the other: the bits are the same.
    assert {name: theirs[name]["evaluations"] for name in ours} == {n: r["evaluations"] for n, r in ours.items()}


def test_work_whose_results_have_all_arrived_is_cleared_away(desk: Desk, uninterrupted: Desk) -> None:
    jobs = desk.grid.jobs
    with claimed(desk.place, jobs) as claim:
        assert claim is not None
    (desk.work / "cohort-of-mine").mkdir()  # no folder of ours
    (desk.work / f"cohort-{'0' * 16}").mkdir()  # left before its members were written down
    shutil.copytree(uninterrupted.results / "runs", desk.results / "runs")
    with claimed(desk.place, jobs) as nothing:
        assert nothing is None
    assert [path.name for path in desk.begun()] == ["cohort-of-mine"]


def test_two_processes_share_the_work(desk: Desk) -> None:
    """Locks belong to an opened folder, not to a process, so one process can play both."""
    jobs, busy = desk.grid.jobs, Busy()
    with claimed(desk.place, jobs) as first, claimed(desk.place, jobs) as second:
        assert first is not None
        assert second is not None
        assert (first.left, second.left) == (1, 0)
        assert {job.variants[0] for job in first.jobs} == {"uniq"}
        assert {job.variants[0] for job in second.jobs} == {"iql"}
        with claimed(desk.place, jobs, busy) as third:
            assert third is None
        assert busy.recipes == {job.recipe.id for job in jobs}
    with claimed(desk.place, jobs) as first:
        assert first is not None
        assert first.left == 1
    assert len(desk.begun()) == 2


def test_data_of_runs_to_come_are_made_meanwhile(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNIQ_RL_DATA", str(desk.folder / "data"))
    made = threading.Event()
    keep = datasets.keep
    monkeypatch.setattr(datasets, "keep", lambda *given: (keep(*given), made.set()))
    with bench.making_ahead(desk.place, desk.grid.jobs):
        assert made.wait(60)
    monkeypatch.setattr(datasets, "generate", lambda *_: pytest.fail("made again"))
    assert desk.grid.jobs[0].data.load(None).size == 2000


def test_nothing_is_made_when_the_cohorts_are_done(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNIQ_RL_DATA", str(desk.folder / "data"))
    begun = threading.Event()

    def endless(name: str, size: int, seed: int, progress: datasets.Progress) -> None:
        begun.set()
        while True:
            progress(0, size)

    monkeypatch.setattr(datasets, "generate", endless)
    with bench.making_ahead(desk.place, desk.grid.jobs):
        assert begun.wait(60)
    assert not any(thread.name == "data" for thread in threading.enumerate())
    assert not list(datasets.cache_folder().glob("*.npz"))


def test_another_process_is_left_alone(desk: Desk) -> None:
    with claimed(desk.place, desk.grid.only(["iql"]).jobs) as claim:
        assert claim is not None
        done = desk.bench("--only", "iql")
    assert done.returncode == 1
    assert "Another process is training 2 runs of this grid; left to it." in done.stdout
    assert done.stdout.endswith("2 of 2 runs of tiny are still missing; the reasons are above.\n")


def test_a_recipe_with_two_names_is_trained_once(desk: Desk, uninterrupted: Desk) -> None:
    shutil.copytree(uninterrupted.results / "runs", desk.results / "runs")
    entry = TINY[TINY.index('[[entry]]\nvariant = "iql"') :].replace('"iql"', '"iql again"', 1)
    (desk.folder / "tiny.toml").write_text(TINY + entry)
    assert bench.adopt(desk.place, desk.grid.jobs) == 2
    assert sorted(r.variant for r in read_results(desk.results)) == ["iql"] * 2 + ["iql again"] * 2 + ["uniq"] * 2
    before = desk.times()
    assert bench.adopt(desk.place, desk.grid.jobs) == 0
    assert desk.times() == before


# The command


def call(desk: Desk, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[Any, str, str]:
    with pytest.raises(SystemExit) as ended:
        cli.main(["bench", str(desk.folder / "tiny.toml"), "--results", str(desk.results), *options])
    out, err = capsys.readouterr()
    return ended.value.code, out, err


def test_no_time_at_all(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(desk, capsys, "--minutes", "0")
    assert code == 1
    assert out.endswith("4 of 4 runs of tiny are still missing; go on with the same command.\n")
    assert not desk.results.exists()


def test_a_run_that_diverges_has_a_result(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a single run, and without a number that JSON could not hold."""
    text = TINY.replace("batch_size = 16 }", "batch_size = 16, learning_rate = 1e30 }").replace("[0, 1]", "[3]")
    (desk.folder / "tiny.toml").write_text(text)
    code, out, _ = call(desk, capsys, "--only", "iql")
    assert code == 0, out
    (result,) = read_results(desk.results)
    assert result.diverged
    assert [line["score"] for line in result.evaluations] == [None, None]
    assert (result.last, result.best) == (0, 0)


def test_a_cohort_too_large_for_the_device_makes_room_for_smaller_ones(
    desk: Desk, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    advance = Cohort.advance

    def small(self: Cohort, progress: Progress, length: int, begin: int | None = None) -> Progress:
        if len(self.runs) > 1:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory")
        return advance(self, progress, length, begin)

    monkeypatch.setattr(Cohort, "advance", small)
    code, _, err = call(desk, capsys, "--only", "iql")
    assert code == 2
    assert "train fewer runs together" in err
    assert desk.begun() == []
    code, out, _ = call(desk, capsys, "--only", "iql", "--cohort", "1")
    assert code == 0, out


def test_dry_run_writes_nothing(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(desk, capsys, "--dry-run")
    assert code == 0
    assert re.search(r"uniq +│ +40 │ +1 │ +2 │ +0 │ +2 │", out)
    assert not desk.results.exists()


def test_regenerated_sets_need_their_files(
    desk: Desk, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("UNIQ_RL_D4RL", raising=False)
    (desk.folder / "tiny.toml").write_text(TINY.replace("suite/hopper-random", "regenerated/hopper-medium"))
    code, out, _ = call(desk, capsys)
    assert code == 1
    assert "Skipped: regenerated/hopper-medium needs D4RL's hopper_medium-v2.hdf5" in out.replace("\n", " ")
    assert out.endswith("4 of 4 runs of tiny are still missing; the reasons are above.\n")
    monkeypatch.setenv("UNIQ_RL_D4RL", str(desk.folder / "nowhere"))
    assert "hopper_medium-v2.hdf5, which is not there" in call(desk, capsys)[1]
    assert desk.begun() == []


def test_regenerated_sets_are_made_and_kept(desk: Desk, slices: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNIQ_RL_DATA", str(desk.folder / "data"))
    (desk.folder / "tiny.toml").write_text(TINY.replace("suite/hopper-random", "regenerated/hopper-medium"))
    job = desk.grid.jobs[0]
    assert (job.data.task, job.data.kind) == ("hopper", "medium (regenerated)")
    assert standing(dataclasses.replace(desk.place, d4rl=slices), desk.grid.jobs).lacking == {}
    made = job.data.load(slices)
    assert made.size == 2000
    (kept,) = (desk.folder / "data" / "regenerated").glob("*.npz")
    time = kept.stat().st_mtime_ns
    assert job.data.load(slices).fingerprint == made.fingerprint
    assert kept.stat().st_mtime_ns == time
    kept.write_bytes(kept.read_bytes()[:-100])
    assert job.data.load(slices).fingerprint == made.fingerprint


def test_what_cannot_begin_leaves_nothing_behind(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    (desk.folder / "tiny.toml").write_text(TINY.replace("recalibrate_every = 20", "delta = 0.0001"))
    code, _, err = call(desk, capsys, "--only", "uniq")
    assert code == 2
    assert re.fullmatch(r"uniq-rl: [^\n]+[.]\n", err), err
    assert desk.begun() == []


def test_a_damaged_result_is_named(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    path = path_of(desk.results, desk.grid.jobs[0].recipe)
    path.parent.mkdir(parents=True)
    for job in desk.grid.jobs:
        path_of(desk.results, job.recipe).write_text("{")
    code, _, err = call(desk, capsys)
    assert code == 2
    assert path.name in err.replace("\n", "")


@pytest.mark.parametrize("options", [("--cohort", "0"), ("--only", "sarsa"), ("--minutes", "soon")])
def test_bad_options(options: tuple[str, str], desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = call(desk, capsys, *options)
    assert code == 2
    assert "Traceback" not in err
    assert not desk.results.exists()
