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

LOG_STD = (-5.0, 2.0)
"""Where policies keep the logarithm of their standard deviation."""

INSIDE = 1 - 1e-6
"""Logged actions are read as at most this far from 0: `atanh(1)` is infinite, and 1 is often logged where an action was
clipped. `atanh` of this is 7.25, and float32, whose steps below 1 are 6e-8, still tells it to 0.015."""


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


@jax.custom_vjp
def learning_in(weight: Array, where: Array) -> Array:
    """The weight itself; its gradient is zero outside `where`, so that what begins as zero there remains zero."""
    return weight


learning_in.defvjp(lambda weight, where: (weight, where), lambda where, ct: (jnp.where(where, ct, 0), None))


class Dense(eqx.Module):
    weight: Array
    bias: Array

    @classmethod
    def init(cls, key: Array, fan_in: int, fan_out: int) -> Self:
        return cls(orthogonal(key, fan_in, fan_out), jnp.zeros(fan_out))

    @classmethod
    def uniform(cls, key: Array, fan_in: int, fan_out: int, bound: float, bias: float | None = None) -> Self:
        """Weights within `bound` of zero, and biases too unless they are given."""
        weight_key, bias_key = jax.random.split(key)
        biases = jax.random.uniform(bias_key, (fan_out,), minval=-bound, maxval=bound)
        return cls(
            jax.random.uniform(weight_key, (fan_in, fan_out), minval=-bound, maxval=bound),
            biases if bias is None else jnp.full_like(biases, bias),  # a weak type would compile training twice
        )

    def __call__(self, x: Array) -> Array:
        return affine(x, self.weight, self.bias)


class LayerNorm(eqx.Module):
    """Every row to mean 0 and variance 1 over its units; then a learned scale and offset of each unit."""

    scale: Array
    offset: Array

    @classmethod
    def init(cls, width: int) -> Self:
        return cls(jnp.ones(width), jnp.zeros(width))

    def __call__(self, x: Array) -> Array:
        centred = x - jnp.mean(x, axis=-1, keepdims=True)
        variance = jnp.mean(jnp.square(centred), axis=-1, keepdims=True)
        standardised = centred * jax.lax.rsqrt(variance + 1e-6)
        return standardised * self.scale[..., None, :] + self.offset[..., None, :]


class MLP(eqx.Module):
    """ReLU between the layers, none after the last. With stacked layers it maps a stack of batches."""

    layers: tuple[Dense, ...]
    norms: tuple[LayerNorm, ...] = ()
    """One after every ReLU, or none at all."""

    @classmethod
    def init(cls, key: Array, widths: Sequence[int], last: float | None = None, layer_norm: bool = False) -> Self:
        """Orthogonal throughout, as IQL begins; or, given the bound of its `last` layer, as SAC-N and ReBRAC begin."""
        shapes = list(zip(jax.random.split(key, len(widths) - 1), widths[:-1], widths[1:], strict=True))
        norms = tuple(LayerNorm.init(width) for width in widths[1:-1]) if layer_norm else ()
        if last is None:
            return cls(tuple(Dense.init(*shape) for shape in shapes), norms)
        hidden = [Dense.uniform(*shape, bound=shape[1] ** -0.5, bias=0.1) for shape in shapes[:-1]]
        return cls((*hidden, Dense.uniform(*shapes[-1], bound=last)), norms)

    def __call__(self, x: Array) -> Array:
        for i, layer in enumerate(self.layers[:-1]):
            x = jax.nn.relu(layer(x))
            if self.norms:
                x = self.norms[i](x)
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
    def init(
        cls,
        key: Array,
        count: int,
        inputs: int,
        hidden: Sequence[int],
        last: float | None = None,
        layer_norm: bool = False,
    ) -> Self:
        widths = (inputs, *hidden, 1)
        return cls(jax.vmap(lambda member: MLP.init(member, widths, last, layer_norm))(jax.random.split(key, count)))

    def __call__(self, x: Array) -> Array:
        # A copy of the small input for every member keeps the members' axis in front through all layers.
        return self.each(jnp.broadcast_to(x[None], (len(self.stacked.layers[0].bias), *x.shape)))

    def each(self, x: Array) -> Array:
        """Every member's value of an input of its own, `[members, B, in]` to `[members, B]`."""
        return self.stacked(x)[..., 0]

    def members(self, start: int, stop: int) -> "IndependentEnsemble":
        return IndependentEnsemble(jax.tree.map(lambda leaf: leaf[start:stop], self.stacked))


class LowRankEnsemble(eqx.Module):
    """Heads of low rank on shared features: each member has `rank` units of the last hidden layer, all else is common.

    The last hidden layers of all members are one layer, `rank` units after `rank` units, and the readout is zero but
    where a member reads its own: so members cost a few units instead of a network each, and still see different
    features of an input, which is what lets them disagree.
    """

    hidden: tuple[Dense, ...]
    readout: Dense
    """Weights `[units, members]`."""
    rank: int = eqx.field(static=True)

    @classmethod
    def init(cls, key: Array, count: int, inputs: int, hidden: Sequence[int], rank: int) -> Self:
        shared_key, own_key, readout_key = jax.random.split(key, 3)
        widths = (inputs, *hidden[:-1])
        shared = MLP.init(shared_key, widths).layers if len(widths) > 1 else ()
        own = jax.vmap(lambda k: orthogonal(k, widths[-1], rank))(jax.random.split(own_key, count))
        columns = jax.vmap(lambda k: orthogonal(k, rank, 1)[:, 0])(jax.random.split(readout_key, count))
        return cls(
            hidden=(*shared, Dense(own.swapaxes(0, 1).reshape(widths[-1], -1), jnp.zeros(count * rank))),
            readout=Dense(jax.vmap(jnp.diag, out_axes=1)(columns.T).reshape(-1, count), jnp.zeros(count)),
            rank=rank,
        )

    def reads(self) -> np.ndarray:
        """Which units a member reads, `[unit, member]`."""
        units, members = self.readout.weight.shape
        return np.arange(units)[:, None] // self.rank == np.arange(members)[None]

    def __call__(self, x: Array) -> Array:
        for layer in self.hidden:
            x = jax.nn.relu(layer(x))
        return affine(x, learning_in(self.readout.weight, jnp.asarray(self.reads())), self.readout.bias).T

    def members(self, start: int, stop: int) -> "LowRankEnsemble":
        *shared, own = self.hidden
        units = slice(self.rank * start, self.rank * stop)
        own = Dense(own.weight[:, units], own.bias[units])
        readout = Dense(self.readout.weight[units, start:stop], self.readout.bias[start:stop])
        return LowRankEnsemble((*shared, own), readout, self.rank)


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
    def init(cls, key: Array, obs_dim: int, action_dim: int, hidden: Sequence[int], last: float | None = None) -> Self:
        return cls(MLP.init(key, (obs_dim, *hidden, action_dim), last))

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
        log_std = jnp.clip(self.log_std, *LOG_STD)[None]
        standardised = (action - self.mode(obs)) * jnp.exp(-log_std)
        return jnp.sum(-0.5 * jnp.square(standardised) - log_std - 0.5 * jnp.log(2 * jnp.pi), axis=-1)


def tanh_gaussian_log_prob(unsquashed: Array, noise: Array, log_std: Array) -> Array:
    """Log-density of `tanh(unsquashed)` in each dimension, where `unsquashed = mean + exp(log_std) noise`.

    The tanh costs `log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2u))`, which stays exact where tanh rounds to 1.
    """
    gaussian = -0.5 * jnp.square(noise) - log_std - 0.5 * jnp.log(2 * jnp.pi)
    return gaussian - 2 * (jnp.log(2) - unsquashed - jax.nn.softplus(-2 * unsquashed))


class TanhGaussianPolicy(eqx.Module):
    """SAC's policy: the tanh of a Gaussian, whose mean and log-std one network gives for every state."""

    net: MLP
    log_std: tuple[float, float] = eqx.field(static=True, default=LOG_STD)
    """Lowest and highest."""

    @classmethod
    def init(
        cls,
        key: Array,
        obs_dim: int,
        action_dim: int,
        hidden: Sequence[int],
        last: float | None = None,
        log_std: tuple[float, float] = LOG_STD,
    ) -> Self:
        return cls(MLP.init(key, (obs_dim, *hidden, 2 * action_dim), last), log_std)

    def __call__(self, obs: Array) -> tuple[Array, Array]:
        """Mean and log-std before the tanh."""
        mean, log_std = jnp.split(self.net(obs), 2, axis=-1)
        return mean, jnp.clip(log_std, *self.log_std)

    def mode(self, obs: Array) -> Array:
        return jnp.tanh(self(obs)[0])

    def sample(self, obs: Array, key: Array) -> tuple[Array, Array]:
        """An action for every state and its log-density; the gradient reaches the network through both."""
        action, log_prob = self.samples(obs, key, 1)
        return action[0], log_prob[0]

    def samples(self, obs: Array, key: Array, count: int) -> tuple[Array, Array]:
        """`count` actions for every state `[count, B, action]`, and their log-densities `[count, B]`."""
        mean, log_std = (part[None] for part in self(obs))
        noise = jax.random.normal(key, (count, *mean.shape[1:]), mean.dtype)
        unsquashed = mean + jnp.exp(log_std) * noise
        return jnp.tanh(unsquashed), jnp.sum(tanh_gaussian_log_prob(unsquashed, noise, log_std), axis=-1)

    def log_prob(self, obs: Array, action: Array) -> Array:
        """Log-density of given actions, read as at most `INSIDE`."""
        mean, log_std = self(obs)
        unsquashed = jnp.arctanh(jnp.clip(action, -INSIDE, INSIDE))
        noise = (unsquashed - mean) * jnp.exp(-log_std)
        return jnp.sum(tanh_gaussian_log_prob(unsquashed, noise, log_std), axis=-1)


def count_parameters(tree: Any) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(tree))
