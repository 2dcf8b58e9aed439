"""What a newcomer sees first: `uniq-rl train` and nothing else."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import uniq_rl as ur
from uniq_rl import api


@pytest.mark.slow
def test_the_demonstration_shows_a_difference(tmp_path: Path) -> None:
    """On most seeds and on average: so short a training swings from evaluation to evaluation."""
    environment = {**os.environ, "UNIQ_RL_DATA": str(tmp_path / "data"), "XLA_FLAGS": ""}
    command = [sys.executable, "-m", "uniq_rl", "train"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert "behaviour cloning" in done.stdout
    rows = [line.split("│")[1:-1] for line in done.stdout.splitlines() if line.startswith("│")]
    scores = {row[0].strip(): tuple(float(cell) for cell in row[1:]) for row in rows}
    assert set(scores) == {"0", "1", "2", "mean"}
    assert sum(learned > cloned + 5 for _, cloned, learned in (scores[seed] for seed in "012")) >= 2
    assert scores["mean"][2] > scores["mean"][1] + 20
    for picture in ("curves.png", "conservatism.png"):
        assert (tmp_path / "runs" / "demo" / picture).stat().st_size > 10_000


def test_the_demonstration_trains_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same with a budget that teaches nothing: both methods, all seeds, one of them in a folder."""
    monkeypatch.setenv("UNIQ_RL_DATA", str(tmp_path / "data"))
    demo = api.Demo(size=2000, steps=16, hidden=(8,), seeds=(0, 1))
    uniq, cloning = (api.carry_out(training) for training in demo.prepare(tmp_path / "demo"))
    assert set(uniq.scores) == set(cloning.scores) == {0, 1}
    assert cloning.out is None
    assert ur.load_policy(tmp_path / "demo" / "policy-1.safetensors").algorithm.beta_pi == demo.beta_pi
