"""Fixtures of the suite's tests."""

from pathlib import Path

import pytest
from synthetic import write_policies

from uniq_rl.suite import behaviour, datasets


@pytest.fixture
def policies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Policies and an empty cache; the folder of both."""
    write_policies(tmp_path / "actors.safetensors")
    monkeypatch.setattr(behaviour, "PATH", tmp_path / "actors.safetensors")
    monkeypatch.setattr(datasets, "SHIPPED_CARDS", tmp_path / "cards.json")
    monkeypatch.setenv("UNIQ_RL_DATA", str(tmp_path / "data"))
    return tmp_path
