"""What all tests share. Environment first: JAX and Matplotlib read it when they are imported."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("MPLBACKEND", "Agg")
# Tests compile many small programs and run each for a moment: LLVM's full optimisation would take most of their time.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=1")

from collections.abc import Iterator
from pathlib import Path

import jax
import pytest
from hypothesis import settings

jax.config.update("jax_numpy_rank_promotion", "raise")
settings.register_profile("uniq-rl", derandomize=True, deadline=None)
settings.load_profile("uniq-rl")


@pytest.fixture
def x64() -> Iterator[None]:
    """Double precision, to compare with numbers worked out elsewhere."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="session")
def slices() -> Path:
    """The folder of genuine D4RL slices beside the repository."""
    folder = Path(__file__).resolve().parents[2] / "shared" / "data" / "d4rl"
    if not folder.is_dir():
        pytest.skip(f"no D4RL slices in {folder}")
    return folder
