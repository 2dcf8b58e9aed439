"""UNIQ: it contains IQL, its options run in every combination, and its settings are the paper's."""

from itertools import combinations, product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_reference import SPEC, random_batch, random_state, update

from probes import drawn
from uniq_rl.algorithms import IQL, UNIQ, Batch
from uniq_rl.algorithms.base import Learner
from uniq_rl.conservatism import conformal_quantile, conformal_rank
from uniq_rl.errors import UniqError


@pytest.mark.usefixtures("x64")
def test_contains_iql() -> None:
    """With `tau = 1`, one member and no pessimism, the level-0.7 head is IQL's value network, update for update."""
    shared = {"hidden": (7, 5), "learning_rate": 3e-3, "decay_steps": 150.0}
    iql = IQL(**shared, expectile=0.7)
    options = {"reading": "effective", "ensemble": "independent", "critics": 2, "target": "q"}
    uniq = UNIQ(**shared, **options, tau_min=1.0, tau_max=1.0, n_members=1, kappa=0.0)
    theirs = random_state(iql, seed=5)
    ours = random_state(uniq, seed=6)
    heads = jax.tree.map(lambda all_, own: all_.at[1].set(own[0]), ours.ensemble.net, theirs.value.net)
    ours = ours._replace(
        ensemble=Learner.of(heads), critic=theirs.critic, target=theirs.target_critic, actor=theirs.actor
    )
    begin = theirs
    for i in range(100):
        batch = random_batch(i)
        theirs, _ = update(iql, theirs, batch)
        ours, _ = update(uniq, ours, batch)
    pairs = {
        "value": (uniq.middle(ours.ensemble.net), theirs.value.net),
        "critic": (ours.critic.net, theirs.critic.net),
        "target": (ours.target, theirs.target_critic),
        "actor": (ours.actor.net, theirs.actor.net),
    }
    for name, (a, b) in pairs.items():
        for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
            np.testing.assert_allclose(x, y, rtol=0, atol=1e-9, err_msg=name)
    # They went somewhere together, and the other levels went elsewhere.
    assert (
        float(jnp.abs(theirs.critic.net.stacked.layers[0].weight - begin.critic.net.stacked.layers[0].weight).max())
        > 0.1
    )
    lower, middle, upper = ours.ensemble.net(random_batch(0).obs)
    assert float(jnp.abs(middle - lower).max()) > 1e-3
    assert float(jnp.abs(middle - upper).max()) > 1e-3


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("reading", ["effective", "primary"])
def test_outer_levels_feed_nothing_but_the_spread(reading: Any) -> None:
    """Of independent networks only `Delta(s)` reads the heads at 0.5 and 0.9: without them all else is the same."""
    options = {"hidden": (7, 5), "learning_rate": 3e-3, "decay_steps": 150.0, "reading": reading, "kappa": 2.0}
    states = []
    for method in (UNIQ(**options), UNIQ(**options, outer_levels=False)):
        state = jax.jit(lambda method=method: method.init(jax.random.key(0), SPEC))()
        for i in range(30):
            state, _ = update(method, state, random_batch(i))
        states.append(state._replace(ensemble=method.middle(state.ensemble.net)))
    for x, y in zip(*(jax.tree.leaves(state) for state in states), strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=1e-12)


OPTIONS = {
    "reading": ("effective", "primary"),
    "target": ("q", "v"),
    "ensemble": ("independent", "low_rank"),
    "calibrate": ("bellman", "disagreement", "none"),
    "outer_levels": (True, False),
    "critics": (2, 1),
}
# Every pair of options in eight programs.
COVERING = [
    ("effective", "q", "low_rank", "bellman", True, 1),
    ("primary", "v", "independent", "bellman", False, 2),
    ("effective", "v", "low_rank", "disagreement", True, 2),
    ("primary", "q", "independent", "disagreement", False, 1),
    ("effective", "v", "independent", "none", True, 1),
    ("primary", "q", "low_rank", "none", False, 2),
    ("effective", "q", "independent", "bellman", False, 2),
    ("primary", "v", "low_rank", "bellman", True, 1),
]
BATCH = 16


def with_options(values: tuple[Any, ...]) -> UNIQ:
    return UNIQ(hidden=(6,), rank=2, **dict(zip(OPTIONS, values, strict=True)))


def cycle(algorithm: UNIQ, state: Any, batch: Batch) -> tuple[Any, Any, Any]:
    """An update, a calibration on the same rows, and what a user would read off."""
    state, metrics = algorithm.update(state, batch, jax.random.key(0))
    if algorithm.calibration_interval is not None:
        scores = algorithm.nonconformity(state, batch)
        state = algorithm.recalibrated(state, conformal_quantile(scores, conformal_rank(BATCH, 0.1)))
    return state, metrics, algorithm.uncertainty(state, batch.obs)


def described(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), tree)


def test_covering_covers() -> None:
    for i, j in combinations(range(len(OPTIONS)), 2):
        wanted = set(product(list(OPTIONS.values())[i], list(OPTIONS.values())[j]))
        assert wanted == {(row[i], row[j]) for row in COVERING}


def test_every_combination_keeps_the_shape_of_its_state() -> None:
    """By tracing alone; with two critics, whose number changes no step of the program."""
    batch = jax.eval_shape(lambda: random_batch(0, BATCH))
    for values in product(*list(OPTIONS.values())[:-1], OPTIONS["critics"][:1]):
        algorithm = with_options(values)
        state = jax.eval_shape(lambda a=algorithm: a.init(jax.random.key(0), SPEC))
        after, metrics, uncertainty = jax.eval_shape(cycle, algorithm, state, batch)
        assert described(after) == described(state), algorithm
        assert {leaf.shape for leaf in metrics.values()} == {()}
        assert {leaf.shape for leaf in jax.tree.leaves(uncertainty)} == {(BATCH,)}
        assert (uncertainty.delta is not None) == algorithm.outer_levels


@pytest.mark.parametrize("values", COVERING, ids=lambda values: "-".join(map(str, values)))
def test_options_run_together(values: tuple[Any, ...]) -> None:
    algorithm = with_options(values)
    state = random_state(algorithm, seed=3)._replace(q_hat=jnp.ones(()))
    program = jax.jit(cycle)
    for i in range(2):
        state, metrics, uncertainty = program(algorithm, state, random_batch(i, BATCH))
    for leaf in jax.tree.leaves((state, metrics, uncertainty)):
        assert np.isfinite(leaf).all()
    calibrated = algorithm.calibrate != "none"
    assert (float(state.q_hat) != 1.0) == calibrated
    assert float(state.q_hat) > 0
    np.testing.assert_allclose(
        uncertainty.u, uncertainty.sigma / (float(state.q_hat) + 1e-6 if calibrated else 1.0), rtol=1e-5
    )
    assert np.all((uncertainty.tau >= 0.5) & (uncertainty.tau <= 0.9))


@pytest.mark.parametrize(
    ("task", "kind", "kappa", "tau_max"),
    [
        ("halfcheetah", "medium-expert", 0.0, 0.95),
        ("hopper", "medium-replay", 0.0, 0.95),
        ("hopper", "medium", 0.5, 0.9),
        ("halfcheetah", "medium", 0.5, 0.9),
        ("halfcheetah", "medium-replay", 0.5, 0.9),
        ("hopper", "medium-expert", 0.5, 0.9),
        ("walker2d", "medium", 0.5, 0.9),
        ("walker2d", "medium-replay", 0.5, 0.9),
        ("walker2d", "medium-expert", 0.5, 0.9),
        (None, None, 0.5, 0.9),
    ],
)
def test_presets(task: str | None, kind: str | None, kappa: float, tau_max: float) -> None:
    preset = UNIQ.preset("paper", task, kind)
    assert (preset.kappa, preset.tau_max) == (kappa, tau_max)


def test_no_other_preset() -> None:
    with pytest.raises(UniqError, match="paper"):
        UNIQ.preset("best", "hopper", "medium")


def test_defaults_are_the_papers() -> None:
    uniq = UNIQ()
    assert (uniq.n_members, uniq.tau_min, uniq.beta_tau, uniq.beta_pi, uniq.delta) == (3, 0.5, 5.0, 3.0, 0.1)
    assert (uniq.calibration_fraction, uniq.recalibrate_every, uniq.learning_rate, uniq.batch_size) == (
        0.2,
        5000,
        3e-4,
        256,
    )
    assert (uniq.ema, uniq.gamma, uniq.hidden, uniq.heldout_fraction) == (0.005, 0.99, (256, 256), 0.05)
    assert {name: getattr(uniq, name) for name in OPTIONS} == {name: values[0] for name, values in OPTIONS.items()}


@pytest.mark.parametrize(
    "wrong",
    [
        {"n_members": 0},
        {"kappa": -0.1},
        {"tau_min": 0.8, "tau_max": 0.7},
        {"tau_max": 1.5},
        {"tau_min": float("nan")},
        {"recalibrate_every": 0},
        {"calibration_fraction": 1.0},
        {"batch_size": 0},
        {"hidden": (16, 0)},
        {"critics": 0},
        {"gamma": 1.01},
        {"ema": -0.1},
        {"learning_rate": -1e-3},
    ],
    ids=lambda wrong: "-".join(wrong),
)
def test_impossible_numbers_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UniqError, match=list(wrong)[-1] if "hidden" not in wrong else "hidden"):
        UNIQ(**wrong)


def test_impossible_numbers_of_numpy_are_refused_too() -> None:
    with pytest.raises(UniqError, match="kappa"):
        UNIQ(kappa=np.float32(-0.1))


@pytest.mark.parametrize(
    "wrong", [{"reading": "both"}, {"target": "vq"}, {"ensemble": "low-rank"}, {"calibrate": "no"}]
)
def test_unknown_options_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UniqError, match=next(iter(wrong))):
        UNIQ(**wrong)


def test_uncertainty_by_level() -> None:
    """The heads of a level lie side by side: sigma reads the middle three, Delta the outer ones."""
    algorithm = UNIQ(hidden=(6,))
    state = drawn(lambda: algorithm.init(jax.random.key(0), SPEC), seed=8)._replace(q_hat=jnp.asarray(0.4))
    obs = random_batch(0, 5).obs.astype(jnp.float32)
    heads = np.asarray(state.ensemble.net(obs), np.float64)
    uncertainty = algorithm.uncertainty(state, obs)
    sigma = heads[3:6].std(axis=0)
    np.testing.assert_allclose(uncertainty.sigma, sigma, rtol=1e-5)
    np.testing.assert_allclose(uncertainty.delta, heads[6:].mean(axis=0) - heads[:3].mean(axis=0), rtol=1e-4)
    np.testing.assert_allclose(uncertainty.u, sigma / 0.4, rtol=1e-5)
    np.testing.assert_allclose(uncertainty.tau, 0.5 + 0.4 / (1 + np.exp(5 * (sigma / 0.4 - 1))), rtol=1e-5)
