"""SAC's pieces against numbers known otherwise, and one tiny training from end to end."""

import json
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from uniq_rl.algorithms.base import Batch, Learner, Spec
from uniq_rl.errors import UniqError
from uniq_rl.suite import behaviour, sac, select, train_behaviour
from uniq_rl.suite.sac import WIDEST, Settings
from uniq_rl.suite.train_behaviour import Plan, Stage

HOPPER = Spec(11, 3)
SMALL = Settings(batch_size=16, actor_hidden=(8, 8), critic_hidden=(8, 8), unroll=1)


def unpadded_agent(agent: sac.Agent) -> sac.Agent:
    """A padded hopper agent without its padding."""
    inputs = np.r_[0 : HOPPER.obs_dim, WIDEST.obs_dim : WIDEST.obs_dim + HOPPER.action_dim]
    outputs = np.r_[0 : HOPPER.action_dim, WIDEST.action_dim : WIDEST.action_dim + HOPPER.action_dim]

    def actor(net: sac.Actor) -> sac.Actor:
        where = (lambda n: n.net.layers[0].weight, lambda n: n.net.layers[-1].weight, lambda n: n.net.layers[-1].bias)
        first, last, bias = (get(net) for get in where)
        kept = (first[: HOPPER.obs_dim], last[:, outputs], bias[outputs])
        return eqx.tree_at(lambda n: tuple(get(n) for get in where), net, kept)

    def critic(net: Any) -> Any:
        return eqx.tree_at(lambda n: n.stacked.layers[0].weight, net, net.stacked.layers[0].weight[:, inputs])

    return sac.Agent(
        Learner.of(actor(agent.actor.net)),
        Learner.of(critic(agent.critic.net)),
        critic(agent.target),
        Learner.of(agent.log_alpha.net),
    )


def test_padding_changes_nothing() -> None:
    rng = np.random.default_rng(0)
    real = np.array([1, 1, 1, 0, 0, 0], np.float32)
    padded = jax.jit(lambda key: sac.init(key, WIDEST, SMALL))(jax.random.key(0))
    update = jax.jit(sac.update, static_argnums=4)
    alone = unpadded_agent(padded)
    start = padded
    for _ in range(3):
        obs, next_obs = (np.zeros((16, WIDEST.obs_dim), np.float32) for _ in range(2))
        obs[:, :11], next_obs[:, :11] = rng.normal(size=(2, 16, 11))
        action = (rng.uniform(-1, 1, (16, 6)) * real).astype(np.float32)
        reward, mask = rng.normal(size=16).astype(np.float32), (rng.random(16) < 0.8).astype(np.float32)
        noise = rng.normal(size=(2, 16, 6)).astype(np.float32)
        batch = Batch(*map(jnp.asarray, (obs, action, reward, next_obs, mask)))
        narrow = Batch(batch.obs[:, :11], batch.action[:, :3], batch.reward, batch.next_obs[:, :11], batch.mask)
        padded = update(padded, batch, jnp.asarray(noise), jnp.asarray(real), SMALL)
        alone = update(alone, narrow, jnp.asarray(noise[..., :3]), jnp.ones(3), SMALL)
    got, want = unpadded_agent(padded), alone
    for part in ("actor", "critic", "log_alpha"):
        nets = zip(jax.tree.leaves(getattr(got, part).net), jax.tree.leaves(getattr(want, part).net), strict=True)
        for ours, theirs in nets:
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)
    first = padded.actor.net.net.layers[0].weight
    np.testing.assert_array_equal(first[11:], start.actor.net.net.layers[0].weight[11:])
    assert not np.array_equal(first[:11], start.actor.net.net.layers[0].weight[:11])


def test_replay_wraps_around() -> None:
    replay = sac.empty_replay(2, 8, Spec(1, 1))
    for count in range(3):
        rows = jnp.full((2, 4, 5), count + 1.0)
        replay = sac.insert(replay, rows, count)
    np.testing.assert_array_equal(replay[0, :, 0], [3, 3, 3, 3, 2, 2, 2, 2])


def test_learns_from_filled_rows_only_and_solves_a_bandit() -> None:
    """Reward -(a - 0.5)^2 ends every episode: the best action is 0.5. Rows not yet written would spread their NaN."""
    spec, real = Spec(2, 2), jnp.array([[1.0, 0.0]])
    settings = Settings(batch_size=32, rate=3e-3, actor_hidden=(16,), critic_hidden=(32,), unroll=1)
    agents = jax.jit(jax.vmap(lambda key: sac.init(key, spec, settings)))(jax.random.split(jax.random.key(0), 1))
    keys = jax.random.split(jax.random.key(1), 1)
    replay = jnp.full((1, 1024, sac.row_width(spec)), jnp.nan)
    rng = np.random.default_rng(0)
    for count in range(30):
        rows = np.zeros((1, 32, sac.row_width(spec)), np.float32)
        rows[..., 2] = action = rng.uniform(-1, 1, (1, 32))
        rows[..., 6] = -10 * (action - 0.5) ** 2
        agents, replay = sac.learn(agents, replay, rows, count, keys, real, settings)
    mode = jax.vmap(lambda actor: actor.mode(jnp.zeros((1, 2)), real[0]))(agents.actor.net)
    assert float(mode[0, 0, 0]) == pytest.approx(0.5, abs=0.15)
    assert float(mode[0, 0, 1]) == 0


def test_running_out_of_time_bootstraps() -> None:
    stage = Stage("halfcheetah", Plan(seeds=(0,), envs=2), threads=1)
    stage._clock[:] = [998, 0]
    action = np.full((1, 2, 6), 0.1, np.float32)
    stage.step(action)
    rows = stage.step(action)
    np.testing.assert_array_equal(rows[0, :, -1], 1)
    assert len(stage.finished[0]) == 1
    next_obs = rows[0, :, 17 + 6 : -2]
    assert not np.allclose(stage.obs[0, 0], next_obs[0])  # the next episode began
    np.testing.assert_array_equal(stage.obs[0, 1], next_obs[1])
    stage.close()


def test_termination_stops_the_bootstrap() -> None:
    stage = Stage("hopper", Plan(seeds=(0, 1), envs=2), threads=1)
    rng, terminated = np.random.default_rng(0), 0
    for _ in range(120):
        rows = stage.step(rng.uniform(-1, 1, (2, 2, 6)).astype(np.float32) * stage.real[None, None])
        terminated += int((rows[..., -1] == 0).sum())
        np.testing.assert_array_equal(rows[..., 11:17], 0)
    assert terminated == sum(map(len, stage.finished)) > 4
    stage.close()


def test_from_training_to_chosen_policies_by_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Plan, "learning", SMALL)
    monkeypatch.setattr(select, "MEDIUM", {"hopper": 2.0, "walker2d": 1.0})
    monkeypatch.setattr(select, "TOLERANCE", 50.0)
    monkeypatch.setattr(behaviour, "PATH", tmp_path / "actors.safetensors")
    tiny = ["--out", str(tmp_path), "--tasks", "hopper", "walker2d", "--random-steps", "64", "--snapshot-every", "80"]
    train_behaviour.main([*tiny, "--steps", "320", "--episodes", "2"])
    assert "done in" in capsys.readouterr().out
    record = json.loads((tmp_path / "snapshots.json").read_text())
    runs = record["runs"]
    assert [(run["task"], run["seed"]) for run in runs] == [
        ("hopper", 0), ("hopper", 1), ("walker2d", 0), ("walker2d", 1)
    ]  # fmt: skip
    assert [snapshot["step"] for snapshot in runs[0]["snapshots"]] == [48, 80, 128, 160, 240, 320]
    assert all(len(snapshot["stochastic"]) == 2 for run in runs for snapshot in run["snapshots"])

    select.main([str(tmp_path), "--episodes", "3", "--out", str(behaviour.PATH)])
    chosen = behaviour.load()
    assert set(chosen) == {"hopper", "walker2d"}
    hopper = chosen["hopper"]
    assert hopper.steps[0] == 64  # snapshots from before the first update are not worth keeping
    assert list(hopper.steps) == sorted(set(hopper.steps))
    assert 1 <= hopper.medium < hopper.expert < len(hopper.policies) == len(hopper.scores)

    with pytest.raises(UniqError, match="before the first snapshot"):
        train_behaviour.main([*tiny, "--steps", "320", "--minutes-limit", "0"])
    with pytest.raises(UniqError, match="at least one"):
        train_behaviour.main([*tiny, "--steps", "0"])
    with pytest.raises(UniqError, match=r"snapshots\.json"):
        select.main([str(tmp_path / "nowhere")])


def test_numpy_actor_equals_the_trained_one() -> None:
    actor = jax.jit(lambda key: sac.Actor.init(key, WIDEST, (128, 128)))(jax.random.key(0))
    actor = jax.tree.map(lambda leaf: leaf + 0.05 * np.random.default_rng(1).normal(size=leaf.shape), actor)
    stacked = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32)[None, None], actor)
    ours = behaviour.TanhGaussian(select.unpadded(stacked, 0, 0, HOPPER))
    obs = np.zeros((37, 17), np.float32)
    obs[:, :11] = np.random.default_rng(0).normal(size=(37, 11))
    action, density = ours.sample(obs[:, :11], np.random.default_rng(2))
    noise = np.zeros((37, 6), np.float32)
    noise[:, :3] = np.random.default_rng(2).standard_normal((37, 3), np.float32)
    real = jnp.array([1.0, 1, 1, 0, 0, 0])
    want_action, want_density = actor.sample(jnp.asarray(obs), jnp.asarray(noise), real)
    np.testing.assert_allclose(action, want_action[:, :3], atol=1e-5)
    np.testing.assert_allclose(density, want_density, atol=1e-4)


def test_choice_prefers_the_better_expert_with_a_fitting_medium() -> None:
    recorded = np.array([[10.0, 30, 43, 70, 60], [5, 46, 44, 90, 50], [0, 5, 20, 99, 98]])
    choice = select.choose(recorded, lambda seed, snapshot: float(recorded[seed, snapshot]), 44)
    assert (choice.seed, choice.medium, choice.expert) == (1, 2, 3)
    with pytest.raises(UniqError, match="within 5 points"):
        select.choose(recorded[2:], lambda seed, snapshot: float(recorded[2, snapshot]), 44)


def test_spread_is_even_in_steps_and_keeps_the_last() -> None:
    steps = [10, 20, 30, 40, 60, 80, 100]
    assert select.spread(steps, 0, 6, 5) == [1, 3, 4, 5, 6]
    assert select.spread(steps, 5, 6, 5) == [5, 6]
    assert select.spread(steps, 7, 6, 5) == []
