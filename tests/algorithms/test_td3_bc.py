"""TD3+BC by hand, its settings, and its probes, which ReBRAC shares. Its whole update: test_reference."""

import itertools
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import uniq_rl as ur
from probes import BEST, HERE, THERE, bandit, chain, constant, payoff, two_ends, wander
from uniq_rl.algorithms import TD3BC, Batch, ReBRAC
from uniq_rl.algorithms.base import q_values
from uniq_rl.algorithms.td3_bc import smoothed
from uniq_rl.data import Preprocessing
from uniq_rl.errors import UniqError
from uniq_rl.training.cohort import Cohort, Run

TINY: dict[str, Any] = {"hidden": (8,), "batch_size": 16}


class Known:
    """Critics whose values of a batch are given, `[critics, B]`."""

    def __init__(self, values: Any) -> None:
        self.values = jnp.asarray(values)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.values

    def members(self, start: int, stop: int) -> "Known":
        return Known(self.values[start:stop])


def batch_of(action: Any, next_action: Any = None) -> Batch:
    rows = len(action)
    wide, narrow = jnp.zeros((rows, 1)), jnp.zeros(rows)
    return Batch(
        wide, jnp.asarray(action), narrow, wide, narrow, None if next_action is None else jnp.asarray(next_action)
    )


# Settings


def test_defaults_are_the_published_ones() -> None:
    method = TD3BC()
    assert (method.alpha, method.policy_noise, method.noise_clip, method.delay) == (2.5, 0.2, 0.5, 2)
    assert (method.hidden, method.critics, method.batch_size, method.learning_rate) == ((256, 256), 2, 256, 3e-4)
    assert (method.gamma, method.ema) == (0.99, 0.005)
    assert method.preprocessing == Preprocessing(reward="none", normalize_obs=True)
    assert TD3BC.preset("paper", "hopper", "medium") == TD3BC.preset("paper", None, None) == method


@pytest.mark.parametrize("option", ["alpha", "policy_noise", "noise_clip", "learning_rate", "delay", "ema", "gamma"])
def test_negative_numbers_are_refused(option: str) -> None:
    wrong: dict[str, Any] = {option: -1}
    with pytest.raises(UniqError, match=option):
        TD3BC(**wrong)


def test_cycle_is_as_long_as_the_delay() -> None:
    method = TD3BC(delay=3)
    assert method.cycle() == (method.update_critics, method.update_critics, method.update)
    assert TD3BC(delay=1).cycle() == (TD3BC(delay=1).update,)
    with pytest.raises(UniqError, match="delay"):
        TD3BC(delay=0)


# By hand


def test_noise_is_clipped_and_so_is_the_action() -> None:
    action = jnp.array([[0.0], [0.0], [0.0], [0.8], [-0.9]])
    noise = jnp.array([[0.3], [0.7], [-2.0], [0.4], [-0.3]])
    np.testing.assert_allclose(smoothed(action, noise, 0.5), [[0.3], [0.5], [-0.5], [1.0], [-1.0]], rtol=1e-6)


def test_policy_loss_by_hand() -> None:
    """The first critic alone, 2.5 over its mean absolute value, and the squared error over rows and dimensions."""
    critic: Any = Known([[2.0, -4.0], [-9.0, -9.0]])
    action = jnp.array([[0.5, 0.0], [0.0, -1.0]])
    loss, q = TD3BC().policy_loss(critic, batch_of([[0.0, 0.0], [0.0, 0.5]]), action)
    np.testing.assert_array_equal(q, [2.0, -4.0])
    assert float(loss) == pytest.approx(-2.5 / 3 * -1 + (0.25 + 2.25) / 4, rel=1e-6)


def test_scale_of_rewards_does_not_matter_to_the_policy() -> None:
    batch, action = batch_of([[0.1], [0.2]]), jnp.array([[0.5], [0.0]])
    small: Any = Known([[1.0, 3.0]])
    large: Any = Known([[1000.0, 3000.0]])
    losses = [float(TD3BC().policy_loss(critic, batch, action)[0]) for critic in (small, large)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


# The delayed actor


def copied(tree: Any) -> Any:
    return jax.tree.map(np.array, tree)


def changed(before: Any, after: Any) -> bool:
    pairs = zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True)
    return any((x != y).any() for x, y in pairs)


def test_actor_and_targets_move_with_every_second_update_of_the_critics() -> None:
    cohort = Cohort([Run(TD3BC(**TINY), wander(), seed, str(seed)) for seed in (0, 1)])
    progress = cohort.start()
    states = [copied(progress.state)]
    for _ in range(4):
        progress = cohort.advance(progress, 1)
        states.append(copied(progress.state))

    def moves(part: str) -> list[bool]:
        parts = [getattr(state, part) for state in states]
        return [changed(before, after) for before, after in itertools.pairwise(parts)]

    assert moves("critic") == [True] * 4
    for part in ("actor", "target_actor", "target_critic"):
        assert moves(part) == [False, True, False, True], part

    for chunks in ((4,), (1, 3)):
        again = cohort.start()
        for length in chunks:
            again = cohort.advance(again, length)
        for x, y in zip(jax.tree.leaves(again.state), jax.tree.leaves(states[-1]), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-7)


class StopsOnce(ur.Monitor):
    """After the first chunk."""

    def stop_requested(self) -> bool:
        return True


def test_resumed_in_the_middle_of_a_cycle(tmp_path: Path) -> None:
    """Three updates, then the rest of eight; and no line of metrics for a chunk in which the actor rested."""
    log, method = wander(), ReBRAC(**TINY)
    plan: dict[str, Any] = {"steps": 8, "eval_every": 3, "log_every": 1}
    whole = ur.train(method, log, out=tmp_path / "whole", **plan)
    assert not ur.train(method, log, out=tmp_path / "cut", monitor=StopsOnce(), **plan).finished
    resumed = ur.resume(tmp_path / "cut", log)
    assert resumed.finished
    assert whole.finished
    names = ("policy-0.safetensors", "records.jsonl", "checkpoint/state.safetensors")
    for name in names:
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name
    records = map(json.loads, (tmp_path / "whole" / "records.jsonl").read_text().splitlines())
    assert [line["step"] for line in records if line["kind"] == "metrics"] == [2, 4, 6, 8]


# Problems whose values are known in closed form

GAMMA = 0.5
PROBES = {"constant": constant(2.0), "chain": chain(3.0), "two ends": two_ends(1.0), "bandit": bandit()}
QUICK: dict[str, Any] = {"hidden": (32,), "batch_size": 128, "learning_rate": 3e-3, "ema": 0.02, "gamma": GAMMA}
METHODS: dict[str, TD3BC | ReBRAC] = {
    "td3_bc": TD3BC(**QUICK, alpha=1.0, normalize_obs=False),
    "rebrac": ReBRAC(**QUICK, beta1=0.5, beta2=1.0),
}


class Learned:
    """A method, trained on every probe in one program."""

    def __init__(self, method: TD3BC | ReBRAC) -> None:
        self.method = method
        cohort = Cohort([Run(method, data, 0, name) for name, data in PROBES.items()])
        progress = cohort.start()
        for _ in range(4):
            progress = cohort.advance(progress, 300)
        assert not progress.diverged.any()
        self.states = progress.state

    def state(self, probe: str) -> Any:
        return jax.tree.map(lambda leaf: leaf[list(PROBES).index(probe)], self.states)

    def q(self, probe: str, obs: np.ndarray, actions: list[float]) -> np.ndarray:
        """Mean of the critics."""
        action = jnp.asarray(actions, jnp.float32)[:, None]
        where = jnp.tile(jnp.asarray(obs[None], jnp.float32), (len(actions), 1))
        return np.asarray(q_values(self.state(probe).critic.net, where, action)).mean(axis=0)

    def target_action(self, probe: str, obs: np.ndarray) -> float:
        return float(self.state(probe).target_actor.mode(jnp.asarray(obs[None], jnp.float32))[0, 0])

    def action(self, probe: str) -> float:
        return float(self.method.act(self.state(probe), jnp.asarray(HERE[None], jnp.float32), None)[0][0, 0])


@pytest.fixture(scope="module", params=list(METHODS))
def learned(request: pytest.FixtureRequest) -> Learned:
    return Learned(METHODS[request.param])


def test_constant_reward(learned: Learned) -> None:
    np.testing.assert_allclose(learned.q("constant", HERE, [-0.9, 0.0, 0.9]), 2.0, atol=0.03)


def test_a_chain_is_discounted_and_pays_for_leaving_the_log(learned: Learned) -> None:
    """`THERE` any action earns 3; the penalty is the mean squared distance from what was done there, noise included."""
    np.testing.assert_allclose(learned.q("chain", THERE, [-0.9, 0.9]), 3.0, atol=0.05)
    penalty = 0.0
    if isinstance(learned.method, ReBRAC):
        noise = np.clip(0.2 * np.random.default_rng(0).normal(size=10_000), -0.5, 0.5)
        action = learned.target_action("chain", THERE) + noise
        logged = PROBES["chain"].action[1::2, 0]
        penalty = learned.method.beta2 * float(np.mean((action[:, None] - logged[None]) ** 2))
        assert penalty > 0.3, "far beyond the tolerance"
    np.testing.assert_allclose(learned.q("chain", HERE, [-0.9, 0.9]), GAMMA * (3.0 - penalty), atol=0.05)


def test_a_time_out_is_not_the_end_and_costs_no_penalty(learned: Learned) -> None:
    """What was done after a time-out is not in the log, so nothing is held against the policy there."""
    np.testing.assert_allclose(learned.q("two ends", HERE, [-0.5, 0.5]), 1.0, atol=0.05)
    np.testing.assert_allclose(learned.q("two ends", THERE, [-0.5, 0.5]), 1 / (1 - GAMMA), atol=0.05)


def test_policy_lies_between_the_best_action_and_the_logged_ones(learned: Learned) -> None:
    """Where the slopes of value, in units of its size, and of the penalty cancel."""
    method, mean = learned.method, PROBES["bandit"].action.mean()
    expected = BEST
    for _ in range(50):
        size = payoff(np.asarray(expected))
        climb, stay = (method.alpha / size, 1.0) if isinstance(method, TD3BC) else (1 / size, method.beta1)
        expected = (climb * BEST + stay * mean) / (climb + stay)
    assert mean + 0.2 < expected < BEST - 0.1, "neither imitation nor the best action"
    assert learned.action("bandit") == pytest.approx(expected, abs=0.1)
