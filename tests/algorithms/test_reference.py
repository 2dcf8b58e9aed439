"""The library's updates against the same updates in plain NumPy, in double precision."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import Adam, DelayedReference, Reference, actor_of, networks_of

from probes import drawn
from uniq_rl.algorithms import IQL, TD3BC, UNIQ, Algorithm, Batch, ReBRAC, Spec
from uniq_rl.algorithms.base import Learner

pytestmark = pytest.mark.usefixtures("x64")

SPEC = Spec(3, 2)
UPDATES = 3
SMALL = {"hidden": (7, 5), "learning_rate": 0.01, "ema": 0.1, "gamma": 0.9, "decay_steps": 5.0}
# Advantages of these random networks are about 1: a cap of 5 binds for some rows and not for others.
SMALL |= {"beta_pi": 2.0, "weight_cap": 5.0}

update = jax.jit(lambda algorithm, state, batch: algorithm.update(state, batch, jax.random.key(0)))


def random_state(algorithm: Algorithm, seed: int) -> Any:
    """Random networks, targets that differ from what they follow, untouched moments."""
    state = drawn(lambda: algorithm.init(jax.random.key(0), SPEC), seed)
    return jax.tree.map(
        lambda part: Learner.of(part.net) if isinstance(part, Learner) else part,
        state,
        is_leaf=lambda part: isinstance(part, Learner),
    )


def random_batch(seed: int, rows: int = 16) -> Batch:
    rng = np.random.default_rng(seed)
    return Batch(
        obs=jnp.asarray(rng.normal(size=(rows, SPEC.obs_dim))),
        action=jnp.asarray(rng.uniform(-1, 1, (rows, SPEC.action_dim))),
        reward=jnp.asarray(rng.normal(size=rows)),
        next_obs=jnp.asarray(rng.normal(size=(rows, SPEC.obs_dim))),
        mask=jnp.asarray(rng.choice([0.0, 1.0], rows)),
    )


def as_numpy(batch: Batch) -> Batch:
    return jax.tree.map(np.asarray, batch)


def same(parameters: list[list[np.ndarray]], learners: list[Any]) -> None:
    """Networks of the library and of the reference, equal up to the order of summation."""
    assert len(parameters) == len(learners)
    for ours, theirs in zip(parameters, learners, strict=True):
        theirs = theirs.parameters if isinstance(theirs, Adam) else theirs
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


def agree(metrics: dict[str, Any], expected: dict[str, float]) -> None:
    assert set(metrics) >= set(expected)
    for name, number in expected.items():
        assert float(metrics[name]) == pytest.approx(number, rel=1e-6), name


def moved(before: Any, after: Any) -> bool:
    """Whether a network left its place by far more than the tolerance of the comparison."""
    pairs = zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True)
    return any(float(jnp.abs(a - b).max()) > 1e-3 for a, b in pairs)


def test_iql() -> None:
    algorithm = IQL(**SMALL)
    begin = state = random_state(algorithm, seed=1)
    reference = Reference(
        algorithm,
        heads=[Adam(networks_of(state.value.net)[0])],
        primary=None,
        critics=[Adam(net) for net in networks_of(state.critic.net)],
        target=networks_of(state.target_critic),
        actor=Adam(actor_of(state.actor.net)),
    )
    for i in range(UPDATES):
        batch = random_batch(i)
        state, metrics = update(algorithm, state, batch)
        agree(metrics, reference.update_iql(as_numpy(batch)))
    same(networks_of(state.value.net), reference.heads)
    same(networks_of(state.critic.net), reference.critics)
    same(networks_of(state.target_critic), reference.target)
    same([actor_of(state.actor.net)], [reference.actor])
    assert int(state.step) == UPDATES
    for part in ("value", "critic", "actor"):
        assert moved(getattr(begin, part).net, getattr(state, part).net), part
    assert moved(begin.target_critic, state.target_critic)


DELAYED: dict[str, Any] = {"hidden": (7, 5), "learning_rate": 0.01, "ema": 0.1, "gamma": 0.9, "policy_noise": 0.4}
steps = [jax.jit(lambda algorithm, *args, i=i: algorithm.cycle()[i](*args)) for i in range(2)]


@pytest.mark.parametrize(
    "algorithm",
    [TD3BC(**DELAYED), ReBRAC(**DELAYED, layer_norm=False, beta1=0.3, beta2=0.7)],
    ids=lambda algorithm: algorithm.name,
)
def test_delayed_actor(algorithm: TD3BC | ReBRAC) -> None:
    """Two whole cycles: critics alone, then everything, twice over."""
    begin = state = random_state(algorithm, seed=3)
    reference = DelayedReference(
        algorithm,
        actor=Adam(actor_of(state.actor.net)),
        critics=[Adam(net) for net in networks_of(state.critic.net)],
        target_actor=actor_of(state.target_actor),
        target_critics=networks_of(state.target_critic),
    )
    for i in range(4):
        batch, key = random_batch(i), jax.random.key(i)
        next_action = np.random.default_rng(i).uniform(-1, 1, batch.action.shape)
        next_action[:3] = np.nan
        batch = batch._replace(next_action=jnp.asarray(next_action))
        noise = np.asarray(jax.random.normal(key, batch.action.shape))
        assert (np.abs(algorithm.policy_noise * noise) > algorithm.noise_clip).any(), "some noise is clipped"
        state, metrics = steps[i % 2](algorithm, state, batch, key)
        agree(metrics, (reference.update if i % 2 else reference.update_critics)(as_numpy(batch), noise))
        same(networks_of(state.critic.net), reference.critics)
        same([actor_of(state.actor.net)], [reference.actor])
        same([actor_of(state.target_actor)], [reference.target_actor])
        same(networks_of(state.target_critic), reference.target_critics)
    for name, before, after in zip(begin._fields, begin, state, strict=True):
        assert moved(before, after), name


VARIANTS = [
    {},
    {"reading": "primary", "target": "v", "critics": 1, "tau_max": 0.95, "hidden": (6,)},
    {"target": "v", "calibrate": "none", "n_members": 2, "hidden": (6,)},
    {"reading": "primary", "calibrate": "disagreement", "hidden": (6,)},
]


@pytest.mark.parametrize("options", VARIANTS, ids=["default", "primary-v", "v-none", "primary-disagreement"])
def test_uniq(options: dict[str, Any]) -> None:
    algorithm = UNIQ(**(SMALL | {"kappa": 0.7} | options))
    begin = state = random_state(algorithm, seed=2)._replace(q_hat=jnp.asarray(0.8))
    reference = Reference(
        algorithm,
        heads=[Adam(net) for net in networks_of(state.ensemble.net)],
        primary=None if state.primary is None else Adam(networks_of(state.primary.net)[0]),
        critics=[Adam(net) for net in networks_of(state.critic.net)],
        target=networks_of(state.target),
        actor=Adam(actor_of(state.actor.net)),
        q_hat=0.8,
    )
    assert (reference.primary is not None) == (algorithm.reading == "primary")
    assert len(reference.heads) == 3 * algorithm.n_members
    for i in range(UPDATES):
        batch = random_batch(10 + i)
        state, metrics = update(algorithm, state, batch)
        agree(metrics, reference.update_uniq(as_numpy(batch)))
        # The controller is at work: neither at its upper nor at its lower end.
        assert 0.52 < float(metrics["tau"]) < algorithm.tau_max - 0.02
    same(networks_of(state.ensemble.net), reference.heads)
    same(networks_of(state.critic.net), reference.critics)
    same(networks_of(state.target), reference.target)
    same([actor_of(state.actor.net)], [reference.actor])
    if reference.primary is not None:
        same(networks_of(state.primary.net), [reference.primary])
    assert float(state.q_hat) == 0.8
    for part in ("ensemble", "critic", "actor"):
        assert moved(getattr(begin, part).net, getattr(state, part).net), part
    assert moved(begin.target, state.target)

    batch = random_batch(99)
    np.testing.assert_allclose(algorithm.nonconformity(state, batch), reference.scores(as_numpy(batch)), rtol=1e-9)
