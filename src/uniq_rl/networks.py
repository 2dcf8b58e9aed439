"""Networks as pytrees of arrays. Every network maps a batch `[B, in]`; ensembles return `[members, B]`.

Members of an ensemble are stacked, so that a layer of all members is one batched product.
"""

from collections.abc import Sequence
from typing import Any, Literal, Protocol, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
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


@jax.custom_vjp
def affine(x: Array, weight: Array, bias: Array) -> Array:
    """`x W + b` for a batch, or for stacks of them along the leading axes.

    The gradient is written out so that the weight's arrives in the weight's own layout: the transposed one of
    `jax.grad` spreads over the optimiser's moments and costs a fifth of an update on a GPU (docs/performance.md).
    """
    return jnp.matmul(x, weight) + bias[..., None, :]


def _affine_forward(x: Array, weight: Array, bias: Array) -> tuple[Array, tuple[Array, Array]]:
    return affine(x, weight, bias), (x, weight)


def _affine_backward(saved: tuple[Array, Array], ct: Array) -> tuple[Array, Array, Array]:
    x, weight = saved
    stack = tuple(range(x.ndim - 2))
    rows, columns = x.ndim - 2, x.ndim - 1
    to_input = jax.lax.dot_general(ct, weight, (((columns,), (columns,)), (stack, stack)))
    to_weight = jax.lax.dot_general(x, ct, (((rows,), (rows,)), (stack, stack)))
    return to_input, to_weight, jnp.sum(ct, axis=rows)


affine.defvjp(_affine_forward, _affine_backward)


class Dense(eqx.Module):
    weight: Array
    bias: Array

    @classmethod
    def init(cls, key: Array, fan_in: int, fan_out: int) -> Self:
        return cls(orthogonal(key, fan_in, fan_out), jnp.zeros(fan_out))

    def __call__(self, x: Array) -> Array:
        return affine(x, self.weight, self.bias)


class MLP(eqx.Module):
    """ReLU between the layers, none after the last. With stacked layers it maps a stack of batches."""

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
        # A copy of the small input for every member keeps the members' axis in front through all layers.
        count = len(self.stacked.layers[0].bias)
        return self.stacked(jnp.broadcast_to(x[None], (count, *x.shape)))[..., 0]

    def members(self, start: int, stop: int) -> "IndependentEnsemble":
        return IndependentEnsemble(jax.tree.map(lambda leaf: leaf[start:stop], self.stacked))


class LowRankEnsemble(eqx.Module):
    """One network with an output per member, whose last hidden layer has `rank` more units for each of them.

    Every member reads the units that all share with weights of its own, and besides them only its own `rank` units:
    its private part of the last layer is a matrix of that rank. So members cost a few units instead of a network
    each, and still differ in what they see of an input, which is what lets them disagree.
    """

    hidden: tuple[Dense, ...]
    readout: Dense
    shared: int = eqx.field(static=True)
    """How many units of the last hidden layer all members read; the private ones follow, member by member."""
    rank: int = eqx.field(static=True)
    first: int = eqx.field(static=True, default=0)
    """Which member the first column of `readout` belongs to."""

    @classmethod
    def init(cls, key: Array, count: int, inputs: int, hidden: Sequence[int], rank: int) -> Self:
        *widths, last = (inputs, *hidden)
        trunk_key, shared_key, own_key, readout_key = jax.random.split(key, 4)
        trunk = MLP.init(trunk_key, widths).layers if len(widths) > 1 else ()
        shared, own = orthogonal(shared_key, widths[-1], last), orthogonal(own_key, widths[-1], count * rank)
        weight = jnp.concatenate([shared, own], axis=1)
        readout = jax.vmap(lambda k: orthogonal(k, last + rank, 1)[:, 0])(jax.random.split(readout_key, count)).T
        mine = jnp.tile(readout[last:], (count, 1))
        return cls(
            hidden=(*trunk, Dense(weight, jnp.zeros(weight.shape[1]))),
            readout=Dense(jnp.concatenate([readout[:last], mine]), jnp.zeros(count)),
            shared=last,
            rank=rank,
        )

    def __call__(self, x: Array) -> Array:
        for layer in self.hidden:
            x = jax.nn.relu(layer(x))
        return affine(x, jnp.where(self.reads(), self.readout.weight, 0), self.readout.bias).T

    def reads(self) -> np.ndarray:
        """Which units a member reads, `[unit, member]`."""
        units, members = self.readout.weight.shape
        owner = (np.arange(units)[:, None] - self.shared) // self.rank
        return (owner < 0) | (owner == self.first + np.arange(members)[None])

    def members(self, start: int, stop: int) -> "LowRankEnsemble":
        readout = Dense(self.readout.weight[:, start:stop], self.readout.bias[start:stop])
        return LowRankEnsemble(self.hidden, readout, self.shared, self.rank, self.first + start)


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
