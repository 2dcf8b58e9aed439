"""What a run leaves behind as text: `run.json` says what was run where, the JSON-lines files say what happened.

Lines hold nothing that differs between two runs of the same bits (no clock, no host): an interrupted run that was
resumed ends with the same bytes as one that was not.
"""

import json
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import jax

from uniq_rl.errors import UniqError
from uniq_rl.storage import disk_errors, write_atomically

PACKAGES = ("uniq-rl", "jax", "jaxlib", "equinox", "optax", "numpy", "mujoco", "gymnasium", "h5py", "safetensors")


class Lines:
    """A JSON-lines file that can be cut back to where a checkpoint left it."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        self.path = path
        with disk_errors(path):
            if offset and (not path.exists() or path.stat().st_size < offset):
                raise UniqError(f"{path} is shorter than its checkpoint says; bring the original file back.")
            self._file = open(path, "r+b" if path.exists() else "w+b")  # noqa: SIM115
            self._file.truncate(offset)
            self._file.seek(offset)

    def append(self, line: dict[str, Any]) -> None:
        with disk_errors(self.path):
            self._file.write(json.dumps(line).encode() + b"\n")

    def sync(self) -> int:
        """Everything on disk; the offset at which to go on."""
        with disk_errors(self.path):
            self._file.flush()
            os.fsync(self._file.fileno())
            return self._file.tell()

    def close(self) -> None:
        with disk_errors(self.path):
            self._file.close()


def read_lines(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    try:
        return [json.loads(line) for line in path.read_text().splitlines()]
    except ValueError as error:
        raise UniqError(f"{path} is not a JSON-lines file ({error}); it is damaged.") from None


def write_json(path: Path, content: dict[str, Any]) -> None:
    write_atomically(path, json.dumps(content, indent=2).encode() + b"\n")


def read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text())
    except FileNotFoundError:
        raise UniqError(f"{path.parent} is not a training folder: it has no {path.name}.") from None
    except (ValueError, OSError) as error:
        raise UniqError(f"{path} cannot be read ({error}); it is damaged.") from None
    if not isinstance(content, dict):
        raise UniqError(f"{path} does not describe a training; it is damaged.")
    return content


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def hardware() -> dict[str, Any]:
    device = jax.devices()[0]
    return {
        "backend": jax.default_backend(),
        "device": device.device_kind,
        "cores": os.cpu_count(),
        "processor": _processor(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor()
    )


def commit() -> str | None:
    """The version of the source: `UNIQ_RL_COMMIT` where it was copied without its history, else the checkout's."""
    if os.environ.get("UNIQ_RL_COMMIT"):
        return os.environ["UNIQ_RL_COMMIT"]
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=5).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
