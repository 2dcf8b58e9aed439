"""Stop a training at any instant, go on, and end with the same bytes: policies, records, episodes."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from uniq_rl.training import checkpoint

UNIQ_RL = Path(sys.executable).with_name("uniq-rl")
STEPS, EVERY = 1800, 300
OPTIONS = f"--steps {STEPS} --seeds 0 1 --eval-every {EVERY} --log-every 100 --eval-episodes 2 --hidden 16 16 --out out"
OUTCOME = ("records.jsonl", "episodes.jsonl", "policy-0.safetensors", "policy-1.safetensors")

# Programs that run the command and fall at the n-th rename of a file: in the middle of writing it, or right after it.
FALL = """
import os, resource, signal, sys
from uniq_rl.cli import main

name, count, when = sys.argv[1], int(sys.argv[2]), sys.argv[3]
replace = os.replace

def fall(source, target):
    global count
    count -= os.path.basename(target) == name
    if count == 0 and when == "during":
        os.truncate(source, os.path.getsize(source) // 2)
        os.kill(os.getpid(), signal.SIGKILL)
    replace(source, target)
    if count == 0 and when == "after":
        os.kill(os.getpid(), signal.SIGKILL)
    if count == 0 and when == "full disk from now on":
        resource.setrlimit(resource.RLIMIT_FSIZE, (8, 8))

os.replace = fall
main(sys.argv[4:])
"""


def resumed_at(out: str) -> int:
    resumed = re.search(r"Resuming at step ([\d,]+)[.]", out)
    return int(resumed[1].replace(",", "")) if resumed else 0


class Desk:
    """A folder in which trainings of one method on the same data are started, stopped and resumed."""

    def __init__(self, folder: Path, data: Path, algo: str, environment: dict[str, str]) -> None:
        self.folder, self.out = folder, folder / "out"
        self.environment = os.environ | environment
        self.command = ["train", os.path.relpath(data, folder), "--algo", algo, *OPTIONS.split()]

    def start(self, program: list[str], arguments: list[str]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*program, *arguments],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def train(self, program: list[str] | None = None) -> subprocess.Popen[str]:
        return self.start(program or [str(UNIQ_RL)], self.command)

    def falling(self, name: str, count: int, when: str) -> subprocess.Popen[str]:
        return self.train([sys.executable, "-c", FALL, name, str(count), when])

    def resume(self) -> subprocess.Popen[str]:
        return self.start([str(UNIQ_RL)], ["train", "--resume", "out"])

    def finish(self, process: subprocess.Popen[str]) -> int:
        """Wait for a resumed training to end; the step it went on from."""
        out, err = process.communicate()
        assert process.returncode == 0, out + err
        assert err == ""
        return resumed_at(out)

    def step(self) -> int:
        """Where the checkpoint stands."""
        position = checkpoint.position(self.out)
        return position.step if position else 0

    def wait_for(self, process: subprocess.Popen[str], step: int) -> None:
        while self.step() < step:
            assert process.poll() is None, process.communicate()
            time.sleep(0.005)

    def outcome(self) -> dict[str, bytes]:
        return {name: (self.out / name).read_bytes() for name in OUTCOME}

    def files(self) -> list[str]:
        return sorted(path.relative_to(self.out).as_posix() for path in self.out.rglob("*"))


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A genuine slice of D4RL's hopper where there is one, else noise of its widths."""
    genuine = Path(__file__).resolve().parents[3] / "shared" / "data" / "d4rl" / "hopper_medium-v2.hdf5"
    if genuine.exists():
        return genuine
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("data") / "hopper.npz"
    np.savez(
        path,
        obs=rng.normal(size=(900, 11)),
        action=rng.uniform(-1, 1, size=(900, 3)),
        reward=rng.normal(size=900),
        next_obs=rng.normal(size=(900, 11)),
        terminated=np.arange(900) % 30 == 29,
        truncated=np.zeros(900, bool),
    )
    return path


@pytest.fixture(scope="module")
def desk_of(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Callable[[str], Desk]:
    """A fresh desk; all of them share what one of them compiled."""
    programs = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path_factory.getbasetemp() / "programs")}
    return lambda algo: Desk(tmp_path_factory.mktemp(algo), data, algo, programs)


@pytest.fixture(scope="module")
def uninterrupted(desk_of: Callable[[str], Desk]) -> Callable[[str], Desk]:
    """The training that nobody disturbed, once per method."""
    done: dict[str, Desk] = {}

    def reference(algo: str) -> Desk:
        if algo not in done:
            desk = desk_of(algo)
            process = desk.train()
            out, err = process.communicate()
            assert process.returncode == 0, out + err
            done[algo] = desk
        return done[algo]

    return reference


def assert_same_end(desk: Desk, reference: Desk) -> None:
    assert desk.outcome() == reference.outcome()
    assert desk.files() == reference.files()  # nothing half-written is left behind
    assert desk.step() == reference.step()


@pytest.mark.parametrize("algo", ["uniq", pytest.param("iql", marks=pytest.mark.slow)])
def test_kill_at_three_random_moments(
    algo: str, desk_of: Callable[[str], Desk], uninterrupted: Callable[[str], Desk]
) -> None:
    """Each time after a checkpoint, wherever the training then is: in a chunk, a calibration, an evaluation."""
    reference, desk = uninterrupted(algo), desk_of(algo)
    dice = random.Random(0)
    process, began = desk.train(), 0
    for step in (EVERY, 2 * EVERY, 4 * EVERY):
        desk.wait_for(process, step)
        time.sleep(dice.uniform(0, 0.2))
        process.kill()
        out, err = process.communicate()
        assert process.returncode == -signal.SIGKILL
        assert (resumed_at(out) if began else 0) == began, out + err
        began = desk.step()
        assert step <= began < STEPS
        process = desk.resume()
    assert desk.finish(process) == began
    assert_same_end(desk, reference)
    (session,) = json.loads((desk.out / "run.json").read_text())["sessions"]  # the killed ones could not tell
    assert (session["from_step"], session["to_step"]) == (began, STEPS)


@pytest.mark.parametrize(
    ("name", "count", "when", "stopped"),
    [
        ("state.safetensors", 2, "during", EVERY),
        pytest.param("state.safetensors", 2, "after", 2 * EVERY, marks=pytest.mark.slow),
        ("state.safetensors", STEPS // EVERY, "after", STEPS),  # its evaluation and the policies are still to come
        pytest.param("policy-1.safetensors", 1, "during", STEPS, marks=pytest.mark.slow),
    ],
)
def test_kill_while_a_file_is_written(
    name: str,
    count: int,
    when: str,
    stopped: int,
    desk_of: Callable[[str], Desk],
    uninterrupted: Callable[[str], Desk],
) -> None:
    reference, desk = uninterrupted("uniq"), desk_of("uniq")
    process = desk.falling(name, count, when)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert any(path.endswith(".tmp") for path in desk.files()) == (when == "during")
    assert desk.finish(desk.resume()) == stopped
    assert_same_end(desk, reference)


def test_full_disk_at_a_checkpoint(desk_of: Callable[[str], Desk], uninterrupted: Callable[[str], Desk]) -> None:
    """One sentence, and what was written before can be resumed once there is room."""
    reference, desk = uninterrupted("uniq"), desk_of("uniq")
    process = desk.falling("state.safetensors", 1, "full disk from now on")
    _, err = process.communicate()
    assert process.returncode == 2
    assert re.fullmatch(r"uniq-rl: [^\n]+ cannot be written: [^\n]+[.]\n", err), err
    assert desk.finish(desk.resume()) == EVERY
    assert_same_end(desk, reference)


def test_interrupt_stops_cleanly(desk_of: Callable[[str], Desk], uninterrupted: Callable[[str], Desk]) -> None:
    reference, desk = uninterrupted("uniq"), desk_of("uniq")
    process = desk.train()
    desk.wait_for(process, EVERY)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert process.returncode == 130, out + err
    assert "Stopped cleanly. Go on with: uniq-rl train --resume out\n" in out
    assert err == ""
    stopped = desk.step()
    assert EVERY <= stopped < STEPS
    assert desk.finish(desk.resume()) == stopped
    assert_same_end(desk, reference)


@pytest.mark.slow
@pytest.mark.parametrize("algo", ["uniq", "iql"])
def test_kill_the_command_of_the_issue(algo: str, slices: Path, tmp_path: Path) -> None:
    """Networks of full width, evaluations of ten episodes; three random kills, and one amid a checkpoint."""
    options = f"--algo {algo} --steps 3000 --seeds 0 1 --eval-every 1000 --out out"
    environment = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "programs"), "XLA_FLAGS": ""}
    desks = {}
    for name in ("reference", "killed"):
        (tmp_path / name).mkdir()
        desks[name] = Desk(tmp_path / name, slices / "hopper_medium-v2.hdf5", algo, environment)
        desks[name].command[2:] = options.split()
    reference, desk = desks.values()
    reference.train().communicate()

    dice = random.Random(0)
    for step in (1000, 2000, 2000):
        began = desk.step() if desk.out.exists() else 0
        process = desk.resume() if began else desk.train()
        heard = process.stdout or ()
        assert not began or any(f"Resuming at step {began:,}." in line for line in heard)
        desk.wait_for(process, step)
        time.sleep(dice.uniform(0, 2))
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL
    began = desk.step()
    assert began == 2000
    process = desk.start([sys.executable, "-c", FALL, "state.safetensors", "1", "during"], ["train", "--resume", "out"])
    out, _ = process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert resumed_at(out) == began
    assert desk.finish(desk.resume()) == began
    assert_same_end(desk, reference)
