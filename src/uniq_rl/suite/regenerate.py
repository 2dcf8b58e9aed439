"""From a D4RL file back to the simulator: check that its transitions replay, and record more of its behaviour."""

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from uniq_rl.data import Dataset, load_d4rl, load_npz
from uniq_rl.data.checks import check_finite
from uniq_rl.data.d4rl import read_extras
from uniq_rl.data.names import name_of_file, task_of
from uniq_rl.errors import UniqError
from uniq_rl.physics.locomotion import TASKS, load_model
from uniq_rl.physics.replay import one_step_errors
from uniq_rl.suite.behaviour import TanhGaussian
from uniq_rl.suite.datasets import Progress, cache_folder, kept_or_made
from uniq_rl.suite.generate import collect

Array = npt.NDArray[np.float32]

PHYSICS = ("d4rl", "gymnasium-v4")
POLICY = "metadata/policy"
LAYERS = ("fc0", "fc1", "last_fc", "last_fc_log_std")
KIND = {"nonlinearity": "relu", "output_distribution": "tanh_gaussian"}
MIN_SIZE = 2
BLOCK = 4


@dataclass(frozen=True)
class _Actor(TanhGaussian):
    """The suite's policy with D4RL's wider layers: fewer rows per product keep it on one thread, here too."""

    def _forward(self, obs: Array) -> Array:
        padded = np.concatenate([obs, np.zeros((-len(obs) % BLOCK, obs.shape[1]), np.float32)])
        x = padded.reshape(-1, BLOCK, obs.shape[1])
        for weight, bias in self.layers[:-1]:
            x = np.maximum(x @ weight + bias, 0)
        weight, bias = self.layers[-1]
        return (x @ weight + bias).reshape(len(padded), -1)[: len(obs)]


@dataclass(frozen=True)
class Verified:
    """How far one step of a physics leads from the state that was stored next: largest error of a row's coordinates."""

    physics: str
    rows: int
    median_qpos: float
    p99_qpos: float
    median_qvel: float
    p99_qvel: float


def verify(path: str | os.PathLike[str], task: str | None = None) -> list[Verified]:
    """Replay the simulator states of a D4RL file one step under both physics."""
    path = Path(path)
    dataset = load_d4rl(path, task=task)
    task = _simulated(path, dataset.task)
    qpos, qvel = _states(path, dataset, task)
    found = []
    for physics in PHYSICS:
        errors = one_step_errors(task, qpos, qvel, dataset.action, dataset.episode_end, physics)
        found.append(
            Verified(physics, errors.rows, errors.median_qpos, errors.p99_qpos, errors.median_qvel, errors.p99_qvel)
        )
    return found


def regenerate(
    path: str | os.PathLike[str],
    size: int,
    seed: int = 0,
    progress: Progress | None = None,
    task: str | None = None,
) -> Dataset:
    """Roll out the policy that a D4RL file carries, under D4RL's physics: exactly `size` transitions.

    Deterministic in the policy, the size and the seed. The last episode is cut off where the size is reached, so the
    mean return is to be taken over the others. The log-density of each action is in `infos["action_log_prob"]`.
    """
    path = Path(path)
    task = _simulated(path, task or task_of(path.name))
    if size < MIN_SIZE or seed < 0:
        raise UniqError(
            f"Cannot regenerate {size} transitions from seed {seed}; ask for {MIN_SIZE} or more, seed >= 0."
        )
    policy, identity = _policy(path, task)

    def tick(done: int) -> None:
        if progress is not None:
            progress(done, size)

    columns = dict(collect(task, policy, size, (identity, seed), tick))
    infos = {"action_log_prob": columns.pop("action_log_prob")}
    return Dataset(**columns, name=f"{name_of_file(path)}-regenerated", task=task, infos=infos)


def regenerated(
    path: str | os.PathLike[str], size: int, seed: int = 0, progress: Progress | None = None, task: str | None = None
) -> Dataset:
    """What `regenerate` gives, kept in the cache beside the suite's sets; absent or damaged, it is made again."""
    path = Path(path)
    task = _simulated(path, task or task_of(path.name))
    name = f"{name_of_file(path)}-regenerated"
    kept = cache_folder().with_name("regenerated") / f"{name}-{size}-{seed}-{_policy(path, task)[1]:08x}.npz"
    return kept_or_made(
        kept,
        restore=lambda: _kept(kept, name, task),
        create=lambda progress: regenerate(path, size, seed, progress, task),
        record=lambda dataset: {"fingerprint": dataset.fingerprint},
        progress=progress,
    )


def _kept(path: Path, name: str, task: str) -> Dataset | None:
    try:
        record = json.loads(path.with_suffix(".json").read_bytes())
        dataset = load_npz(path, name=name, task=task)
    except (OSError, ValueError, UniqError):
        return None
    return dataset if record == {"fingerprint": dataset.fingerprint} else None


def _simulated(path: Path, task: str | None) -> str:
    if task not in TASKS:
        known = "does not say which task it is from" if task is None else f"is from {task}, which is not simulated here"
        raise UniqError(f"{path} {known}; give a file of one of {', '.join(TASKS)}.")
    return task


def _states(path: Path, dataset: Dataset, task: str) -> tuple[np.ndarray, np.ndarray]:
    """The simulator's positions and velocities, if the file has them row by row."""
    model = load_model(task)
    states = []
    for key, width in (("qpos", model.nq), ("qvel", model.nv)):
        state = dataset.infos.get(key)
        if state is None:
            raise UniqError(
                f"{path} has no simulator states (infos/{key}), so nothing can be replayed; D4RL's -v2 files do."
            )
        if state.shape[1:] != (width,):
            raise UniqError(f"{path}: infos/{key} has rows of shape {state.shape[1:]} but {task} has {width} of them.")
        check_finite(state, f"{path}: infos/{key}")
        if (state == state[0]).all():
            raise UniqError(
                f"{path}: infos/{key} repeats one state on every row, so nothing can be replayed; D4RL's -v1 files are "
                "so, its -v2 files are not."
            )
        states.append(state)
    return states[0], states[1]


def _policy(path: Path, task: str) -> tuple[_Actor, int]:
    """The behaviour policy and a number that identifies it."""
    parts = [f"{POLICY}/{layer}/{part}" for layer in LAYERS for part in ("weight", "bias")]
    found = read_extras(path, [*parts, *(f"{POLICY}/{key}" for key in KIND)])
    for key, expected in KIND.items():
        if found.get(f"{POLICY}/{key}", expected) != expected:
            raise UniqError(
                f"{path}: the policy's {key} is {found[f'{POLICY}/{key}']!r}; only {expected} can be rolled out."
            )
    missing = next((part for part in parts if part not in found), None)
    if missing is not None:
        raise UniqError(
            f"{path} carries no behaviour policy ({missing} is missing); D4RL's -v2 files of one policy do."
        )
    arrays = {part: _weights(found[part], f"{path}: {part}") for part in parts}
    _check_shapes(path, task, [arrays[part].shape for part in parts])
    digest = hashlib.sha256(b"".join(arrays[part].tobytes() for part in parts)).digest()
    layers = [(arrays[weight].T, arrays[bias]) for weight, bias in zip(parts[::2], parts[1::2], strict=True)]
    heads = (np.concatenate([layers[2][0], layers[3][0]], axis=1), np.concatenate([layers[2][1], layers[3][1]]))
    return _Actor((layers[0], layers[1], heads)), int.from_bytes(digest[:4], "big")


def _weights(value: np.ndarray | str, where: str) -> Array:
    if isinstance(value, str):
        raise UniqError(f"{where} is a word but must hold numbers.")
    array = np.ascontiguousarray(value, dtype=np.float32)
    check_finite(array, where)
    return array


def _check_shapes(path: Path, task: str, shapes: list[tuple[int, ...]]) -> None:
    model = load_model(task)
    obs_dim, action_dim = model.nq - 1 + model.nv, model.nu
    hidden = [shape[0] if shape else 0 for shape in (shapes[0], shapes[2])]
    expected: list[tuple[int, ...]] = []
    for fan_out, fan_in in ((hidden[0], obs_dim), (hidden[1], hidden[0]), *([(action_dim, hidden[1])] * 2)):
        expected += [(fan_out, fan_in), (fan_out,)]
    if shapes != expected:
        raise UniqError(
            f"{path}: the layers of its policy have shapes {shapes}, which do not lead from {task}'s {obs_dim} "
            f"observations to its {action_dim} actions."
        )
