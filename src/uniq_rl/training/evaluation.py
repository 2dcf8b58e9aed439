"""Scores: all policies of a cohort act in one batched call per time step, their environments step in lockstep."""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from uniq_rl.algorithms import Spec
from uniq_rl.errors import UniqError
from uniq_rl.physics.locomotion import TASKS, Lockstep, resolve_physics
from uniq_rl.physics.scores import score
from uniq_rl.policy import Policy

STREAM = 7_919
"""Keeps the seeds of evaluations apart from any a user would pick by hand."""


class Evaluation(NamedTuple):
    """One evaluation of a cohort; rows are runs, columns episodes."""

    step: int
    returns: np.ndarray
    lengths: np.ndarray
    scores: np.ndarray
    """D4RL normalised score of each run; NaN for a run that diverged."""
    physics: str


def evaluation_seeds(step: int, episodes: int) -> list[int]:
    """Seeds of the evaluation at `step`: disjoint from those of every other step, equal for all methods."""
    return [
        int(seed) for seed in np.random.SeedSequence((STREAM, step)).generate_state(episodes, np.uint64) >> np.uint64(1)
    ]


class Evaluator:
    """Evaluates stacked policies on a thread of its own, so that a device can train on meanwhile."""

    def __init__(self, tasks: Sequence[str], physics: str, episodes: int) -> None:
        unknown = sorted(set(tasks) - set(TASKS))
        if unknown:
            raise UniqError(
                f"There is no simulator for task {', '.join(unknown)}; evaluation knows {', '.join(TASKS)}."
            )
        self.tasks = list(tasks)
        self.episodes = episodes
        self.physics = resolve_physics(physics)
        self._environments = {
            task: Lockstep(task, count=self.tasks.count(task) * episodes, physics=physics)
            for task in dict.fromkeys(tasks)
        }
        self._members = {task: [i for i, other in enumerate(tasks) if other == task] for task in self._environments}
        self._cpu = jax.devices("cpu")[0]
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="evaluation")

    def check(self, spec: Spec) -> None:
        for task, environment in self._environments.items():
            if (environment.obs_dim, environment.action_dim) != tuple(spec):
                raise UniqError(
                    f"Task {task} has observations of width {environment.obs_dim} and actions of width "
                    f"{environment.action_dim}, but the data have {spec.obs_dim} and {spec.action_dim}; "
                    f"name the right task with --task, or leave it out to train without scores."
                )

    def submit(self, policies: Policy, alive: np.ndarray, step: int) -> "Future[Evaluation]":
        return self._thread.submit(self.evaluate, policies, alive, step)

    def evaluate(self, policies: Policy, alive: np.ndarray, step: int) -> Evaluation:
        """One episode per run and seed. `policies` are stacked; runs that are not alive stand still and score NaN."""
        policies = jax.device_put(policies, self._cpu)
        seeds = evaluation_seeds(step, self.episodes)
        runs, episodes = len(self.tasks), self.episodes
        obs = np.zeros((runs, episodes, policies.spec.obs_dim), np.float32)
        returns = np.zeros((runs, episodes))
        lengths = np.zeros((runs, episodes), np.int64)
        running = np.repeat(np.asarray(alive)[:, None], episodes, axis=1)
        for task, environment in self._environments.items():
            members = self._members[task]
            obs[members] = environment.reset(seeds * len(members)).reshape(len(members), episodes, -1)
        memory = None
        horizon = max(environment.horizon for environment in self._environments.values())
        for _ in range(horizon):
            if not running.any():
                break
            action, memory = _act(policies, jax.device_put(obs, self._cpu), memory)
            action = np.nan_to_num(np.asarray(action))
            earned = np.zeros((runs, episodes))
            for task, environment in self._environments.items():
                members = self._members[task]
                active = running[members].reshape(-1)
                if not active.any():
                    continue
                stepped = environment.step(action[members].reshape(len(active), -1), active)
                new_obs, reward, terminated = (array.reshape(len(members), episodes, -1) for array in stepped)
                obs[members] = new_obs
                earned[members] = np.where(running[members], reward[..., 0], 0)
                lengths[members] += running[members]
                running[members] &= terminated[..., 0] == 0
            returns += earned
            if memory is not None:  # reactive methods have none
                memory = _rewarded(policies, memory, jax.device_put(earned.astype(np.float32), self._cpu))
        scores = [
            score(task, float(returns[i].mean())) if alive[i] else float("nan") for i, task in enumerate(self.tasks)
        ]
        return Evaluation(step, returns, lengths, np.asarray(scores), self.physics)

    def close(self) -> None:
        self._thread.shutdown(cancel_futures=True)
        for environment in self._environments.values():
            environment.close()


@jax.jit
def _act(policies: Policy, obs: jax.Array, memory: object) -> tuple[jax.Array, object]:
    return jax.vmap(lambda policy, batch, memory: policy.act(batch, memory))(policies, obs, memory)


@jax.jit
def _rewarded(policies: Policy, memory: object, reward: jax.Array) -> object:
    return jax.vmap(lambda policy, memory, reward: policy.rewarded(memory, reward))(policies, memory, reward)


def stacked(policies: Sequence[Policy]) -> Policy:
    """Policies of one structure as the stack that `Evaluator` takes."""
    return jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]), *policies)
