"""Scores: the seeds of evaluations, and that a batched evaluation of many policies is what each would get alone."""

import itertools
from collections.abc import Iterator

import jax
import numpy as np
import pytest

import uniq_rl as ur
from uniq_rl.algorithms import Spec
from uniq_rl.physics.locomotion import Lockstep, rollout_returns
from uniq_rl.physics.scores import score
from uniq_rl.training.evaluation import Evaluator, evaluation_seeds, stacked

EPISODES = 3
HOPPER, CHEETAH = Spec(11, 3), Spec(17, 6)


METHOD = ur.IQL(hidden=(8, 8))
state_of = jax.jit(lambda key, spec: METHOD.deployed(METHOD.init(key, spec)), static_argnums=1)


def policy(seed: int, spec: Spec = HOPPER) -> ur.Policy:
    """A policy as it is before training: random, but a policy."""
    rng = np.random.default_rng(seed)
    mean, std = rng.normal(0, 0.1, spec.obs_dim), rng.uniform(0.5, 2, spec.obs_dim)
    return ur.Policy(
        algorithm=METHOD,
        state=state_of(jax.random.key(seed), spec),
        obs_mean=mean.astype(np.float32),
        obs_std=std.astype(np.float32),
        action_low=np.full(spec.action_dim, -1, np.float32),
        action_high=np.full(spec.action_dim, 1, np.float32),
        spec=spec,
    )


@pytest.fixture
def evaluator() -> Iterator[Evaluator]:
    evaluator = Evaluator(["hopper"] * 3, "d4rl", EPISODES)
    yield evaluator
    evaluator.close()


@pytest.fixture(scope="module")
def policies() -> list[ur.Policy]:
    return [policy(seed) for seed in range(3)]


def alive(count: int) -> np.ndarray:
    return np.ones(count, bool)


# Seeds


def test_seeds_of_different_evaluations_are_disjoint() -> None:
    steps = (0, 1, 2, 1000, 2000, 50_000, 1_000_000, 2**40)
    seeds = {step: set(evaluation_seeds(step, 100)) for step in steps}
    assert all(len(chosen) == 100 for chosen in seeds.values())
    for one, other in itertools.combinations(steps, 2):
        assert seeds[one].isdisjoint(seeds[other])


def test_seeds_depend_on_the_step_alone() -> None:
    assert evaluation_seeds(1000, 5) == evaluation_seeds(1000, 5)
    assert evaluation_seeds(1000, 10)[:5] == evaluation_seeds(1000, 5)
    assert all(0 <= seed < 2**63 for seed in evaluation_seeds(1000, 100))


# Returns


def test_evaluation_equals_a_plain_loop(policies: list[ur.Policy]) -> None:
    evaluator = Evaluator(["hopper"], "d4rl", EPISODES)
    evaluation = evaluator.evaluate(stacked(policies[:1]), alive(1), step=700)
    evaluator.close()
    with Lockstep("hopper", EPISODES, "d4rl") as env:
        returns, lengths = rollout_returns(env, policies[0], evaluation_seeds(700, EPISODES))
    np.testing.assert_array_equal(evaluation.lengths[0], lengths)
    np.testing.assert_allclose(evaluation.returns[0], returns, rtol=1e-4)
    assert evaluation.scores[0] == score("hopper", evaluation.returns[0].mean())
    assert evaluation.step == 700


def test_evaluation_is_deterministic(policies: list[ur.Policy], evaluator: Evaluator) -> None:
    first, second = (evaluator.evaluate(stacked(policies), alive(3), step=5) for _ in range(2))
    np.testing.assert_array_equal(first.returns, second.returns)
    np.testing.assert_array_equal(first.lengths, second.lengths)
    later = evaluator.submit(stacked(policies), alive(3), 5).result()
    np.testing.assert_array_equal(first.returns, later.returns)
    assert not np.array_equal(first.returns, evaluator.evaluate(stacked(policies), alive(3), step=6).returns)


def test_every_run_starts_from_the_same_states(policies: list[ur.Policy], evaluator: Evaluator) -> None:
    """So that methods and seeds are compared on equal episodes."""
    evaluation = evaluator.evaluate(stacked([policies[1]] * 3), alive(3), step=5)
    np.testing.assert_allclose(evaluation.returns, np.tile(evaluation.returns[0], (3, 1)), rtol=1e-4)


def test_a_score_does_not_depend_on_the_neighbours(policies: list[ur.Policy], evaluator: Evaluator) -> None:
    together = evaluator.evaluate(stacked(policies), alive(3), step=5)
    turned = evaluator.evaluate(stacked(policies[::-1]), alive(3), step=5)
    np.testing.assert_array_equal(together.lengths, turned.lengths[::-1])
    np.testing.assert_allclose(together.returns, turned.returns[::-1], rtol=1e-4)
    for i, one in enumerate(policies):
        evaluator_alone = Evaluator(["hopper"], "d4rl", EPISODES)
        evaluation = evaluator_alone.evaluate(stacked([one]), alive(1), step=5)
        evaluator_alone.close()
        np.testing.assert_array_equal(evaluation.lengths[0], together.lengths[i])
        np.testing.assert_allclose(evaluation.returns[0], together.returns[i], rtol=1e-4)


def test_a_dead_run_stands_still_and_scores_nan(policies: list[ur.Policy], evaluator: Evaluator) -> None:
    whole = evaluator.evaluate(stacked(policies), alive(3), step=5)
    evaluation = evaluator.evaluate(stacked(policies), np.asarray([True, False, True]), step=5)
    assert np.isnan(evaluation.scores[1])
    assert evaluation.lengths[1].tolist() == [0] * EPISODES
    for i in (0, 2):
        np.testing.assert_array_equal(evaluation.returns[i], whole.returns[i])
        assert evaluation.scores[i] == whole.scores[i]


def test_numbers_of_a_dead_run_do_no_harm(policies: list[ur.Policy], evaluator: Evaluator) -> None:
    whole = evaluator.evaluate(stacked(policies), alive(3), step=5)
    broken = jax.tree.map(lambda leaf: np.full_like(leaf, np.nan), policies[1])
    evaluation = evaluator.evaluate(
        stacked([policies[0], broken, policies[2]]), np.asarray([True, False, True]), step=5
    )
    np.testing.assert_array_equal(evaluation.returns[[0, 2]], whole.returns[[0, 2]])
    assert np.isnan(evaluation.scores[1])


def test_no_run_alive_takes_no_step(policies: list[ur.Policy], evaluator: Evaluator) -> None:
    evaluation = evaluator.evaluate(stacked(policies), np.zeros(3, bool), step=5)
    assert np.isnan(evaluation.scores).all()
    assert not evaluation.lengths.any()


def test_two_tasks_of_one_width_share_an_evaluation() -> None:
    tasks = ["walker2d", "halfcheetah", "walker2d"]
    policies = [policy(seed, CHEETAH) for seed in range(3)]
    mixed = Evaluator(tasks, "gymnasium", 1)
    mixed.check(CHEETAH)
    together = mixed.evaluate(stacked(policies), alive(3), step=9)
    mixed.close()
    assert together.lengths[1] == 1000  # a halfcheetah never falls, so it runs on alone when the walkers lie
    for i, task in enumerate(tasks):
        assert together.scores[i] == score(task, together.returns[i].mean())
        if task == "walker2d":
            with Lockstep(task, 1, "gymnasium") as env:
                returns, lengths = rollout_returns(env, policies[i], evaluation_seeds(9, 1))
            np.testing.assert_array_equal(together.lengths[i], lengths)
            np.testing.assert_allclose(together.returns[i], returns, rtol=1e-3)


# Refusals


def test_a_task_without_a_simulator_is_refused() -> None:
    with pytest.raises(ur.UniqError, match="pogo"):
        Evaluator(["hopper", "pogo"], "d4rl", 1)


def test_other_widths_than_the_tasks_are_refused(evaluator: Evaluator) -> None:
    evaluator.check(HOPPER)
    with pytest.raises(ur.UniqError, match="hopper has observations of width 11"):
        evaluator.check(CHEETAH)
