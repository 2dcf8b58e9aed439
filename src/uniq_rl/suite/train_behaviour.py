"""Train the behaviour policies of the suite: SAC on every task and seed at once, with snapshots along the way.

    python -m uniq_rl.suite.train_behaviour --out DIR

DIR then holds `snapshots-TASK.safetensors` (the actors, `[seeds, snapshots, ...]`, float16) and `snapshots.json` (step,
training score and evaluation scores of each). The device learns from one round of transitions while the environments
play the next, so the acting policy lags the transitions by one round.
"""

import argparse
import dataclasses
import json
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from uniq_rl.errors import UniqError
from uniq_rl.physics.locomotion import HORIZON, TASKS, Lockstep, rollout_returns
from uniq_rl.physics.scores import score
from uniq_rl.storage import save_tree, write_atomically
from uniq_rl.suite import command, sac
from uniq_rl.suite.sac import WIDEST, Actor

Floats = npt.NDArray[np.float32]
FORMAT = "behaviour-snapshots-1"
EVALUATION_SEEDS = 10_000_000
EVALUATION_RESERVE = 75.0
"""Seconds kept for evaluation and writing when the time is limited."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """What to train and for how long; steps are environment steps of one run."""

    tasks: tuple[str, ...] = TASKS
    seeds: tuple[int, ...] = (0, 1)
    steps: int = 1_000_000
    random_steps: int = 10_000
    envs: int = 16
    snapshot_every: int = 25_000
    capacity: int = 1_000_000
    learning: sac.Settings = sac.Settings()

    def __post_init__(self) -> None:
        if min(self.steps, self.random_steps, self.envs, self.snapshot_every) < 1 or not self.seeds or not self.tasks:
            raise UniqError("Training needs at least one task, one seed, one environment and one step of each kind.")
        if self.capacity % self.envs:
            raise UniqError(f"The replay's capacity {self.capacity} must be a multiple of {self.envs} environments.")

    def snapshot_due(self, before: int, after: int) -> bool:
        """Twice as dense in the first two fifths, where policies improve fast and the medium one lies."""
        every = self.snapshot_every // 2 if after <= 0.4 * self.steps else self.snapshot_every
        return before // every < after // every or after >= self.steps


class Stage:
    """The environments of one task, `envs` for each seed, with their clocks and running returns."""

    def __init__(self, task: str, plan: Plan, threads: int) -> None:
        self.task = task
        self.runs, self.envs = len(plan.seeds), plan.envs
        self._env = Lockstep(task, self.runs * self.envs, "d4rl", threads)
        self._starts = np.random.default_rng([TASKS.index(task), *plan.seeds])
        self._clock = np.zeros(self._env.count, np.int64)
        self._returns = np.zeros(self._env.count)
        self.finished: list[list[float]] = [[] for _ in plan.seeds]
        self._obs = self._env.reset(self._fresh_seeds(self._env.count))

    @property
    def real(self) -> Floats:
        """Which of the padded action dimensions this task has."""
        return (np.arange(WIDEST.action_dim) < self._env.action_dim).astype(np.float32)

    @property
    def obs(self) -> Floats:
        """`[runs, envs, padded width]`."""
        return self._padded(self._obs)

    def step(self, action: Floats) -> Floats:
        """Play one round; the transitions as rows of the replay, `[runs, envs, width]`."""
        env, before = self._env, self.obs
        after, reward, terminated = env.step(action.reshape(env.count, -1)[:, : env.action_dim])
        self._clock += 1
        self._returns += reward
        # Running out of time is no reason to stop the bootstrap: only termination masks it.
        flags = np.stack([reward, ~terminated], axis=-1).reshape(self.runs, self.envs, 2)
        rows = np.concatenate([before, action, self._padded(after), flags.astype(np.float32)], axis=-1)
        over = np.flatnonzero(terminated | (self._clock >= HORIZON))
        for index in over:
            self.finished[index // self.envs].append(float(self._returns[index]))
        self._clock[over], self._returns[over] = 0, 0.0
        self._obs = env.reset_some(over.tolist(), self._fresh_seeds(len(over))) if len(over) else after
        return rows

    def close(self) -> None:
        self._env.close()

    def _fresh_seeds(self, count: int) -> list[int]:
        return [int(seed) for seed in self._starts.integers(2**62, size=count)]

    def _padded(self, obs: npt.NDArray[np.float64]) -> Floats:
        padded = np.zeros((self.runs, self.envs, WIDEST.obs_dim), np.float32)
        padded[..., : obs.shape[1]] = obs.reshape(self.runs, self.envs, -1)
        return padded


@dataclasses.dataclass
class Snapshots:
    """What training leaves behind: actors of all runs (task-major) in float16, and one record per snapshot and run."""

    actors: list[Actor]
    records: list[list[dict[str, Any]]]  # [snapshot][run]
    stopped: str = ""


def train(
    plan: Plan, deadline: float = float("inf"), report: Callable[[int, list[dict[str, Any]]], None] | None = None
) -> Snapshots:
    """All tasks and seeds as one program, until the plan is done or the clock (`time.monotonic`) passes `deadline`."""
    runs = [(task, seed) for task in plan.tasks for seed in plan.seeds]
    keys = jax.vmap(jax.random.fold_in)(
        jax.vmap(jax.random.key)(jnp.array([seed for _, seed in runs])),
        jnp.array([TASKS.index(task) for task, _ in runs]),
    )
    init_keys, act_keys, learn_keys = (jax.vmap(jax.random.fold_in, (0, None))(keys, i) for i in range(3))
    agents = jax.jit(jax.vmap(lambda key: sac.init(key, WIDEST, plan.learning)))(init_keys)
    capacity = min(plan.capacity, -(-plan.steps // plan.envs) * plan.envs)
    replay = sac.empty_replay(len(runs), capacity, WIDEST)
    kept = Snapshots([], [])
    uniform = np.random.default_rng(plan.seeds)

    with ExitStack() as stack:
        threads = max(1, (os.cpu_count() or 1) // len(plan.tasks))
        stages = [Stage(task, plan, threads) for task in plan.tasks]
        for stage in stages:
            stack.callback(stage.close)
        # Physics runs outside Python's lock, so the tasks can step at the same time.
        pool = stack.enter_context(ThreadPoolExecutor(len(stages)))
        real_host = np.repeat([stage.real for stage in stages], len(plan.seeds), axis=0)
        real = jnp.asarray(real_host)
        rows: Floats | None = None
        for count in range(-(-plan.steps // plan.envs)):
            step = (count + 1) * plan.envs
            if step <= plan.random_steps:
                shape = (len(runs), plan.envs, WIDEST.action_dim)
                action = uniform.uniform(-1, 1, shape).astype(np.float32) * real_host[:, None]
            else:
                obs = np.concatenate([stage.obs for stage in stages])
                action = np.asarray(sac.act(agents.actor.net, obs, count, act_keys, real))
                if not np.isfinite(action).all():
                    kept.stopped = f"an actor answered with a number that is not finite at step {step}"
                    break
            # Dispatched before the environments step, and not waited for: learning hides behind the physics.
            if rows is not None and step <= plan.random_steps:
                replay = sac.insert(replay, rows, count - 1)
            elif rows is not None:
                agents, replay = sac.learn(agents, replay, rows, count - 1, learn_keys, real, plan.learning)
            per_task = np.split(action, len(stages))
            rows = np.concatenate(list(pool.map(Stage.step, stages, per_task)))
            if plan.snapshot_due(step - plan.envs, step):
                records = _take(kept, agents.actor.net, stages, step)
                if report is not None:
                    report(step, records)
            if time.monotonic() > deadline:
                kept.stopped = f"the time was up at step {step}"
                break
    return kept


def _take(kept: Snapshots, actors: Actor, stages: list[Stage], step: int) -> list[dict[str, Any]]:
    """Keep the actors as they are now, and the mean score of the episodes that ended since the last snapshot."""
    kept.actors.append(jax.tree.map(lambda leaf: np.asarray(leaf).astype(np.float16), actors))
    records = []
    for stage in stages:
        for returns in stage.finished:
            mean = score(stage.task, float(np.mean(returns))) if returns else None
            records.append({"step": step, "training_score": mean, "training_episodes": len(returns)})
            returns.clear()
    kept.records.append(records)
    return records


@jax.jit
def _evaluation_actions(
    actors: Actor, obs: jax.Array, count: jax.Array, key: jax.Array, sampled: jax.Array, real: jax.Array
) -> jax.Array:
    noise = jax.random.normal(jax.random.fold_in(key, count), (*obs.shape[:2], real.shape[0]))
    noise = noise * sampled[None, :, None]  # without noise a sample is the mode
    action: jax.Array = jax.vmap(lambda actor, obs, noise: actor.sample(obs, noise, real)[0])(actors, obs, noise)
    return action


def evaluate(task: str, actors: Actor, episodes: int, key: jax.Array) -> npt.NDArray[np.float64]:
    """Scores `[actors, 2, episodes]` of padded, stacked actors: sampled actions first, then the modes."""
    count = len(jax.tree.leaves(actors)[0])
    actors = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), actors)
    sampled = jnp.repeat(jnp.array([1.0, 0.0]), episodes)
    steps = iter(range(HORIZON))
    with Lockstep(task, count * 2 * episodes, "d4rl") as env:
        real = (jnp.arange(WIDEST.action_dim) < env.action_dim).astype(jnp.float32)

        def policy(obs: Floats) -> npt.NDArray[np.float32]:
            padded = np.zeros((count, 2 * episodes, WIDEST.obs_dim), np.float32)
            padded[..., : env.obs_dim] = obs.reshape(count, 2 * episodes, -1)
            action = _evaluation_actions(actors, padded, next(steps), key, sampled, real)
            return np.asarray(action).reshape(env.count, -1)[:, : env.action_dim]

        seeds = [EVALUATION_SEEDS + episode for episode in range(episodes)]
        returns, _ = rollout_returns(env, policy, seeds * 2 * count)
    return np.asarray(score(task, returns)).reshape(count, 2, episodes)


def write(folder: Path, plan: Plan, kept: Snapshots, **extra: Any) -> None:
    """The record; small, so it is written whole whenever something new is known."""
    runs = [(task, seed) for task in plan.tasks for seed in plan.seeds]
    record = {
        "format": FORMAT,
        "plan": dataclasses.asdict(plan),
        "stopped": kept.stopped,
        "runs": [
            {"task": task, "seed": seed, "snapshots": [records[index] for records in kept.records]}
            for index, (task, seed) in enumerate(runs)
        ],
        **extra,
    }
    write_atomically(folder / "snapshots.json", json.dumps(record, indent=1).encode())


def write_actors(folder: Path, plan: Plan, kept: Snapshots) -> None:
    for index, task in enumerate(plan.tasks):
        save_tree(
            folder / f"snapshots-{task}.safetensors", _of_task(kept, plan, index), {"format": FORMAT, "task": task}
        )


def _of_task(kept: Snapshots, plan: Plan, index: int) -> Actor:
    """The actors of one task, `[seeds, snapshots, ...]`."""
    seeds = len(plan.seeds)
    own = slice(index * seeds, (index + 1) * seeds)
    actors: Actor = jax.tree.map(lambda *leaves: np.stack([leaf[own] for leaf in leaves], axis=1), *kept.actors)
    return actors


def evaluate_all(plan: Plan, kept: Snapshots, episodes: int, deadline: float = float("inf")) -> None:
    """Add evaluation scores to the records, a task at a time while there is time."""
    for index, task in enumerate(plan.tasks):
        if time.monotonic() > deadline:
            kept.stopped = f"{kept.stopped}; no time to evaluate {task}".lstrip("; ")
            continue
        actors = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), _of_task(kept, plan, index))
        scores = evaluate(task, actors, episodes, jax.random.key(index))
        scores = scores.reshape(len(plan.seeds), len(kept.records), 2, episodes)
        for seed in range(len(plan.seeds)):
            for snapshot, records in enumerate(kept.records):
                stochastic, deterministic = np.round(scores[seed, snapshot], 2).tolist()
                records[index * len(plan.seeds) + seed] |= {"stochastic": stochastic, "deterministic": deterministic}


def main(arguments: Sequence[str] | None = None) -> None:
    begun = time.monotonic()
    parser = argparse.ArgumentParser(prog="python -m uniq_rl.suite.train_behaviour", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for the snapshots and their record")
    parser.add_argument("--steps", type=int, default=Plan.steps, help="environment steps per run")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(Plan.seeds))
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=TASKS)
    parser.add_argument("--random-steps", type=int, default=Plan.random_steps, help="steps of uniform actions first")
    parser.add_argument("--snapshot-every", type=int, default=Plan.snapshot_every)
    parser.add_argument("--episodes", type=int, default=10, help="evaluation episodes of each kind and snapshot")
    parser.add_argument("--minutes-limit", type=float, default=9.0, help="stop in time to write everything by then")
    parser.add_argument(
        "--unroll", type=int, default=Plan.learning.unroll, help="updates per turn of the device's loop"
    )
    given = parser.parse_args(arguments)
    plan = Plan(
        tasks=tuple(given.tasks),
        seeds=tuple(given.seeds),
        steps=given.steps,
        random_steps=given.random_steps,
        snapshot_every=given.snapshot_every,
        learning=dataclasses.replace(Plan.learning, unroll=given.unroll),
    )
    limit = begun + 60 * given.minutes_limit
    given.out.mkdir(parents=True, exist_ok=True)
    print(
        f"{len(plan.tasks) * len(plan.seeds)} runs of {plan.steps:,} steps on {jax.devices()[0].device_kind}",
        flush=True,
    )

    def report(step: int, records: list[dict[str, Any]]) -> None:
        seconds = time.monotonic() - begun
        scores = " ".join(f"{record['training_score'] or 0.0:6.1f}" for record in records)
        print(f"{step:9,} steps {seconds:6.1f} s  training scores {scores}", flush=True)

    kept = train(plan, limit - EVALUATION_RESERVE, report)
    if not kept.actors:
        raise UniqError("Training ended before the first snapshot; give it more minutes or a smaller --snapshot-every.")
    write_actors(given.out, plan, kept)
    trained = time.monotonic() - begun
    write(given.out, plan, kept, training_seconds=trained)
    print(f"training took {trained:.0f} s; evaluating {len(kept.records)} snapshots of each run", flush=True)
    # A task is begun only while a third of the reserve is left, which is enough for one.
    evaluate_all(plan, kept, given.episodes, limit - EVALUATION_RESERVE / 3)
    write(given.out, plan, kept, training_seconds=trained, seconds=time.monotonic() - begun)
    print(f"done in {time.monotonic() - begun:.0f} s: {given.out}{' (' + kept.stopped + ')' if kept.stopped else ''}")


if __name__ == "__main__":
    command.run(main)
