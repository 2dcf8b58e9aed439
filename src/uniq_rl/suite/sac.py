"""Soft actor-critic, which trains the behaviour policies: many runs of several tasks as one array program.

Tasks of different widths share the program by padding: an observation is filled up with zeros, and `real` says which
action dimensions exist. One that does not is zero wherever it is used, earns no entropy and learns nothing.
"""

from dataclasses import dataclass
from functools import partial
from typing import Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from uniq_rl.algorithms.base import Batch, Learner, Spec, critic_ensemble, moved_towards, q_values, td_loss
from uniq_rl.networks import LOG_STD, MLP, Dense, IndependentEnsemble, tanh_gaussian_log_prob
from uniq_rl.training.rows import unpack

WIDEST = Spec(obs_dim=17, action_dim=6)
"""Every task fits into these widths."""


@dataclass(frozen=True)
class Settings:
    """Equal for all runs; the number of updates per call is the number of transitions that came in."""

    batch_size: int = 256
    rate: float = 3e-4
    gamma: float = 0.99
    ema: float = 0.005
    actor_hidden: tuple[int, ...] = (128, 128)
    critic_hidden: tuple[int, ...] = (256, 256)
    unroll: int = 4  # of the loop over updates: fewer, longer programs for the device


class Actor(eqx.Module):
    """A tanh-Gaussian; one network gives the mean and the log-std of each action dimension."""

    net: MLP

    @classmethod
    def init(cls, key: Array, spec: Spec, hidden: tuple[int, ...]) -> Self:
        *body, head = MLP.init(key, (spec.obs_dim, *hidden, 2 * spec.action_dim)).layers
        # A head near zero: the first policy is centred and wide, whatever it sees.
        return cls(MLP((*body, Dense(0.01 * head.weight, head.bias))))

    def __call__(self, obs: Array) -> tuple[Array, Array]:
        """Mean and log-std before the tanh."""
        mean, log_std = jnp.split(self.net(obs), 2, axis=-1)
        return mean, jnp.clip(log_std, *LOG_STD)

    def mode(self, obs: Array, real: Array) -> Array:
        return jnp.tanh(self(obs)[0]) * real[None]

    def sample(self, obs: Array, noise: Array, real: Array) -> tuple[Array, Array]:
        """Actions, and their log-density over the real dimensions, from standard normal noise."""
        mean, log_std = self(obs)
        unsquashed = mean + jnp.exp(log_std) * noise
        return jnp.tanh(unsquashed) * real[None], tanh_gaussian_log_prob(unsquashed, noise, log_std) @ real


class Agent(eqx.Module):
    """All that learning changes."""

    actor: Learner[Actor]
    critic: Learner[IndependentEnsemble]
    target: IndependentEnsemble
    log_alpha: Learner[Array]


def init(key: Array, spec: Spec, settings: Settings) -> Agent:
    actor_key, critic_key = jax.random.split(key)
    critic = critic_ensemble(critic_key, 2, spec, settings.critic_hidden)
    actor = Actor.init(actor_key, spec, settings.actor_hidden)
    target = jax.tree.map(jnp.copy, critic)  # buffers of its own: `learn` gives all of them away
    return Agent(Learner.of(actor), Learner.of(critic), target, Learner.of(jnp.zeros(())))


def update(agent: Agent, batch: Batch, noise: Array, real: Array, settings: Settings) -> Agent:
    """One step of the critics, the actor and the temperature; `noise` is `[2, B, action_dim]`."""
    alpha = jnp.exp(agent.log_alpha.net)

    next_action, next_log_prob = agent.actor.net.sample(batch.next_obs, noise[0], real)
    next_q = jnp.min(q_values(agent.target, batch.next_obs, next_action), axis=0)
    goal = batch.reward + settings.gamma * batch.mask * (next_q - alpha * next_log_prob)

    def critic_loss(net: IndependentEnsemble) -> tuple[Array, None]:
        return td_loss(q_values(net, batch.obs, batch.action), goal), None

    critic, _ = agent.critic.descend(critic_loss, settings.rate)

    def actor_loss(net: Actor) -> tuple[Array, Array]:
        action, log_prob = net.sample(batch.obs, noise[1], real)
        q = jnp.min(q_values(critic.net, batch.obs, action), axis=0)
        return jnp.mean(alpha * log_prob - q), jnp.mean(log_prob)

    actor, log_prob = agent.actor.descend(actor_loss, settings.rate)

    def alpha_loss(log_alpha: Array) -> tuple[Array, None]:
        target_entropy = -jnp.sum(real)
        return -log_alpha * (log_prob + target_entropy), None

    log_alpha, _ = agent.log_alpha.descend(alpha_loss, settings.rate)
    return Agent(actor, critic, moved_towards(agent.target, critic.net, settings.ema), log_alpha)


def row_width(spec: Spec) -> int:
    return 2 * spec.obs_dim + spec.action_dim + 2


def empty_replay(runs: int, capacity: int, spec: Spec) -> Array:
    return jnp.zeros((runs, capacity, row_width(spec)))


def with_rows(replay: Array, rows: Array, count: Array) -> Array:
    """The replay after the rows `[runs, n, width]` of call number `count`; `n` divides the capacity."""
    start = (count * rows.shape[1]) % replay.shape[1]
    return jax.lax.dynamic_update_slice(replay, rows, (0, start, 0))


insert = jax.jit(with_rows, donate_argnums=0)


@partial(jax.jit, static_argnums=6, donate_argnums=(0, 1))
def learn(
    agents: Agent, replay: Array, rows: Array, count: Array, keys: Array, real: Array, settings: Settings
) -> tuple[Agent, Array]:
    """Insert the rows of call number `count` and make one update per row, for every run."""
    replay = with_rows(replay, rows, count)
    updates = rows.shape[1]
    filled = jnp.minimum((count + 1) * updates, replay.shape[1])

    def run(agent: Agent, memory: Array, key: Array, real: Array) -> Agent:
        index_key, noise_key = jax.random.split(jax.random.fold_in(key, count))
        indices = jax.random.randint(index_key, (updates, settings.batch_size), 0, filled)
        noise = jax.random.normal(noise_key, (updates, 2, settings.batch_size, real.shape[0]))
        # Everything random and the gather come before the loop: inside it only the learning is left.
        spec = Spec((memory.shape[1] - real.shape[0] - 2) // 2, real.shape[0])
        batches = unpack(memory[indices], spec)
        agent, _ = jax.lax.scan(
            lambda agent, xs: (update(agent, xs[0], xs[1], real, settings), None),
            agent,
            (batches, noise),
            unroll=min(settings.unroll, updates),
        )
        return agent

    return jax.vmap(run)(agents, replay, keys, real), replay


@jax.jit
def act(actors: Actor, obs: Array, count: Array, keys: Array, real: Array) -> Array:
    """Sampled actions `[runs, n, action_dim]` at call number `count`."""

    def run(actor: Actor, obs: Array, key: Array, real: Array) -> Array:
        noise = jax.random.normal(jax.random.fold_in(key, count), (obs.shape[0], real.shape[0]))
        return actor.sample(obs, noise, real)[0]

    return jax.vmap(run)(actors, obs, keys, real)
