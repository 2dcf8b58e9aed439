"""A minimal IQL in Flax and Optax, the way one writes it first: the yardstick of `benchmarks/cpu.py`.

Same arithmetic as `uniq_rl.IQL` (two hidden layers of 256, twin critics, targets, advantage-weighted regression), one
`TrainState` per network, updates in a `lax.scan`, batches drawn inside. Nothing else: no records, no calibration, no
check for divergence.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training.train_state import TrainState
from jax import Array

GAMMA, EXPECTILE, BETA, EMA, RATE, BATCH = 0.99, 0.7, 3.0, 0.005, 3e-4, 256


class Net(nn.Module):
    outputs: int

    @nn.compact
    def __call__(self, x: Array) -> Array:
        for _ in range(2):
            x = nn.relu(nn.Dense(256)(x))
        return nn.Dense(self.outputs)(x)


class TwinQ(nn.Module):
    @nn.compact
    def __call__(self, obs: Array, action: Array) -> Array:
        twin = nn.vmap(Net, variable_axes={"params": 0}, split_rngs={"params": True}, in_axes=None, axis_size=2)
        return twin(1)(jnp.concatenate([obs, action], axis=-1))[..., 0]


class Actor(nn.Module):
    action_dim: int

    @nn.compact
    def __call__(self, obs: Array, action: Array) -> Array:
        log_std = jnp.clip(self.param("log_std", nn.initializers.zeros, (self.action_dim,)), -5, 2)
        error = (action - jnp.tanh(Net(self.action_dim)(obs))) * jnp.exp(-log_std)
        return jnp.sum(-0.5 * error**2 - log_std - 0.5 * jnp.log(2 * jnp.pi), axis=-1)


class Agent(NamedTuple):
    value: TrainState
    critic: TrainState
    target: Any
    actor: TrainState


def agent(key: Array, obs: Array, action: Array, steps: int) -> Agent:
    keys = jax.random.split(key, 3)

    def state(net: nn.Module, key: Array, rate: Any, *inputs: Array) -> TrainState:
        return TrainState.create(apply_fn=net.apply, params=net.init(key, *inputs), tx=optax.adam(rate))

    critic = state(TwinQ(), keys[1], RATE, obs, action)
    decay = optax.cosine_decay_schedule(RATE, steps)
    return Agent(
        value=state(Net(1), keys[0], RATE, obs),
        critic=critic,
        target=critic.params,
        actor=state(Actor(action.shape[-1]), keys[2], decay, obs, action),
    )


def updated(agent: Agent, obs: Array, action: Array, reward: Array, next_obs: Array, mask: Array) -> Agent:
    value, critic, target, actor = agent
    q = critic.apply_fn(target, obs, action).min(axis=0)

    def value_loss(params: Any) -> Array:
        error = q - value.apply_fn(params, obs)[:, 0]
        return jnp.mean(jnp.where(error > 0, EXPECTILE, 1 - EXPECTILE) * error**2)

    value = value.apply_gradients(grads=jax.grad(value_loss)(value.params))
    v, next_v = (value.apply_fn(value.params, x)[:, 0] for x in (obs, next_obs))
    weight = jnp.minimum(jnp.exp(BETA * (q - v)), 100.0)

    def actor_loss(params: Any) -> Array:
        return -jnp.mean(weight * actor.apply_fn(params, obs, action))

    actor = actor.apply_gradients(grads=jax.grad(actor_loss)(actor.params))
    aim = reward + GAMMA * mask * next_v

    def critic_loss(params: Any) -> Array:
        return jnp.sum(jnp.mean((critic.apply_fn(params, obs, action) - aim) ** 2, axis=-1))

    critic = critic.apply_gradients(grads=jax.grad(critic_loss)(critic.params))
    return Agent(value, critic, optax.incremental_update(critic.params, target, EMA), actor)


def trainer(data: dict[str, np.ndarray], length: int, steps: int = 1_000_000) -> tuple[Agent, Callable[..., Agent]]:
    """A fresh agent, and the compiled function that trains one for `length` updates."""
    columns = {name: jnp.asarray(array) for name, array in data.items()}
    rows = len(data["reward"])

    @jax.jit
    def train(agent: Agent, key: Array) -> Agent:
        def body(agent: Agent, key: Array) -> tuple[Agent, None]:
            index = jax.random.randint(key, (BATCH,), 0, rows)
            return updated(agent, **{name: array[index] for name, array in columns.items()}), None

        return jax.lax.scan(body, agent, jax.random.split(key, length))[0]

    return agent(jax.random.key(0), columns["obs"][:1], columns["action"][:1], steps), train
