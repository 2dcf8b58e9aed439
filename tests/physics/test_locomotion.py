"""Lockstep environments against Gymnasium's, and against themselves under other threads and neighbours."""

import importlib.util
import sys
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from uniq_rl.errors import UniqError
from uniq_rl.physics.locomotion import PHYSICS, TASKS, Lockstep, resolve_physics, rollout_returns

NAMES = {"hopper": "Hopper", "walker2d": "Walker2d", "halfcheetah": "HalfCheetah"}
TASKS_OF_THIS_PROCESS = Path("/proc/self/task")
MakeEnv = Callable[[str, str], Any]


@pytest.fixture
def make_env(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> MakeEnv:
    """Gymnasium's environment of a task and version."""
    monkeypatch.chdir(tmp_path)  # MuJoCo logs deprecated XML attributes to the working directory
    if importlib.util.find_spec("imageio") is None:  # asked for at import, used for rendering only
        monkeypatch.setitem(sys.modules, "imageio", types.ModuleType("imageio"))

    def make(task: str, version: str) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # -v4 is out of date, and what D4RL's scores mean
            return gymnasium.make(f"{NAMES[task]}-{version}")

    return make


def state_of(env: Any) -> tuple[np.ndarray, np.ndarray]:
    data = env.unwrapped.data
    return data.qpos[None].copy(), data.qvel[None].copy()


@pytest.mark.parametrize("version", ["v4", "v5"])
@pytest.mark.parametrize("task", TASKS)
def test_equals_gymnasium_over_episodes(make_env: MakeEnv, task: str, version: str) -> None:
    """Whole trajectories, restarts included. Gentle actions: wild ones make HalfCheetah chaotic, see the next test."""
    theirs, rng = make_env(task, version), np.random.default_rng(0)
    with Lockstep(task, 1, f"gymnasium-{version}") as ours:
        np.testing.assert_array_equal(ours.reset([0])[0], theirs.reset(seed=0)[0])
        ends = 0
        for step in range(400):
            action = rng.uniform(-0.5, 0.5, (1, ours.action_dim)).astype(np.float32)
            obs, reward, terminated = ours.step(action)
            their_obs, their_reward, their_terminated, _, _ = theirs.step(action[0])
            np.testing.assert_allclose(obs[0], their_obs, rtol=0, atol=1e-9)
            np.testing.assert_allclose(reward[0], their_reward, rtol=0, atol=1e-7)  # theirs sums costs in float32
            assert terminated[0] == their_terminated
            if their_terminated:
                ends += 1
                np.testing.assert_array_equal(ours.reset_some([0], [step])[0], theirs.reset(seed=step)[0])
        assert (ends > 0) == (task != "halfcheetah")
    theirs.close()


@pytest.mark.parametrize("version", ["v4", "v5"])
@pytest.mark.parametrize("task", TASKS)
def test_each_step_equals_gymnasium(make_env: MakeEnv, task: str, version: str) -> None:
    """Full actions, each step from Gymnasium's state, beyond falls too: rounding cannot grow from step to step."""
    theirs, rng = make_env(task, version), np.random.default_rng(1)
    theirs.reset(seed=3)
    with Lockstep(task, 1, f"gymnasium-{version}") as ours:
        for _ in range(300):
            action = rng.uniform(-1, 1, (1, ours.action_dim)).astype(np.float32)
            ours.set_state(*state_of(theirs))
            obs, reward, terminated = ours.step(action)
            their_obs, their_reward, their_terminated, _, _ = theirs.step(action[0])
            np.testing.assert_allclose(obs[0], their_obs, rtol=0, atol=1e-7)
            np.testing.assert_allclose(reward[0], their_reward, rtol=0, atol=1e-7)
            assert terminated[0] == their_terminated
    theirs.close()


def play(env: Lockstep, seeds: list[int], actions: np.ndarray) -> list[np.ndarray]:
    """Everything seen along fixed actions, one array per environment."""
    seen = [env.reset(seeds)]
    for action in actions:
        obs, reward, terminated = env.step(action)
        seen.append(np.column_stack([obs[:, :-2], reward, terminated]))
    return [np.concatenate([step[i] for step in seen]) for i in range(env.count)]


@pytest.mark.parametrize("task", TASKS)
def test_independent_of_threads_and_neighbours(task: str) -> None:
    with Lockstep(task, 7, threads=1) as env:
        actions = np.random.default_rng(2).uniform(-1, 1, (80, 7, env.action_dim))
        alone = play(env, list(range(7)), actions)
    with Lockstep(task, 7, threads=3) as env:
        threaded = play(env, list(range(7)), actions)
    with Lockstep(task, 2) as env:
        pair = play(env, [5, 1], actions[:, [5, 1]])
    np.testing.assert_array_equal(alone, threaded)
    np.testing.assert_array_equal(pair, [alone[5], alone[1]])


@pytest.mark.parametrize("physics", PHYSICS)
def test_shapes_and_kinds(physics: str) -> None:
    for task, obs_dim, action_dim in (("hopper", 11, 3), ("walker2d", 17, 6), ("halfcheetah", 17, 6)):
        with Lockstep(task, 3, physics) as env:
            assert (env.task, env.physics, env.count, env.horizon) == (task, physics, 3, 1000)
            assert (env.obs_dim, env.action_dim) == (obs_dim, action_dim)
            obs = env.reset([1, 2, 1])
            assert obs.shape == (3, obs_dim)
            np.testing.assert_array_equal(obs[0], obs[2])
            assert (obs[0] != obs[1]).all()
            obs, reward, terminated = env.step(np.zeros((3, action_dim), dtype=np.float32))
            assert (obs.dtype, reward.dtype, terminated.dtype) == (np.float64, np.float64, np.bool_)
            assert obs.shape == (3, obs_dim)
            assert reward.shape == terminated.shape == (3,)


def test_state_round_trip_and_what_was_returned_stays() -> None:
    actions = np.random.default_rng(3).uniform(-1, 1, (6, 4, 3))
    with Lockstep("hopper", 4) as env:
        env.reset(range(4))
        for action in actions[:3]:
            env.step(action)
        saved = env.get_state()
        first = [env.step(action)[0] for action in actions[3:]]
        copies = [obs.copy() for obs in first]
        env.set_state(*saved)
        again = [env.step(action)[0] for action in actions[3:]]
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(first, copies)


def test_reset_some_leaves_the_others() -> None:
    with Lockstep("walker2d", 3) as env:
        env.reset([0, 1, 2])
        before = env.step(np.ones((3, 6)))[0]
        after = env.reset_some([1], [7])
        np.testing.assert_array_equal(after[[0, 2]], before[[0, 2]])
        np.testing.assert_array_equal(after[1], env.reset([7, 7, 7])[0])


def test_inactive_environments_stand_still() -> None:
    action = np.full((3, 6), 0.5)
    with Lockstep("walker2d", 3) as env:
        before = env.reset([0, 1, 2])
        moved = env.step(action)[0]
        env.reset([0, 1, 2])
        some = env.step(action, np.array([True, False, True]))[0]
        np.testing.assert_array_equal(some, [moved[0], before[1], moved[2]])
        np.testing.assert_array_equal(env.step(action, np.zeros(3, dtype=bool))[0], some)


def test_actions_are_clipped() -> None:
    with Lockstep("halfcheetah", 2) as env:
        env.reset([0, 0])
        obs, reward, _ = env.step(np.array([[1.0] * 6, [50.0] * 6]))
    np.testing.assert_array_equal(obs[0], obs[1])
    assert reward[0] == reward[1]


@pytest.mark.parametrize(("physics", "bonus"), [("gymnasium-v4", 1.0), ("gymnasium-v5", 0.0)])
def test_reward_of_the_falling_step(physics: str, bonus: float) -> None:
    """-v4 pays for health on the step that ends the episode, -v5 does not."""
    with Lockstep("hopper", 1, physics) as env:
        qpos, qvel = env.get_state()
        qpos[0, 2] = 0.5
        env.set_state(qpos, qvel)
        _, reward, terminated = env.step(np.zeros((1, 3)))
        moved = (env.get_state()[0][0, 0] - qpos[0, 0]) / 0.008
    assert terminated[0]
    assert reward[0] == pytest.approx(moved + bonus)


@pytest.mark.parametrize("task", ["hopper", "halfcheetah"])
def test_rollout_returns_equals_a_plain_loop(task: str) -> None:
    seeds, horizon = [3, 1, 4, 1, 5], 60
    with Lockstep(task, len(seeds)) as env:
        weights = np.random.default_rng(4).normal(size=(env.obs_dim, env.action_dim))
        shapes = set()

        def policy(obs: np.ndarray) -> np.ndarray:
            # No matrix product: it rounds five rows otherwise than one.
            return np.tanh((obs.astype(np.float32)[:, :, None] * weights).sum(axis=1))

        def act(obs: np.ndarray) -> np.ndarray:
            shapes.add((obs.shape, obs.dtype))
            return policy(obs)

        returns, lengths = rollout_returns(env, act, seeds, horizon)
        assert shapes == {((5, env.obs_dim), np.dtype(np.float32))}
    for i, seed in enumerate(seeds):
        with Lockstep(task, 1) as env:
            obs, total, length, done = env.reset([seed]), 0.0, 0, False
            while not done and length < horizon:
                obs, reward, terminated = env.step(policy(obs))
                total, length, done = total + reward[0], length + 1, bool(terminated[0])
        assert (returns[i], lengths[i]) == (total, length)
    assert (lengths < horizon).all() == (task == "hopper")


def test_rollout_returns_ignores_finished_environments() -> None:
    """Answers for finished environments may be anything, and no step is taken once all have finished."""
    calls = 0
    with Lockstep("hopper", 2) as env:

        def act(obs: np.ndarray) -> np.ndarray:
            nonlocal calls
            calls += 1
            action = np.array([[1.0] * 3, [0.0] * 3])
            if fallen(obs[0]):
                action[0] = np.nan
            return action

        def fallen(row: np.ndarray) -> bool:
            return bool(row[0] < 0.7 or abs(row[1]) > 0.2)

        _, lengths = rollout_returns(env, act, [0, 1])
    assert lengths[0] < lengths[1] == calls < env.horizon


def test_resolve_physics() -> None:
    assert [resolve_physics(name) for name in (*PHYSICS, "gymnasium")] == [*PHYSICS, "gymnasium-v4"]
    with pytest.raises(UniqError, match=r"'bullet'.*d4rl.*gymnasium-v5"):
        resolve_physics("bullet")


def test_user_errors() -> None:
    with pytest.raises(UniqError, match=r"'ant'.*hopper, walker2d, halfcheetah"):
        Lockstep("ant", 1)
    with pytest.raises(UniqError, match="count=0"):
        Lockstep("hopper", 0)
    with pytest.raises(UniqError, match="threads=0"):
        Lockstep("hopper", 1, threads=0)


def test_programming_errors() -> None:
    with Lockstep("hopper", 2) as env:
        with pytest.raises(ValueError, match=r"shape \(2, 3\), not \(3,\)"):
            env.step(np.zeros(3))
        with pytest.raises(ValueError, match="environment 1"):
            env.step([[0, 0, 0], [0, np.nan, 0]])
        with pytest.raises(ValueError, match="1 seeds"):
            env.reset([0])
        with pytest.raises(ValueError, match="shapes"):
            env.set_state(np.zeros((1, 6)), np.zeros((1, 6)))


@pytest.mark.skipif(not TASKS_OF_THIS_PROCESS.is_dir(), reason="counts threads where the system lists them")
def test_close_stops_the_threads_and_closing_twice_is_harmless() -> None:
    before = len(list(TASKS_OF_THIS_PROCESS.iterdir()))
    env = Lockstep("hopper", 2, threads=2)
    assert len(list(TASKS_OF_THIS_PROCESS.iterdir())) > before
    env.close()
    env.close()
    assert len(list(TASKS_OF_THIS_PROCESS.iterdir())) == before
