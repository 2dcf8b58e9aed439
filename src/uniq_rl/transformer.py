"""A causal transformer in the manner of GPT-2: what becomes of a token depends on it and on those before it.

Sequences are batches `[B, tokens, dim]`. Dropout is on where a key is given and off where it is None.
"""

import math
from collections.abc import Callable
from typing import Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from uniq_rl.networks import Dense, LayerNorm, affine

INITIAL_STD = 0.02
"""Of weights and embeddings, as in GPT-2."""


def initial(key: Array, *shape: int) -> Array:
    return INITIAL_STD * jax.random.normal(key, shape)


def dense(key: Array, fan_in: int, fan_out: int) -> Dense:
    return Dense(initial(key, fan_in, fan_out), jnp.zeros(fan_out))


def each_token(layer: Callable[[Array], Array], x: Array) -> Array:
    """A layer that maps a batch of vectors, for sequences of them: one product for all tokens."""
    flat = layer(x.reshape(math.prod(x.shape[:-1]), x.shape[-1]))
    return flat.reshape(*x.shape[:-1], flat.shape[-1])


def dropped(x: Array, rate: Array | float, key: Array | None) -> Array:
    """Entries become zero with probability `rate`, the others grow so that the mean stays."""
    if key is None:
        return x
    return jnp.where(jax.random.bernoulli(key, 1 - rate, x.shape), x / (1 - rate), 0)


def keys_of(key: Array | None, count: int) -> list[Array | None]:
    return [None] * count if key is None else list(jax.random.split(key, count))


@jax.custom_vjp
def embedded(table: Array, index: Array) -> Array:
    """The rows of `table` at `index`.

    The gradient is a product with ones and zeros: on a GPU the sum of `jax.grad` depends on which row comes first, and
    no two runs would end with the same bits.
    """
    return table[index]


def _embedded_backward(saved: tuple[Array, Array], ct: Array) -> tuple[Array, None]:
    table, index = saved
    chosen = jax.nn.one_hot(index.reshape(-1), len(table), dtype=ct.dtype)
    return chosen.T @ ct.reshape(len(chosen), ct.shape[-1]), None


embedded.defvjp(lambda table, index: (table[index], (table, index)), _embedded_backward)


class Attention(eqx.Module):
    """Each token gathers from itself and the tokens before it, in several `heads` of equal width."""

    query: Dense
    key: Array
    """Without a bias: it would add the same to all scores of a query, and the softmax would not see it."""
    value: Dense
    out: Dense
    heads: int = eqx.field(static=True)

    @classmethod
    def init(cls, key: Array, dim: int, heads: int) -> Self:
        query_key, key_key, value_key, out_key = jax.random.split(key, 4)
        query, value, out = (dense(k, dim, dim) for k in (query_key, value_key, out_key))
        return cls(query, initial(key_key, dim, dim), value, out, heads)

    def __call__(self, x: Array, rate: Array | float, key: Array | None) -> Array:
        batch, tokens, dim = x.shape
        shape = (batch, tokens, self.heads, dim // self.heads)
        unbiased = lambda flat: affine(flat, self.key, jnp.zeros_like(self.query.bias))  # noqa: E731
        query, key_, value = (each_token(part, x).reshape(shape) for part in (self.query, unbiased, self.value))
        scores = jnp.einsum("bqhd,bkhd->bhqk", query, key_) / shape[-1] ** 0.5
        past = jnp.tril(jnp.ones((tokens, tokens), bool))
        weights = jax.nn.softmax(jnp.where(past[None, None], scores, -jnp.inf), axis=-1)
        gathered = jnp.einsum("bhqk,bkhd->bqhd", dropped(weights, rate, key), value)
        return each_token(self.out, gathered.reshape(batch, tokens, dim))


class Block(eqx.Module):
    """Attention, then a network of four times the width for each token; both add to what comes in."""

    attention_norm: LayerNorm
    attention: Attention
    widening_norm: LayerNorm
    widening: Dense
    narrowing: Dense

    @classmethod
    def init(cls, key: Array, dim: int, heads: int) -> Self:
        attention_key, widening_key, narrowing_key = jax.random.split(key, 3)
        return cls(
            LayerNorm.init(dim),
            Attention.init(attention_key, dim, heads),
            LayerNorm.init(dim),
            dense(widening_key, dim, 4 * dim),
            dense(narrowing_key, 4 * dim, dim),
        )

    def __call__(self, x: Array, rate: Array | float, key: Array | None) -> Array:
        weights_key, attention_key, wide_key = keys_of(key, 3)
        x = x + dropped(self.attention(each_token(self.attention_norm, x), rate, weights_key), rate, attention_key)
        wide = jax.nn.gelu(each_token(self.widening, each_token(self.widening_norm, x)))
        return x + dropped(each_token(self.narrowing, wide), rate, wide_key)


class Transformer(eqx.Module):
    """Normalised tokens through several blocks, and normalised again."""

    first_norm: LayerNorm
    blocks: tuple[Block, ...]
    last_norm: LayerNorm

    @classmethod
    def init(cls, key: Array, blocks: int, dim: int, heads: int) -> Self:
        stack = tuple(Block.init(block_key, dim, heads) for block_key in jax.random.split(key, blocks))
        return cls(LayerNorm.init(dim), stack, LayerNorm.init(dim))

    def __call__(self, tokens: Array, rate: Array | float = 0.0, key: Array | None = None) -> Array:
        first_key, *block_keys = keys_of(key, 1 + len(self.blocks))
        x = dropped(each_token(self.first_norm, tokens), rate, first_key)
        for block, block_key in zip(self.blocks, block_keys, strict=True):
            x = block(x, rate, block_key)
        return each_token(self.last_norm, x)
