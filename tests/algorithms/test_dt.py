"""Decision Transformer: what it sees of an episode, what it learns from it, and how it acts step by step."""

import dataclasses
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import uniq_rl as ur
from probes import HERE, THERE, drawn, wander
from uniq_rl.algorithms import DT, Algorithm, Spec, Windows
from uniq_rl.algorithms.base import Learner, static
from uniq_rl.data import Dataset
from uniq_rl.errors import UniqError
from uniq_rl.physics.locomotion import Lockstep
from uniq_rl.policy import Policy
from uniq_rl.training import rows as rows_module
from uniq_rl.training.cohort import Cohort, Run
from uniq_rl.training.evaluation import Evaluator, evaluation_seeds, stacked
from uniq_rl.training.rows import episode_columns

SPEC = Spec(3, 2)
WINDOW, BATCH = 4, 3
TINY = DT(window=WINDOW, horizon=6, blocks=2, heads=2, dim=8, batch_size=BATCH, return_scale=10.0, target_return=7.0)


def state_of(method: DT, spec: Spec = SPEC) -> Any:
    return drawn(lambda: method.init(jax.random.key(0), spec))


def windows(seed: int = 0, mask: Any = None) -> Windows:
    rng = np.random.default_rng(seed)
    return Windows(
        obs=jnp.asarray(rng.normal(size=(BATCH, WINDOW, 3)), jnp.float32),
        action=jnp.asarray(rng.uniform(-1, 1, (BATCH, WINDOW, 2)), jnp.float32),
        return_to_go=jnp.asarray(rng.normal(0, 10, (BATCH, WINDOW)), jnp.float32),
        time_step=jnp.asarray([[0, 1, 2, 3], [1, 2, 3, 4], [9, 10, 11, 12]]),
        mask=jnp.ones((BATCH, WINDOW)) if mask is None else jnp.asarray(mask, jnp.float32),
    )


def predicted(net: Any, seen: Windows) -> np.ndarray:
    return np.asarray(net(seen.return_to_go / 10, seen.obs, seen.action, seen.time_step))


# The model


@pytest.fixture(scope="module")
def net() -> Any:
    return state_of(TINY).actor.net


@pytest.mark.parametrize("t", range(WINDOW))
def test_a_prediction_knows_what_came_before_the_action_and_nothing_else(net: Any, t: int) -> None:
    seen = windows()
    before = predicted(net, seen)
    for part, much in {"return_to_go": 20.0, "obs": 1.0, "action": 1.0}.items():
        changed = seen._replace(**{part: getattr(seen, part).at[:, t].add(much)})
        after = predicted(net, changed)
        first = t + (part == "action")
        np.testing.assert_array_equal(after[:, :first], before[:, :first])
        assert (np.abs(after - before).max(axis=-1)[:, first:] > 1e-6).all()


def test_predictions_are_actions(net: Any) -> None:
    assert predicted(net, windows()).shape == (BATCH, WINDOW, 2)
    assert np.abs(predicted(net, windows())).max() < 1


def test_time_steps_beyond_the_horizon_are_one(net: Any) -> None:
    seen = windows()
    late = predicted(net, seen._replace(time_step=seen.time_step + 100))
    np.testing.assert_array_equal(late, predicted(net, seen._replace(time_step=jnp.full((BATCH, WINDOW), 5))))
    assert not np.allclose(late[0], predicted(net, seen)[0])


# The loss and its optimiser

UPDATE = jax.jit(lambda method, state, batch: method.update(state, batch, jax.random.key(0)))
STILL = dataclasses.replace(TINY, dropout=0.0, warmup_steps=10.0)
ENDING = [[1, 1, 1, 1], [1, 0, 0, 0], [1, 1, 1, 0]]


def test_loss_is_the_mean_over_valid_steps(net: Any) -> None:
    seen = windows(mask=ENDING)
    error = (predicted(net, seen) - np.asarray(seen.action)) ** 2
    expected = error[np.asarray(ENDING, bool)].mean()
    _, metrics = UPDATE(STILL, state_of(STILL), seen)
    assert float(metrics["actor_loss"]) == pytest.approx(expected, rel=1e-5)


def test_padding_has_no_influence() -> None:
    """Whatever lies behind the end of an episode: not a bit of the new parameters depends on it."""
    one, other = windows(0, ENDING), windows(1, ENDING)
    valid = np.asarray(ENDING, bool)
    columns = [
        np.where(valid.reshape(valid.shape + (1,) * (a.ndim - 2)), a, b) for a, b in zip(one, other, strict=True)
    ]
    mixed = Windows(*(jnp.asarray(column) for column in columns))
    assert not np.array_equal(mixed.obs, one.obs)
    ours, theirs = (UPDATE(TINY, state_of(TINY), seen) for seen in (one, mixed))
    for x, y in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_array_equal(x, y)


def test_warm_up_clip_and_decay() -> None:
    """Adam's first step has size 1 where there is a gradient and shows the rate; without one, only decay is left."""
    begin = state_of(STILL)
    begin = begin._replace(actor=Learner.of(begin.actor.net))
    for step, share in ((0, 0.1), (4, 0.5), (9, 1.0), (25, 1.0)):
        after, _ = UPDATE(STILL, begin._replace(step=jnp.asarray(step, jnp.int32)), windows())
        rate = 8e-4 * share
        bias, moved = (np.asarray(state.actor.net.head.bias) for state in (begin, after))
        np.testing.assert_allclose(np.abs(moved - bias * (1 - rate * 1e-4)), rate, rtol=2e-3)
        assert int(after.step) == step + 1
    clipped = dataclasses.replace(STILL, gradient_clip=1e-3)
    moments = UPDATE(clipped, begin, windows())[0].actor.moments.mu
    norm = np.sqrt(sum(np.square(leaf).sum() for leaf in jax.tree.leaves(moments)))
    assert norm == pytest.approx(0.1 * 1e-3, rel=1e-5)
    frozen = dataclasses.replace(STILL, learning_rate=0.5, weight_decay=0.2, gradient_clip=0.0)
    after, _ = UPDATE(frozen, begin._replace(step=jnp.asarray(9, jnp.int32)), windows())
    for x, y in zip(jax.tree.leaves(begin.actor.net), jax.tree.leaves(after.actor.net), strict=True):
        np.testing.assert_allclose(y, (1 - 0.5 * 0.2) * x, rtol=1e-5)


# Where windows come from


class Seen(NamedTuple):
    """By the number of the row a window begins with."""

    starts: jax.Array
    steps: jax.Array
    time_step: jax.Array
    return_to_go: jax.Array
    mixed: jax.Array
    """Windows whose rows are not consecutive, or not zero behind the end."""


class Watcher(Algorithm):
    """Learns nothing but what windows look like. The first observation of a row is its number, from 1 on."""

    name: ClassVar[str] = "watcher"
    rows: int = static(0)
    spare: float = 0.0

    @property
    def window_length(self) -> int | None:
        return WINDOW

    def init(self, key: jax.Array, spec: Spec) -> Seen:
        count, number = jnp.zeros(self.rows + 1, jnp.int32), jnp.zeros(self.rows + 1)
        return Seen(starts=count, steps=count, time_step=count, return_to_go=number, mixed=number)

    def update(self, state: Seen, batch: Windows, key: jax.Array) -> tuple[Seen, dict[str, jax.Array]]:
        first = batch.obs[:, 0, 0].astype(jnp.int32)
        expected = (first[:, None] + jnp.arange(WINDOW)[None]) * batch.mask
        mixed = jnp.any((batch.obs[..., 0] != expected) | (batch.action[..., 0] != jnp.sign(expected)), axis=1)
        late = jnp.any(batch.time_step != (batch.time_step[:, :1] + jnp.arange(WINDOW)[None]) * batch.mask, axis=1)
        after = Seen(
            starts=state.starts.at[first].add(1),
            steps=state.steps.at[first].set(jnp.sum(batch.mask, axis=1).astype(jnp.int32)),
            time_step=state.time_step.at[first].set(batch.time_step[:, 0]),
            return_to_go=state.return_to_go.at[first].set(batch.return_to_go[:, 0]),
            mixed=state.mixed.at[first].add((mixed | late).astype(jnp.float32)),
        )
        return after, {"mixed": jnp.sum(after.mixed)}

    def act(self, state: Seen, obs: jax.Array, memory: Any) -> tuple[jax.Array, Any]:
        return obs[:, :1], memory

    def deployed(self, state: Seen) -> Seen:
        return state


def numbered(lengths: list[int], first: int) -> Dataset:
    """Episodes of these lengths; every second one terminates, the others are cut off."""
    count = sum(lengths)
    last = np.cumsum(lengths) - 1
    mask = np.ones(count)
    mask[last[::2]] = 0
    number = first + np.arange(count)
    obs = np.stack([number, np.zeros(count)], axis=1)
    reward = np.random.default_rng(first).integers(-9, 10, count)
    return Dataset(obs, np.ones((count, 1)), reward, obs, mask, np.isin(np.arange(count), last), name=f"from {first}")


LENGTHS = [1, 2, 3, 4, 5, 6, 9] * 7  # 49 episodes: enough for a held-out fold
DATA = numbered(LENGTHS, 1), numbered([3, 1, 7], 1 + sum(LENGTHS))
ROWS = sum(data.size for data in DATA)
UPDATES = 60


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("fractions", [{}, {"heldout_fraction": 0.2, "calibration_fraction": 0.2, "split": "episode"}])
def test_windows_begin_anywhere_and_end_with_their_episode(
    stream: bool, fractions: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows_module, "STREAMED_BYTES", 2**18)  # several pieces
    method = Watcher(rows=ROWS, batch_size=256, **fractions)
    cohort = Cohort([Run(method, data, seed, str(seed)) for seed, data in enumerate(DATA)], stream=stream)
    seen = jax.device_get(cohort.advance(cohort.start(), UPDATES).state)
    assert not seen.mixed.any()
    for i, data in enumerate(DATA):
        train = cohort.folds[i].train
        assert (len(train) < data.size) == bool(fractions)
        starts = seen.starts[i][1:]
        expected = UPDATES * 256 / len(train)
        first = int(data.obs[0, 0]) - 1
        np.testing.assert_array_less(np.abs(starts[first + train] - expected), 4.5 * np.sqrt(expected))
        assert starts.sum() == starts[first + train].sum() == UPDATES * 256
        for start, stop in data.episode_bounds:
            for row in set(range(start, stop)) & set(train):
                number = first + 1 + row
                assert seen.steps[i][number] == min(WINDOW, stop - row)
                assert seen.time_step[i][number] == row - start
                assert seen.return_to_go[i][number] == data.reward[row:stop].sum()


def test_return_to_go_by_hand() -> None:
    data = dataclasses.replace(numbered([3, 1, 2], 1), reward=np.asarray([1.0, -2.0, 4.0, 7.0, 0.5, 0.25], np.float32))
    columns = episode_columns(data)
    np.testing.assert_array_equal(columns["return_to_go"], [3, 2, 4, 7, 0.75, 0.25])
    np.testing.assert_array_equal(columns["time_step"], [0, 1, 2, 0, 0, 1])
    np.testing.assert_array_equal(columns["rows_left"], [2, 1, 0, 0, 1, 0])


def test_episodes_torn_apart_are_refused() -> None:
    with pytest.raises(UniqError, match="dt learns from whole episodes: split by episode"):
        DT(calibration_fraction=0.1)
    assert DT(calibration_fraction=0.1, split="episode").folds.by == "episode"


# Acting


def policy_of(method: DT, state: Any, spec: Spec = SPEC) -> Policy:
    return Policy(
        algorithm=method,
        state=method.deployed(state),
        obs_mean=jnp.full(spec.obs_dim, 0.5),
        obs_std=jnp.full(spec.obs_dim, 2.0),
        action_low=-jnp.ones(spec.action_dim),
        action_high=jnp.ones(spec.action_dim),
        spec=spec,
    )


def test_step_by_step_as_in_one_pass() -> None:
    """Two episodes of nine steps: each action is the one the model predicts there when it sees the window at once."""
    policy = policy_of(TINY, state_of(TINY))
    rng = np.random.default_rng(0)
    obs, reward = rng.normal(size=(2, 9, 3)).astype(np.float32), rng.normal(size=(2, 9)).astype(np.float32)
    actions, memory = [], None
    act = eqx.filter_jit(policy.act)
    for t in range(9):
        action, memory = act(jnp.asarray(obs[:, t]), memory)
        memory = policy.rewarded(memory, jnp.asarray(reward[:, t]))
        actions.append(np.asarray(action))
    taken = np.stack(actions, axis=1)
    return_to_go = (7 - np.cumsum(reward, axis=1) + reward).astype(np.float32)

    def whole(first: int) -> np.ndarray:
        part = np.s_[:, first : first + WINDOW]
        time = np.tile(np.arange(first, first + WINDOW), (2, 1))
        columns = (return_to_go[part] / 10, (obs[part] - 0.5) / 2, taken[part], time)
        return np.asarray(policy.state.actor.net(*(jnp.asarray(column) for column in columns)))

    np.testing.assert_allclose(taken[:, :WINDOW], whole(0), atol=1e-5)
    for first in range(1, 6):
        np.testing.assert_allclose(taken[:, first + WINDOW - 1], whole(first)[:, -1], atol=1e-5)
    assert np.abs(whole(0)[:, 1:] - whole(1)[:, :-1]).max() > 1e-3, "what left the window counts no longer"
    np.testing.assert_array_equal(policy(obs[:, 0]), act(jnp.asarray(obs[:, 0]), None)[0])


def test_evaluation_tells_the_rewards() -> None:
    """Two runs in lockstep earn what a plain loop of `act` and `rewarded` earns."""
    spec = Spec(11, 3)
    method = dataclasses.replace(TINY, return_scale=1.0, target_return=5.0)
    states = [drawn(lambda: method.init(jax.random.key(0), spec), seed) for seed in (0, 1)]
    policies = [policy_of(method, state, spec) for state in states]
    evaluator = Evaluator(["hopper"] * 2, "d4rl", 2)
    evaluation = evaluator.evaluate(stacked(policies), np.ones(2, bool), step=3)
    evaluator.close()
    blind = []
    for i, policy in enumerate(policies):
        act = eqx.filter_jit(policy.act)
        for told in (True, False):
            with Lockstep("hopper", 2, "d4rl") as env:
                obs, running, returns, memory = env.reset(evaluation_seeds(3, 2)), np.ones(2, bool), np.zeros(2), None
                while running.any():
                    action, memory = act(jnp.asarray(obs, jnp.float32), memory)
                    obs, reward, terminated = env.step(np.asarray(action), running)
                    returns += np.where(running, reward, 0)
                    if told:
                        memory = policy.rewarded(memory, jnp.asarray(reward, jnp.float32))
                    running &= ~np.asarray(terminated, bool)
            if told:
                np.testing.assert_allclose(evaluation.returns[i], returns, rtol=1e-4)
            else:
                blind.append(np.allclose(evaluation.returns[i], returns, rtol=1e-3))
    assert not all(blind), "the rewards make a difference"


# What it learns


def two_branches() -> Dataset:
    """Two steps, HERE then THERE, each with an action of -0.6 or 0.6 that earns -1 or 1."""
    half = 200
    sign = np.random.default_rng(0).choice([-1.0, 1.0], 2 * half)
    return Dataset(
        obs=np.tile([HERE, THERE], (half, 1)),
        action=0.6 * sign[:, None],
        reward=sign,
        next_obs=np.tile([THERE, THERE], (half, 1)),
        mask=np.tile([1.0, 0.0], half),
        episode_end=np.tile([False, True], half),
        name="two branches",
    )


@pytest.fixture(scope="module")
def learned() -> Policy:
    method = DT(window=2, horizon=2, blocks=1, dim=16, batch_size=64, learning_rate=3e-3, dropout=0.0)
    cohort = Cohort([Run(method.budgeted(300), two_branches(), 0, "0")])
    progress = cohort.advance(cohort.start(), 300)
    return cohort.policy(cohort.policies(progress), 0)


def asked_for(policy: Policy, target: float) -> Policy:
    assert isinstance(policy.algorithm, DT)
    return dataclasses.replace(policy, algorithm=dataclasses.replace(policy.algorithm, target_return=target))


def test_does_what_earned_the_return_it_is_asked_for(learned: Policy) -> None:
    obs = jnp.asarray([HERE], jnp.float32), jnp.asarray([THERE], jnp.float32)
    for sign in (1.0, -1.0):
        policy = asked_for(learned, 2 * sign)
        action, memory = policy.act(obs[0])
        assert float(action[0, 0]) == pytest.approx(0.6 * sign, abs=0.1)
        for earned, then in ((sign, sign), (3 * sign, -sign)):
            # After what was expected, more of it; after too much, the rest must be made up for.
            action, _ = policy.act(obs[1], policy.rewarded(memory, jnp.asarray([earned])))
            assert then * float(action[0, 0]) > 0.4


def test_asks_for_the_best_of_the_data_unless_told(learned: Policy) -> None:
    assert isinstance(learned.algorithm, DT)
    assert learned.algorithm.target_return == 2.0
    assert learned.algorithm.return_scale == 2.0
    assert learned(HERE)[0] == pytest.approx(0.6, abs=0.1)


# Settings


def test_what_the_data_decide() -> None:
    data = wander()
    informed = DT().informed(data)
    assert informed.target_return == data.episode_returns.max()
    assert informed.return_scale == np.abs(data.episode_returns).max()
    given = DT(target_return=-3.0, return_scale=50.0)
    assert given.informed(data) == given
    worthless = dataclasses.replace(data, reward=np.zeros(data.size, np.float32))
    assert DT().informed(worthless).return_scale == 1.0


def test_published_settings() -> None:
    for task, target in {"halfcheetah": 12_000, "hopper": 3600, "walker2d": 5000}.items():
        for kind in ("medium", "medium-replay", "medium-expert", None):
            method = DT.preset("paper", task, kind)
            assert (method.target_return, method.return_scale) == (target, 1000)
    assert DT.preset("paper", "pen", "human") == DT.preset("paper", None, None) == DT()
    assert (DT().batch_size, DT().window, DT().blocks, DT().heads, DT().dim) == (4096, 20, 3, 1, 128)
    assert (DT().learning_rate, DT().weight_decay, DT().gradient_clip, DT().dropout) == (8e-4, 1e-4, 0.25, 0.1)
    assert (DT().normalize_obs, DT().reward_scaling, DT().horizon) == (True, "none", 1000)


def test_warm_up_fits_the_budget() -> None:
    assert [DT().budgeted(steps).warmup_steps for steps in (5, 300, 100_000, 1_000_000)] == [1, 30, 10_000, 10_000]
    assert DT(warmup_steps=7.0).budgeted(100_000).warmup_steps == 7


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"dim": 10, "heads": 3}, "multiple of heads"),
        ({"reward_scaling": "return_range"}, "reward_scaling is 'return_range'"),
        ({"dropout": 1.0}, "dropout is 1.0"),
        ({"window": 0}, "window is 0"),
        ({"warmup_steps": 0.0}, "warmup_steps is 0.0"),
        ({"return_scale": 0.0}, "return_scale is 0.0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(UniqError, match=reason):
        DT(**changes)


def test_a_target_is_needed_to_act() -> None:
    method = dataclasses.replace(TINY, target_return=None)
    with pytest.raises(UniqError, match="dt: target_return is not known"):
        policy_of(method, state_of(method))(np.zeros(3))
    assert ur.DT is DT
