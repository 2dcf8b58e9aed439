"""Data sets whose values are known in closed form, and parameters without the price of compiling an initialisation.

Every probe has observations of width 2 (mostly the one-hot code of one of two states), actions of width 1 and 400 rows,
so that all of them fit one cohort and one program.
"""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from uniq_rl.data import Dataset

ROWS = 400
HERE, THERE = np.eye(2)

Tree = TypeVar("Tree")


def drawn(build: Callable[[], Tree], seed: int = 0, scale: float = 0.6) -> Tree:
    """The tree that `build` would give, with random numbers for its floats and zeros for its integers."""
    rng = np.random.default_rng(seed)

    def leaf(shape: jax.ShapeDtypeStruct) -> jax.Array:
        floating = jnp.issubdtype(shape.dtype, jnp.floating)
        return jnp.asarray(rng.normal(0, scale, shape.shape) if floating else np.zeros(shape.shape), shape.dtype)

    return jax.tree.map(leaf, jax.eval_shape(build))


def one_step(action: np.ndarray, reward: np.ndarray, name: str) -> Dataset:
    """Episodes of a single row that begin `HERE` and terminate."""
    rows = len(reward)
    obs = np.tile(HERE, (rows, 1))
    return Dataset(obs, action[:, None], reward, obs, np.zeros(rows), np.ones(rows, bool), name=name)


def constant(reward: float) -> Dataset:
    """One state, one step, one reward, whatever the action: V = Q = reward."""
    return one_step(np.random.default_rng(0).uniform(-1, 1, ROWS), np.full(ROWS, reward), "constant")


def chain(reward: float) -> Dataset:
    """`HERE` to `THERE` for nothing, then a reward and the end: V(THERE) = reward, V(HERE) = gamma * reward."""
    half = ROWS // 2
    return Dataset(
        obs=np.tile([HERE, THERE], (half, 1)),
        action=np.random.default_rng(1).uniform(-1, 1, (ROWS, 1)),
        reward=np.tile([0.0, reward], half),
        next_obs=np.tile([THERE, THERE], (half, 1)),
        mask=np.tile([1.0, 0.0], half),
        episode_end=np.tile([False, True], half),
        name="chain",
    )


def two_ends(reward: float) -> Dataset:
    """Episodes of one row, both back to where they began. `HERE` the task is over: V = reward.

    `THERE` only the recording is: V = reward / (1 - gamma).
    """
    half = ROWS // 2
    obs = np.tile([HERE, THERE], (half, 1))
    return Dataset(
        obs=obs,
        action=np.random.default_rng(2).uniform(-1, 1, (ROWS, 1)),
        reward=np.full(ROWS, reward),
        next_obs=obs,
        mask=np.tile([0.0, 1.0], half),
        episode_end=np.ones(ROWS, bool),
        name="two-ends",
    )


BEST = 0.6


def bandit() -> Dataset:
    """Actions uniform in [-1, 1], reward `1 - (action - BEST)^2`: Q(a) is that parabola.

    The weighted regression of the policy has a closed form too: its mean is the average action weighted by
    `exp(beta Q)`, since V is the same for all rows.
    """
    action = np.random.default_rng(3).uniform(-1, 1, ROWS)
    return one_step(action, payoff(action), "bandit")


def payoff(action: np.ndarray) -> np.ndarray:
    return 1 - (action - BEST) ** 2


LOTTERIES = {-0.8: 0.0, 0.0: 1.0, 0.8: 2.0}


def lotteries() -> Dataset:
    """Three actions, each with its mean reward of `LOTTERIES`, plus or minus 1 by the toss of a coin.

    Q(a) is the mean reward, so V at level tau is the tau-expectile of 0, 1, 2: of luck the critics know nothing.
    """
    rng = np.random.default_rng(4)
    action = rng.choice(list(LOTTERIES), ROWS)
    reward = np.array([LOTTERIES[a] for a in action]) + rng.choice([-1.0, 1.0], ROWS)
    return one_step(action, reward, "lotteries")


def wander() -> Dataset:
    """Nothing to learn: 80 episodes of 5 rows, all numbers random, half of the episodes cut off and half terminated."""
    rng = np.random.default_rng(5)
    last = np.arange(ROWS) % 5 == 4
    return Dataset(
        obs=rng.normal(size=(ROWS, 2)),
        action=rng.uniform(-1, 1, (ROWS, 1)),
        reward=rng.normal(size=ROWS),
        next_obs=rng.normal(size=(ROWS, 2)),
        mask=1 - last * rng.choice([0, 1], ROWS),
        episode_end=last,
        name="wander",
    )
