"""The transformer against a plain loop in NumPy, its causality, and dropout."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from probes import drawn
from uniq_rl.transformer import Transformer, dropped, embedded

TOKENS, DIM, HEADS = 5, 8, 2
RNG = np.random.default_rng(0)


@pytest.fixture(scope="module")
def net() -> Transformer:
    return drawn(lambda: Transformer.init(jax.random.key(0), 2, DIM, HEADS))


def normalised(norm: Any, x: np.ndarray) -> np.ndarray:
    return (x - x.mean()) / math.sqrt(x.var() + 1e-6) * np.asarray(norm.scale) + np.asarray(norm.offset)


def gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def linear(layer: Any, x: np.ndarray) -> np.ndarray:
    return x @ np.asarray(layer.weight) + np.asarray(layer.bias)


def by_hand(net: Transformer, tokens: np.ndarray) -> np.ndarray:
    """One sequence `[tokens, dim]`, one token and one head at a time."""
    x = np.stack([normalised(net.first_norm, token) for token in tokens])
    for block in net.blocks:
        y = np.stack([normalised(block.attention_norm, token) for token in x])
        query, key = linear(block.attention.query, y), y @ np.asarray(block.attention.key)
        value = linear(block.attention.value, y)
        gathered = np.zeros_like(y)
        for head in range(HEADS):
            own = np.s_[head * DIM // HEADS : (head + 1) * DIM // HEADS]
            for t in range(len(y)):
                weights = np.exp([query[t, own] @ key[s, own] / math.sqrt(DIM / HEADS) for s in range(t + 1)])
                gathered[t, own] = weights / weights.sum() @ value[: t + 1, own]
        x = x + linear(block.attention.out, gathered)
        wide = np.stack([normalised(block.widening_norm, token) for token in x])
        x = x + linear(block.narrowing, gelu(linear(block.widening, wide)))
    return np.stack([normalised(net.last_norm, token) for token in x])


def test_transformer_by_hand(net: Transformer) -> None:
    tokens = RNG.normal(size=(3, TOKENS, DIM)).astype(np.float32)
    ours = net(jnp.asarray(tokens))
    np.testing.assert_allclose(ours, np.stack([by_hand(net, sequence) for sequence in tokens]), atol=2e-5)


def test_no_token_sees_a_later_one(net: Transformer) -> None:
    tokens = RNG.normal(size=(1, TOKENS, DIM)).astype(np.float32)
    before = np.asarray(net(jnp.asarray(tokens)))
    for t in range(TOKENS):
        changed = tokens.copy()
        changed[0, t] += 1 + RNG.normal(size=DIM)
        after = np.asarray(net(jnp.asarray(changed)))
        np.testing.assert_array_equal(after[:, :t], before[:, :t])
        assert (np.abs(after - before)[0, t:].max(axis=-1) > 1e-4).all()


def test_dropout_leaves_out_its_share_and_keeps_the_mean() -> None:
    x = jnp.full((400, 50), 3.0)
    np.testing.assert_array_equal(dropped(x, 0.25, None), x)
    np.testing.assert_array_equal(dropped(x, 0.0, jax.random.key(0)), x)
    left = np.asarray(dropped(x, 0.25, jax.random.key(0)))
    np.testing.assert_allclose(np.unique(left), [0, 4])
    # 20,000 draws: a standard deviation of 0.003.
    assert np.mean(left == 0) == pytest.approx(0.25, abs=0.012)


def test_dropout_is_where_gpt_2_has_it(net: Transformer) -> None:
    tokens = jnp.asarray(RNG.normal(size=(2, TOKENS, DIM)).astype(np.float32))
    first, again, other = (net(tokens, 0.5, jax.random.key(seed)) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, other)
    np.testing.assert_allclose(net(tokens, 0.0, jax.random.key(0)), net(tokens), atol=1e-6)
    program = jax.make_jaxpr(lambda key: net(tokens, 0.5, key))(jax.random.key(0))
    shapes = [
        v.aval.shape
        for e in program.eqns
        for v in e.outvars
        if e.primitive.name in ("jit", "pjit") and "bernoulli" in str(e.params.get("name"))
    ]
    block = [(2, HEADS, TOKENS, TOKENS), (2, TOKENS, DIM), (2, TOKENS, DIM)]
    assert shapes == [(2, TOKENS, DIM), *block, *block]


def test_gradient_of_an_embedding() -> None:
    table, index = jnp.asarray(RNG.normal(size=(4, 3))), jnp.asarray([[0, 2, 2], [3, 0, 2]])
    weight = jnp.asarray(RNG.normal(size=(2, 3, 3)))
    np.testing.assert_array_equal(embedded(table, index), table[index])
    ours, plain = (
        jax.grad(lambda t, f=f: jnp.sum(weight * f(t)))(table)
        for f in (lambda t: embedded(t, index), lambda t: t[index])
    )
    np.testing.assert_allclose(ours, plain, atol=1e-6)
    np.testing.assert_array_equal(ours[1], np.zeros(3))
