"""What every method owes its user. A new entry of `ALGORITHMS` is covered the moment it is there.

Compiling costs far more than running: all tests of a method share two programs, one of four runs and one of one run.
"""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from probes import bandit, payoff, wander
from uniq_rl.algorithms import ALGORITHMS, Algorithm, Spec
from uniq_rl.errors import UniqError
from uniq_rl.policy import Policy, load_policy
from uniq_rl.training.cohort import Cohort, Progress, Run

SPEC = Spec(2, 1)
CHUNK = 100
WANDER, BANDIT = wander(), bandit()
OBS = np.random.default_rng(0).normal(size=(6, 2)).astype(np.float32)


def small(method: type[Algorithm], **changes: Any) -> Algorithm:
    """Tiny networks, few rows, a high rate; of these, what the method has."""
    wanted: dict[str, Any] = {"hidden": (16,), "batch_size": 32, "reward_scaling": "none"}
    wanted |= {"blocks": 1, "dim": 8, "window": 4, "horizon": 10}
    wanted |= dict.fromkeys(("learning_rate", "actor_learning_rate", "alpha_learning_rate"), 3e-3) | changes
    fields = {field.name for field in dataclasses.fields(method)}
    return method(**{name: value for name, value in wanted.items() if name in fields}).budgeted(1000)


def runs(method: type[Algorithm], fourth: Algorithm | None = None) -> list[Run]:
    """Two seeds, other numbers, other data: what may differ within a cohort."""
    plain = small(method)
    other = jax.tree.map(lambda number: 0.9 * number, plain)
    return [
        Run(plain, WANDER, 0, "plain"),
        Run(other, WANDER, 1, "other numbers"),
        Run(plain, BANDIT, 0, "other data"),
        Run(plain if fourth is None else fourth, WANDER, 1, "fourth"),
    ]


def copied(tree: Any) -> Any:
    """On the host, safe from donation; random keys have no place in a state."""
    return jax.tree.map(np.array, tree)


def of_run(tree: Any, index: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[index], tree)


def assert_same_bits(a: Any, b: Any) -> None:
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert x.dtype == y.dtype
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes()


@dataclasses.dataclass
class Trained:
    """Four runs after 200 updates."""

    method: type[Algorithm]
    cohort: Cohort
    begin: Any
    state: Any
    policies: Policy
    progress: Progress


@pytest.fixture(scope="module", params=list(ALGORITHMS))
def trained(request: pytest.FixtureRequest) -> Trained:
    method = ALGORITHMS[request.param]
    cohort = Cohort(runs(method))
    progress = cohort.start()
    begin = copied(progress.state)
    for _ in range(2):
        progress = cohort.advance(progress, CHUNK)
    return Trained(method, cohort, begin, copied(progress.state), cohort.policies(progress), progress)


def test_shapes_and_types(trained: Trained) -> None:
    algorithm, batch = trained.cohort.runs[0].algorithm, trained.cohort.example(32)
    state = jax.eval_shape(lambda: algorithm.init(jax.random.key(0), SPEC))
    assert algorithm.cycle()[-1] == algorithm.update, "the whole update comes last: its metrics are reported"
    for one in algorithm.cycle():
        after, metrics = jax.eval_shape(lambda s, one=one: one(s, batch, jax.random.key(0)), state)
        assert jax.tree.structure(after) == jax.tree.structure(state)
        for x, y in zip(jax.tree.leaves(state), jax.tree.leaves(after), strict=True):
            assert (x.shape, x.dtype) == (y.shape, y.dtype)
            assert x.dtype in (np.float32, np.int32)
            assert not x.weak_type, "the first update would make it strong, and training would be compiled twice"
    assert {(leaf.shape, leaf.dtype) for leaf in metrics.values()} == {((), np.dtype(np.float32))}
    assert trained.progress.metrics.shape == (4, len(metrics))
    assert np.isfinite(trained.progress.metrics).all()
    assert not trained.progress.diverged.any()


def test_everything_learns(trained: Trained) -> None:
    """No network is forgotten: each array of floats moves, but for those that only calibration moves."""
    paths = jax.tree_util.tree_flatten_with_path(trained.begin)[0]
    for (path, before), after in zip(paths, jax.tree.leaves(trained.state), strict=True):
        name = jax.tree_util.keystr(path)
        if "q_hat" not in name:
            assert (before != after).any(), name


def test_same_seed_same_bits(trained: Trained) -> None:
    again = Cohort(runs(trained.method))
    progress = again.start()
    assert_same_bits(copied(progress.state), trained.begin)
    for _ in range(2):
        progress = again.advance(progress, CHUNK)
    assert_same_bits(copied(progress.state), trained.state)


def test_other_seed_other_policy(trained: Trained) -> None:
    first, last = (trained.cohort.policy(trained.policies, i)(OBS) for i in (0, 3))
    assert np.abs(first - last).max() > 1e-3


def test_alone_as_in_a_cohort(trained: Trained) -> None:
    """One run by itself, in one chunk of 200 updates; among others it had two of 100."""
    alone = Cohort([runs(trained.method)[1]])
    state = alone.advance(alone.start(), 2 * CHUNK).state
    # 200 steps of at most 0.003 each: what rounding makes of them stays far below one step.
    for x, y in zip(jax.tree.leaves(of_run(state, 0)), jax.tree.leaves(of_run(trained.state, 1)), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-4)


def diverging(method: type[Algorithm]) -> Algorithm:
    rates = [field.name for field in dataclasses.fields(method) if "learning_rate" in field.name]
    assert rates, f"{method.name} has no learning rate to make it diverge with; name it so that this test finds it"
    return small(method, **dict.fromkeys(rates, float("inf")))


def test_a_diverging_run_is_given_up_and_disturbs_nobody(trained: Trained) -> None:
    cohort = Cohort(runs(trained.method, fourth=diverging(trained.method)))
    progress = cohort.start()
    for _ in range(2):
        progress = cohort.advance(progress, CHUNK)
    np.testing.assert_array_equal(progress.diverged, [False, False, False, True])
    assert_same_bits(of_run(copied(progress.state), np.s_[:3]), of_run(trained.state, np.s_[:3]))
    progress = cohort.calibrate(cohort.advance(progress, CHUNK))
    np.testing.assert_array_equal(progress.diverged, [False, False, False, True])


def test_acts_within_bounds_and_always_alike(trained: Trained) -> None:
    policy = trained.cohort.policy(trained.policies, 0)
    extreme = np.concatenate([OBS, 1e3 * OBS, np.zeros((1, 2), np.float32)])
    actions = policy(extreme)
    assert actions.shape == (13, 1)
    assert actions.dtype == np.float32
    assert np.abs(actions).max() <= 1
    np.testing.assert_array_equal(actions, policy(extreme))
    single = policy(extreme[3])
    assert single.shape == (1,)
    np.testing.assert_allclose(single, actions[3], atol=1e-6)
    np.testing.assert_allclose(policy(extreme[3].tolist()), single, atol=1e-6)


def uncertain(method: type[Algorithm]) -> bool:
    return method.uncertainty is not Algorithm.uncertainty


def test_deployed_state_acts_like_the_whole(trained: Trained) -> None:
    policy = trained.cohort.policy(trained.policies, 0)
    whole = dataclasses.replace(policy, state=jax.tree.map(jnp.asarray, of_run(trained.state, 0)))
    np.testing.assert_array_equal(policy(OBS), whole(OBS))
    if uncertain(trained.method):
        for ours, theirs in zip(policy.uncertainty(OBS), whole.uncertainty(OBS), strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_saved_is_loaded(trained: Trained, tmp_path: Path) -> None:
    path = tmp_path / "policy.safetensors"
    for i in (0, 1):
        policy = trained.cohort.policy(trained.policies, i)
        policy.save(path)
        loaded = load_policy(path)
        assert loaded.algorithm == policy.algorithm
        assert loaded.spec == policy.spec
        for obs in (OBS, OBS[0]):
            np.testing.assert_array_equal(loaded(obs), policy(obs))
            if uncertain(trained.method):
                for ours, theirs in zip(policy.uncertainty(obs), loaded.uncertainty(obs), strict=True):
                    assert ours.shape == obs.shape[:-1]
                    np.testing.assert_array_equal(ours, theirs)


def test_who_learns_no_uncertainty_says_so(trained: Trained) -> None:
    policy = trained.cohort.policy(trained.policies, 0)
    if uncertain(trained.method):
        assert (policy.uncertainty(OBS).sigma > 0).all()
    else:
        with pytest.raises(UniqError, match=f"{trained.method.name} learns no uncertainty"):
            policy.uncertainty(OBS)


@pytest.mark.parametrize("shape", [(3,), (1,), (4, 3), (2, 2, 2), ()])
def test_other_widths_are_refused(trained: Trained, shape: tuple[int, ...]) -> None:
    policy = trained.cohort.policy(trained.policies, 0)
    with pytest.raises(UniqError, match="width 2"):
        policy(np.zeros(shape))


def test_learns_the_bandit(trained: Trained) -> None:
    """Better than what was logged. Last, for it goes on training; and what was taken away before, stays as it was."""
    taken = copied(trained.policies.state)
    progress = trained.cohort.calibrate(trained.progress)
    for _ in range(3):
        progress = trained.cohort.advance(progress, CHUNK)
    assert_same_bits(trained.policies.state, taken)
    action = trained.cohort.policy(trained.cohort.policies(progress), 2)(BANDIT.obs[0])
    assert payoff(action[0]) > BANDIT.reward.mean() + 0.2
