"""What all tests share. Environment first: JAX and Matplotlib read it when they are imported."""

import os
from importlib.metadata import version

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("MPLBACKEND", "Agg")
# Tests compile many small programs and run each for a moment; optimising them would take most of the time. To test the
# programs as users get them, set XLA_FLAGS yourself, even to nothing. An unknown flag would end the process.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0"
    + (" --xla_cpu_use_fusion_emitters=false" if version("jaxlib").startswith("0.10.") else ""),
)

from collections.abc import Iterator
from pathlib import Path

import jax
import pytest
from hypothesis import settings

from uniq_rl.training import cohort

jax.config.update("jax_numpy_rank_promotion", "raise")
# Compile as for a GPU: a CPU ignores what the settings say, but JAX refuses them wherever it would refuse them there.
cohort.COMPILER["cpu"] = cohort.COMPILER["gpu"]
settings.register_profile("uniq-rl", derandomize=True, deadline=None)
settings.load_profile("uniq-rl")


@pytest.fixture(scope="session", autouse=True)
def caches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests neither read nor fill the caches of whoever runs them: what happens to lie there must not decide a test."""
    folder = tmp_path_factory.mktemp("caches")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UNIQ_RL_DATA", str(folder / "data"))
        patch.setenv("JAX_COMPILATION_CACHE_DIR", str(folder / "programs"))
        yield


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
