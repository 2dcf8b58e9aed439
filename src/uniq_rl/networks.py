"""Networks as pytrees of arrays. Every network maps a batch `[B, in]`; ensembles return `[members, B]`.

Members of an ensemble are stacked, so that a layer of all members is one batched product.
"""

from collections.abc import Sequence
from typing import Any, Literal, Protocol, Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array


def orthogonal(key: Array, fan_in: int, fan_out: int) -> Array:
    """A matrix of orthonormal rows or columns, uniformly drawn, times sqrt(2) to make up for the ReLU's lost half.

    Gram-Schmidt, each column twice, instead of `jax.nn.initializers.orthogonal`: under `vmap` that calls LAPACK's QR in
    parallel from inside the CPU thread pool, which deadlocks on machines with few cores (jaxlib 0.10).
    """
    tall, narrow = max(fan_in, fan_out), min(fan_in, fan_out)
    columns = jax.random.normal(key, (narrow, tall))

    def orthonormalise(i: Array, basis: Array) -> Array:
        column = columns[i]
        for _ in range(2):
            column = column - (basis @ column) @ basis
        return basis.at[i].set(column / jnp.linalg.norm(column))

    basis = jax.lax.fori_loop(0, narrow, orthonormalise, jnp.zeros_like(columns))
    return 2**0.5 * (basis.T if fan_in > fan_out else basis).reshape(fan_in, fan_out)


class Dense(eqx.Module):
    weight: Array
    bias: Array

    @classmethod
    def init(cls, key: Array, fan_in: int, fan_out: int) -> Self:
        return cls(orthogonal(key, fan_in, fan_out), jnp.zeros(fan_out))

    def __call__(self, x: Array) -> Array:
        return x @ self.weight + self.bias[None]


class MLP(eqx.Module):
    """ReLU between the layers, none after the last."""

    layers: tuple[Dense, ...]

    @classmethod
    def init(cls, key: Array, widths: Sequence[int]) -> Self:
        keys = jax.random.split(key, len(widths) - 1)
        return cls(tuple(Dense.init(*args) for args in zip(keys, widths[:-1], widths[1:], strict=True)))

    def __call__(self, x: Array) -> Array:
        for layer in self.layers[:-1]:
            x = jax.nn.relu(layer(x))
        return self.layers[-1](x)


class Ensemble(Protocol):
    """Several scalar functions of the same input."""

    def __call__(self, x: Array) -> Array:
        """Values `[members, B]`."""
        ...

    def members(self, start: int, stop: int) -> "Ensemble":
        """The members `start` to `stop` alone, sharing what they share."""
        ...


class IndependentEnsemble(eqx.Module):
    """Members that share nothing but their shape; each has its own initialisation."""

    stacked: MLP

    @classmethod
    def init(cls, key: Array, count: int, inputs: int, hidden: Sequence[int]) -> Self:
        widths = (inputs, *hidden, 1)
        return cls(jax.vmap(lambda member: MLP.init(member, widths))(jax.random.split(key, count)))

    def __call__(self, x: Array) -> Array:
        return jax.vmap(lambda member: member(x)[:, 0])(self.stacked)

    def members(self, start: int, stop: int) -> "IndependentEnsemble":
        return IndependentEnsemble(jax.tree.map(lambda leaf: leaf[start:stop], self.stacked))


class LowRankEnsemble(eqx.Module):
    """A shared trunk; each member bends its last hidden layer by a low-rank matrix of its own.

    The last hidden layer of member k is `relu(h W + (h A_k) B_k + b_k)` with `A_k B_k` of the given rank, so a member
    costs `2 rank / width` of an independent one's product and keeps its own features, which is what can disagree.
    """

    trunk: tuple[Dense, ...]
    shared: Array
    down: Array
    up: Array
    bias: Array
    head: Array
    offset: Array

    @classmethod
    def init(cls, key: Array, count: int, inputs: int, hidden: Sequence[int], rank: int) -> Self:
        *widths, last = (inputs, *hidden)
        trunk_key, shared_key, down_key, up_key, head_key = jax.random.split(key, 5)
        trunk = MLP.init(trunk_key, widths).layers if len(widths) > 1 else ()
        scale = jax.nn.initializers.variance_scaling(1.0, "fan_in", "normal", batch_axis=(0,))
        return cls(
            trunk=trunk,
            shared=orthogonal(shared_key, widths[-1], last),
            down=scale(down_key, (count, widths[-1], rank)),
            up=scale(up_key, (count, rank, last)),
            bias=jnp.zeros((count, last)),
            head=jax.vmap(lambda k: orthogonal(k, last, 1)[:, 0])(jax.random.split(head_key, count)),
            offset=jnp.zeros(count),
        )

    def __call__(self, x: Array) -> Array:
        for layer in self.trunk:
            x = jax.nn.relu(layer(x))
        common = x @ self.shared

        def member(down: Array, up: Array, bias: Array, head: Array, offset: Array) -> Array:
            return jax.nn.relu(common + (x @ down) @ up + bias[None]) @ head + offset

        return jax.vmap(member)(self.down, self.up, self.bias, self.head, self.offset)

    def members(self, start: int, stop: int) -> "LowRankEnsemble":
        own = [leaf[start:stop] for leaf in (self.down, self.up, self.bias, self.head, self.offset)]
        return LowRankEnsemble(self.trunk, self.shared, *own)


EnsembleKind = Literal["independent", "low_rank"]


def value_ensemble(
    kind: EnsembleKind, key: Array, count: int, inputs: int, hidden: Sequence[int], rank: int
) -> IndependentEnsemble | LowRankEnsemble:
    if kind == "independent":
        return IndependentEnsemble.init(key, count, inputs, hidden)
    return LowRankEnsemble.init(key, count, inputs, hidden, rank)


class DeterministicPolicy(eqx.Module):
    """A tanh action."""

    mean: MLP

    @classmethod
    def init(cls, key: Array, obs_dim: int, action_dim: int, hidden: Sequence[int]) -> Self:
        return cls(MLP.init(key, (obs_dim, *hidden, action_dim)))

    def mode(self, obs: Array) -> Array:
        return jnp.tanh(self.mean(obs))


class GaussianPolicy(eqx.Module):
    """IQL's policy: tanh mean, state-independent log-std, a plain Gaussian around it (not squashed)."""

    mean: MLP
    log_std: Array

    @classmethod
    def init(cls, key: Array, obs_dim: int, action_dim: int, hidden: Sequence[int]) -> Self:
        return cls(MLP.init(key, (obs_dim, *hidden, action_dim)), jnp.zeros(action_dim))

    def mode(self, obs: Array) -> Array:
        return jnp.tanh(self.mean(obs))

    def log_prob(self, obs: Array, action: Array) -> Array:
        log_std = jnp.clip(self.log_std, -5.0, 2.0)[None]
        standardised = (action - self.mode(obs)) * jnp.exp(-log_std)
        return jnp.sum(-0.5 * jnp.square(standardised) - log_std - 0.5 * jnp.log(2 * jnp.pi), axis=-1)


def count_parameters(tree: Any) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(tree))
