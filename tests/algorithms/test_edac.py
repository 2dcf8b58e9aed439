"""EDAC's diversity term against all pairs one by one, and its settings. Its values: test_soft_probes."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import networks_of, value
from test_sac_n import KINDS, SMALL, SPEC, random_batch, random_state, update

from uniq_rl.algorithms import EDAC, SACN
from uniq_rl.algorithms.edac import gradient_similarity, values_and_slopes
from uniq_rl.errors import UniqError
from uniq_rl.networks import IndependentEnsemble


def pair_by_pair(net: IndependentEnsemble, obs: jax.Array, action: jax.Array) -> jax.Array:
    """The paper's double sum: every critic's gradient by itself, every ordered pair's cosine by itself."""
    count = len(net.stacked.layers[0].bias)

    def direction(k: int, s: jax.Array, a: jax.Array) -> jax.Array:
        member = jax.tree.map(lambda leaf: leaf[k], net.stacked)
        slope = jax.grad(lambda a: member(jnp.concatenate([s, a])[None])[0, 0])(a)
        return slope / (jnp.sqrt(jnp.sum(slope**2)) + 1e-10)

    total = jnp.zeros(())
    for s, a in zip(obs, action, strict=True):
        units = [direction(k, s, a) for k in range(count)]
        total += sum((units[i] @ units[j] for i in range(count) for j in range(count) if i != j), jnp.zeros(()))
    return total / len(obs) / (count - 1)


def together(net: IndependentEnsemble, obs: jax.Array, action: jax.Array) -> jax.Array:
    return gradient_similarity(values_and_slopes(net, obs, action, len(net.stacked.layers[0].bias))[1])


@pytest.mark.usefixtures("x64")
def test_diversity_and_its_gradient_are_those_of_all_pairs() -> None:
    net, batch = random_state(EDAC(**SMALL, critics=4)).critic.net, random_batch(rows=3)
    (ours, our_slope), (theirs, their_slope) = (
        jax.jit(jax.value_and_grad(loss))(net, batch.obs, batch.action) for loss in (together, pair_by_pair)
    )
    assert float(ours) == pytest.approx(float(theirs), rel=1e-8)
    for our, their in zip(jax.tree.leaves(our_slope), jax.tree.leaves(their_slope), strict=True):
        np.testing.assert_allclose(our, their, rtol=1e-6, atol=1e-8)
    assert max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(our_slope)) > 0.1


def test_similarity_by_hand() -> None:
    """Gradients (3, 4) and (-8, 6) are at right angles, (0, 2) meets them at cosines 0.8 and 0.6."""
    slopes = jnp.array([[[3.0, 4.0]], [[-8.0, 6.0]], [[0.0, 2.0]]])
    assert float(gradient_similarity(slopes)) == pytest.approx(2 * (0 + 0.8 + 0.6) / 2, abs=1e-6)


def test_one_critic_has_nobody_to_differ_from() -> None:
    similarity, slope = jax.value_and_grad(gradient_similarity)(jnp.array([[[3.0, 4.0], [0.0, 0.0]]]))
    assert float(similarity) == 0
    np.testing.assert_array_equal(slope, np.zeros((1, 2, 2)))


def test_a_critic_without_slope_spoils_nothing() -> None:
    """A flat critic has no direction: no share in the sum, and nothing to learn. A huge derivative there, by one row
    in one update, would stay in Adam's second moments for 100,000 updates and hold the weights where they are."""
    slopes = jnp.array([[[0.0, 0.0]], [[1.0, 0.0]], [[0.0, 1.0]], [[0.0, 1e-11]]])
    similarity, slope = jax.value_and_grad(gradient_similarity)(slopes)
    assert float(similarity) == pytest.approx(0, abs=1e-6)
    np.testing.assert_array_equal(slope[jnp.array([0, 3])], np.zeros((2, 1, 2)))
    assert np.abs(slope).max() < 1


def test_in_one_dimension_nothing_turns() -> None:
    """Directions are 1 or -1 there, so the derivative is exactly zero, also of short gradients."""
    slopes = jnp.asarray(np.random.default_rng(0).normal(size=(5, 64, 1)) * np.logspace(0, -4, 64)[None, :, None])
    slope = jax.grad(gradient_similarity)(slopes.astype(jnp.float32))
    np.testing.assert_array_equal(slope, np.zeros((5, 64, 1)))


@pytest.mark.usefixtures("x64")
def test_one_update_is_sac_ns_but_for_the_critics() -> None:
    begin, batch = random_state(EDAC(**SMALL, critics=3)), random_batch()
    (theirs, _), (same, _), (ours, metrics) = (
        update(method, begin, batch)
        for method in (SACN(**SMALL, critics=3), EDAC(**SMALL, critics=3, eta=0.0), EDAC(**SMALL, critics=3, eta=2.0))
    )
    for a, b in zip(jax.tree.leaves(theirs), jax.tree.leaves(same), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)
    for a, b in zip(jax.tree.leaves(theirs.actor), jax.tree.leaves(ours.actor), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)
    inputs = np.concatenate([batch.obs, batch.action], axis=1)
    q, _ = values_and_slopes(begin.critic.net, batch.obs, batch.action, 3)
    np.testing.assert_allclose(q, [value(net, inputs) for net in networks_of(begin.critic.net)], rtol=1e-12)
    # Adam's first moments are a tenth of the gradient: TD error's plus eta times the diversity's.
    diversity = jax.grad(together)(begin.critic.net, batch.obs, batch.action)
    for mixed, plain, term in zip(
        *map(jax.tree.leaves, (ours.critic.moments.mu, theirs.critic.moments.mu, diversity)), strict=True
    ):
        np.testing.assert_allclose(mixed, plain + 0.1 * 2.0 * term, rtol=1e-9, atol=1e-12)
    mean_cosine = float(together(begin.critic.net, batch.obs, batch.action)) / 3
    assert float(metrics["similarity"]) == pytest.approx(mean_cosine, rel=1e-9)
    assert abs(mean_cosine) <= 1


def test_critics_become_different() -> None:
    """200 updates on data with two dimensions of action: with eta their gradients agree far less."""
    batch = jax.tree.map(lambda column: column.astype(jnp.float32), random_batch(rows=64))
    train = jax.jit(
        lambda method: jax.lax.scan(
            lambda state, key: method.update(state, batch, key),
            method.init(jax.random.key(0), SPEC),
            jax.random.split(jax.random.key(1), 200),
        )[1]["similarity"][-20:].mean()
    )
    plain, diverse = (float(train(EDAC(hidden=(16,), learning_rate=3e-3, critics=4, eta=eta))) for eta in (0.0, 1.0))
    assert diverse < plain - 0.3


SETTINGS: dict[str, Any] = {
    "halfcheetah": ((10, 1), (10, 1), (10, 5)),
    "hopper": ((50, 1), (50, 1), (50, 1)),
    "walker2d": ((10, 1), (10, 1), (10, 5)),
}


@pytest.mark.parametrize("task", SETTINGS)
def test_preset(task: str) -> None:
    presets = [EDAC.preset("paper", task, kind) for kind in KINDS]
    assert tuple((preset.critics, preset.eta) for preset in presets) == SETTINGS[task]


def test_eta_is_not_negative() -> None:
    assert EDAC().eta == 1
    with pytest.raises(UniqError, match="eta"):
        EDAC(eta=-1.0)
