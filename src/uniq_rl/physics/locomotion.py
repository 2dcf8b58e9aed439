"""Hopper, Walker2d and HalfCheetah, many at a time: environments that step in lockstep on a pool of threads.

A step is a pure function of position, velocity and action: the constraint solver starts cold at every step, so that
no result depends on the thread, the neighbours or the history. Gymnasium starts it warm; each step agrees to rounding.
"""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources
from types import TracebackType
from typing import Self

import mujoco
import numpy as np
import numpy.typing as npt
from mujoco.rollout import Rollout

from uniq_rl.errors import UniqError
from uniq_rl.physics import d4rl_era

Array = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

TASKS = ("hopper", "walker2d", "halfcheetah")
PHYSICS = ("d4rl", "gymnasium-v4", "gymnasium-v5")
HORIZON = 1000

_ALIASES = {"gymnasium": "gymnasium-v4"}  # D4RL's scores are defined with -v4's rewards and termination


@dataclass(frozen=True)
class _Task:
    """What sets a task apart from the others; the numbers are Gymnasium's."""

    xml: str
    xml_v5: str
    frame_skip: int
    control_cost: float
    healthy_reward: float
    velocity_clip: float  # of the observation, not of the state
    reset_noise: float
    normal_velocity: bool  # the initial velocity is drawn from a normal instead of a uniform distribution
    healthy: Callable[[Array, Array], Bools]


def _hopper_healthy(qpos: Array, qvel: Array) -> Bools:
    rest = np.concatenate([qpos[:, 2:], qvel], axis=1)
    bounded: Bools = (np.abs(rest) < 100).all(axis=1)
    return (qpos[:, 1] > 0.7) & (np.abs(qpos[:, 2]) < 0.2) & bounded


def _walker2d_healthy(qpos: Array, qvel: Array) -> Bools:
    return (qpos[:, 1] > 0.8) & (qpos[:, 1] < 2.0) & (np.abs(qpos[:, 2]) < 1.0)


def _always_healthy(qpos: Array, qvel: Array) -> Bools:
    return np.ones(len(qpos), dtype=np.bool_)


_TASKS = {
    "hopper": _Task("hopper.xml", "hopper.xml", 4, 1e-3, 1.0, 10.0, 5e-3, False, _hopper_healthy),
    "walker2d": _Task("walker2d.xml", "walker2d_v5.xml", 4, 1e-3, 1.0, 10.0, 5e-3, False, _walker2d_healthy),
    "halfcheetah": _Task("half_cheetah.xml", "half_cheetah.xml", 5, 0.1, 0.0, np.inf, 0.1, True, _always_healthy),
}


def resolve_physics(name: str) -> str:
    """The full name of a physics; `gymnasium` means `gymnasium-v4`."""
    physics = _ALIASES.get(name, name)
    if physics not in PHYSICS:
        raise UniqError(f"Unknown physics {name!r}; choose one of {', '.join((*PHYSICS, *_ALIASES))}.")
    return physics


def load_model(task: str, physics: str = "d4rl") -> mujoco.MjModel:
    """The MuJoCo model of a task, from Gymnasium's XML files."""
    physics = resolve_physics(physics)
    facts = _facts(task)
    xml = facts.xml_v5 if physics == "gymnasium-v5" else facts.xml
    # Read as a resource: importing Gymnasium's MuJoCo package would ask for its rendering dependencies.
    source = resources.files("gymnasium").joinpath("envs", "mujoco", "assets", xml)
    # MuJoCo deprecates the compiler's `settotalmass`, with a warning in a log file where the user works: do it here.
    model = mujoco.MjModel.from_xml_string(re.sub(r'settotalmass="[^"]*"', "", source.read_text(encoding="utf-8")))
    if physics == "d4rl":
        d4rl_era.apply(model, task)
    else:
        d4rl_era.rescale(model, task)
    return model


class Lockstep:
    """`count` environments of one task that step together; nothing is reset unless asked for."""

    def __init__(self, task: str, count: int, physics: str = "d4rl", threads: int | None = None) -> None:
        if count < 1:
            raise UniqError(f"Lockstep needs at least one environment, not count={count}.")
        if threads is not None and threads < 1:
            raise UniqError(f"Lockstep needs at least one thread, not threads={threads}.")
        self.task = task
        self.physics = resolve_physics(physics)
        self.count = count
        self.horizon = HORIZON
        self._facts = _facts(task)
        self._model = load_model(task, self.physics)
        self._nq: int = self._model.nq
        self._nv: int = self._model.nv
        self._dt: float = self._model.opt.timestep * self._facts.frame_skip
        self.obs_dim = self._nq - 1 + self._nv
        self.action_dim: int = self._model.nu

        threads = min(threads or usable_cores(), count)
        self._data = [mujoco.MjData(self._model) for _ in range(threads)]
        self._pool = Rollout(nthread=threads if threads > 1 else 0)  # 0: on the calling thread
        self._initial_qpos: Array = self._data[0].qpos.copy()
        # A row of MuJoCo's full physics state: time, positions, velocities.
        self._state: Array = np.zeros((count, 1 + self._nq + self._nv))
        self._qpos[:] = self._initial_qpos

    def reset(self, seeds: Sequence[int]) -> Array:
        """Start every environment anew; environment i's initial state depends on `seeds[i]` only, as Gymnasium's."""
        return self.reset_some(range(self.count), seeds)

    def reset_some(self, indices: Sequence[int], seeds: Sequence[int]) -> Array:
        """Start only the environments at `indices` anew; the observations of all."""
        if len(indices) != len(seeds):
            raise ValueError(f"{len(indices)} environments to reset, but {len(seeds)} seeds.")
        for index, seed in zip(indices, seeds, strict=True):
            qpos, qvel = self._draw(seed)
            self._state[index] = np.concatenate([[0.0], qpos, qvel])
        return self._observe()

    def step(self, action: npt.ArrayLike, active: Bools | None = None) -> tuple[Array, Array, Bools]:
        """Apply one action per environment, clipped to [-1, 1]; observation, reward and `terminated` of all.

        Environments outside `active` stand still, at no cost in time; their reward means nothing.
        """
        control = np.clip(self._checked(action), -1.0, 1.0)
        x_before = self._qpos[:, 0].copy()
        moving = np.arange(self.count) if active is None else np.flatnonzero(active)
        if len(moving):
            states, _ = self._pool.rollout(
                self._model,
                self._data,
                self._state[moving],
                control[moving, None, :],
                nstep=self._facts.frame_skip,
            )
            self._state[moving] = states[:, -1]

        healthy = self._facts.healthy(self._qpos, self._qvel)
        # Up to -v4 the step that ends an episode earns the reward of staying healthy too.
        earned = healthy if self.physics == "gymnasium-v5" else 1.0
        forward = (self._qpos[:, 0] - x_before) / self._dt
        cost = self._facts.control_cost * np.square(control).sum(axis=1)
        return self._observe(), forward + self._facts.healthy_reward * earned - cost, ~healthy

    def get_state(self) -> tuple[Array, Array]:
        """Positions and velocities of all environments: all there is to restore."""
        return self._qpos.copy(), self._qvel.copy()

    def set_state(self, qpos: npt.ArrayLike, qvel: npt.ArrayLike) -> Array:
        """Put every environment into a given state; the observations of all."""
        positions, velocities = np.asarray(qpos, dtype=np.float64), np.asarray(qvel, dtype=np.float64)
        if positions.shape != self._qpos.shape or velocities.shape != self._qvel.shape:
            raise ValueError(
                f"A state of {self.count} {self.task} environments has shapes {self._qpos.shape} and "
                f"{self._qvel.shape}, not {positions.shape} and {velocities.shape}."
            )
        self._qpos[:], self._qvel[:] = positions, velocities
        return self._observe()

    def close(self) -> None:
        """Stop the threads; closing twice is harmless."""
        self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def _qpos(self) -> Array:
        return self._state[:, 1 : 1 + self._nq]

    @property
    def _qvel(self) -> Array:
        return self._state[:, 1 + self._nq :]

    def _observe(self) -> Array:
        clip = self._facts.velocity_clip
        return np.concatenate([self._qpos[:, 1:], np.clip(self._qvel, -clip, clip)], axis=1)

    def _draw(self, seed: int) -> tuple[Array, Array]:
        """An initial state: Gymnasium's generator, its distributions and the order of its draws."""
        rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
        noise = self._facts.reset_noise
        qpos = self._initial_qpos + rng.uniform(-noise, noise, self._nq)
        if self._facts.normal_velocity:
            return qpos, noise * rng.standard_normal(self._nv)
        return qpos, rng.uniform(-noise, noise, self._nv)

    def _checked(self, action: npt.ArrayLike) -> Array:
        values = np.asarray(action, dtype=np.float64)
        if values.shape != (self.count, self.action_dim):
            raise ValueError(f"Actions must have shape {(self.count, self.action_dim)}, not {values.shape}.")
        if not np.isfinite(values).all():
            raise ValueError(f"Actions must be finite; environment {np.argwhere(~np.isfinite(values))[0, 0]}'s is not.")
        return values


def rollout_returns(
    env: Lockstep,
    act: Callable[[npt.NDArray[np.float32]], npt.ArrayLike],
    seeds: Sequence[int],
    horizon: int | None = None,
) -> tuple[Array, npt.NDArray[np.int64]]:
    """Undiscounted return and length of one episode per environment.

    `act` always sees the observations of all environments; finished ones stand still, whatever it answers for them.
    """
    obs = env.reset(seeds)
    alive = np.ones(env.count, dtype=np.bool_)
    returns = np.zeros(env.count)
    lengths = np.zeros(env.count, dtype=np.int64)
    for _ in range(env.horizon if horizon is None else horizon):
        action = np.where(alive[:, None], act(obs.astype(np.float32)), 0.0)
        obs, reward, terminated = env.step(action, alive)
        returns[alive] += reward[alive]
        lengths += alive
        alive &= ~terminated
        if not alive.any():
            break
    return returns, lengths


def _facts(task: str) -> _Task:
    if task not in _TASKS:
        raise UniqError(f"No simulation of task {task!r}; the simulated tasks are {', '.join(TASKS)}.")
    return _TASKS[task]


def usable_cores() -> int:
    """Cores this process may run on, which in a container are often fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
