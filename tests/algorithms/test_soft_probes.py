"""SAC-N, EDAC and CQL on problems whose answer, entropy and all, is known.

Their policies are tanh-Gaussians, of which the best at a temperature alpha maximises `E[Q] + alpha H`. With one
dimension of action that is a maximum over two numbers, found here by quadrature. SAC-N counts `alpha H` into the value
of the next state, CQL does not.

EDAC has SAC-N's answers: in one dimension all gradients are parallel or opposite, and nothing changes that by degrees.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq, minimize
from scipy.special import lambertw, softmax

from probes import BEST, HERE, ROWS, THERE, chain, constant, one_step, payoff, two_ends
from uniq_rl.algorithms import CQL, EDAC, SACN
from uniq_rl.algorithms.base import q_values
from uniq_rl.algorithms.sac_n import SoftActorCritic
from uniq_rl.training.cohort import Cohort, Run

GAMMA = 0.5
# Evenly spaced, not drawn: CQL makes as much of the density of logged actions as of their rewards.
EVEN = (np.arange(ROWS) + 0.5) / ROWS * 2 - 1
BANDIT = one_step(EVEN, payoff(EVEN), "bandit")
PROBES = {"constant": constant(2.0), "chain": chain(3.0), "two ends": two_ends(1.0)}
PROBES = {name: dataclasses.replace(data, action=EVEN[:, None]) for name, data in PROBES.items()}
PROBES |= {"warm bandit": BANDIT, "cool bandit": BANDIT, "automatic": BANDIT}
ALPHA = {"constant": 0.5, "chain": 0.5, "two ends": 0.5, "warm bandit": 1.0, "cool bandit": 0.1}
"""Temperatures that stay; `automatic` finds its own, except for CQL.

CQL samples a narrow policy's actions close together, which finds the room they stand for too small: its values there
depend on the number of samples, and have no closed form."""
# Ten times the usual rates, a target that follows in 50 updates: 1200 updates suffice, CQL 800.
QUICK: dict[str, Any] = {"hidden": (32,), "batch_size": 64, "ema": 0.02, "gamma": GAMMA, "normalize_obs": False}
QUICK |= dict.fromkeys(("learning_rate", "actor_learning_rate"), 3e-3)
METHODS: dict[str, SoftActorCritic] = {
    "sac_n": SACN(**QUICK, critics=4),
    "edac": EDAC(**QUICK, critics=4),
    "cql": CQL(**QUICK, conservative_weight=1.0),
}
CHUNK = 400
CHUNKS = {"sac_n": 3, "edac": 3, "cql": 2}
ACTIONS = np.array([-0.9, -0.5, 0.0, 0.3, 0.6, 0.9])


def at_temperature(method: SoftActorCritic, alpha: float | None) -> SoftActorCritic:
    rate = 1e-2 if alpha is None else 0.0
    return dataclasses.replace(method, initial_alpha=alpha or 0.1, alpha_learning_rate=rate)


class Learned:
    """A method, trained on every probe in one program."""

    def __init__(self, name: str) -> None:
        self.name, method = name, METHODS[name]
        self.probes = [probe for probe in PROBES if probe in ALPHA or name != "cql"]
        runs = [Run(at_temperature(method, ALPHA.get(probe)), PROBES[probe], 0, probe) for probe in self.probes]
        self.cohort = Cohort(runs)
        progress = self.cohort.start()
        for _ in range(CHUNKS[name]):
            progress = self.cohort.advance(progress, CHUNK)
        assert not progress.diverged.any()
        self.progress = progress

    def state(self, probe: str) -> Any:
        return jax.tree.map(lambda leaf: leaf[self.probes.index(probe)], self.progress.state)

    def q(self, probe: str, obs: np.ndarray, actions: np.ndarray = ACTIONS) -> np.ndarray:
        """Mean of the critics."""
        rows = jnp.tile(jnp.asarray(obs[None], jnp.float32), (len(actions), 1))
        values = q_values(self.state(probe).critic.net, rows, jnp.asarray(actions[:, None], jnp.float32))
        return np.asarray(values).mean(axis=0)

    def policy(self, probe: str) -> np.ndarray:
        """Mean and log-std before the tanh, `HERE`."""
        return np.concatenate(self.state(probe).actor.net(jnp.asarray(HERE[None], jnp.float32)), axis=None)


@pytest.fixture(scope="module", params=list(METHODS))
def learned(request: pytest.FixtureRequest) -> Learned:
    return Learned(request.param)


# What is known


NODES, SHARES = np.polynomial.hermite_e.hermegauss(200)
SHARES = SHARES / SHARES.sum()
Q = Callable[[np.ndarray], np.ndarray]


def entropy(mean: float, log_std: float) -> float:
    """Of a tanh-Gaussian: the Gaussian's, and the mean of `log(1 - tanh(u)^2)`."""
    u = np.abs(mean + np.exp(log_std) * NODES)
    squashing = SHARES @ (np.log(4) - 2 * u - 2 * np.log1p(np.exp(-2 * u)))
    return float(0.5 * np.log(2 * np.pi * np.e) + log_std + squashing)


def best_policy(q: Q, alpha: float) -> np.ndarray:
    """Mean and log-std of the tanh-Gaussian with the largest `E[Q] + alpha H`."""

    def loss(policy: np.ndarray) -> float:
        mean, log_std = policy
        return -float(SHARES @ q(np.tanh(mean + np.exp(log_std) * NODES)) + alpha * entropy(mean, log_std))

    return minimize(loss, [0.3, -1.0], method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-9}).x


def indifferent_entropy() -> float:
    """Of the best policy where all actions are worth the same; a little less than the uniform density's, log 2."""
    return entropy(*best_policy(np.zeros_like, 1.0))


def conservative(reward: np.ndarray, weight: float) -> np.ndarray:
    """CQL's values of `EVEN` actions, logged equally often.

    They minimise `E[(Q - r)^2] + weight (log integral exp Q - E[Q])`, so `2 (Q - r) + weight (s - 1) = 0`, where `s` is
    the softmax of Q over its mean. Given the integral, Lambert's W solves that; and the integral must be Q's own.
    """
    high = reward + weight / 2

    def q(mean_exp: float) -> np.ndarray:
        return high - lambertw((weight / (2 * mean_exp) * np.exp(high)).tolist()).real

    return q(brentq(lambda mean_exp: np.exp(q(mean_exp)).mean() - mean_exp, 0.01, 100))


def test_conservative_values_solve_their_equation() -> None:
    values = conservative(payoff(EVEN), 3.0)
    share = ROWS * softmax(values)
    np.testing.assert_allclose(2 * (values - payoff(EVEN)) + 3.0 * (share - 1), 0, atol=1e-9)


def bandit_values(learned: Learned) -> Q:
    if learned.name != "cql":
        return payoff
    values = conservative(payoff(EVEN), 1.0)
    return lambda action: np.interp(action, EVEN, values)


# Tolerances: two to three times the largest deviation among the three methods.


def test_constant_reward(learned: Learned) -> None:
    np.testing.assert_allclose(learned.q("constant", HERE), 2.0, atol=0.04)


def test_entropy_along_a_chain(learned: Learned) -> None:
    """`THERE` the episode ends and no entropy follows. `HERE` counts that of the policy `THERE`."""
    bonus = 0.0 if learned.name == "cql" else ALPHA["chain"] * indifferent_entropy()
    assert bonus == 0 or GAMMA * bonus > 0.15, "a value without it would show"
    np.testing.assert_allclose(learned.q("chain", THERE), 3.0, atol=0.04)
    np.testing.assert_allclose(learned.q("chain", HERE), GAMMA * (3.0 + bonus), atol=0.04)


def test_a_time_out_is_not_the_end(learned: Learned) -> None:
    bonus = 0.0 if learned.name == "cql" else ALPHA["two ends"] * indifferent_entropy()
    np.testing.assert_allclose(learned.q("two ends", HERE), 1.0, atol=0.04)
    expected = (1.0 + GAMMA * bonus) / (1 - GAMMA)
    np.testing.assert_allclose(learned.q("two ends", THERE), expected, atol=0.04)


def test_values_of_the_bandit(learned: Learned) -> None:
    """CQL's own are far from the rewards, and known too. Its policy is wide here: its samples reach everywhere."""
    expected = bandit_values(learned)(ACTIONS)
    if learned.name == "cql":
        assert np.abs(expected - payoff(ACTIONS)).max() > 0.3
    np.testing.assert_allclose(learned.q("warm bandit", HERE), expected, atol=0.1)


def test_policy_of_the_bandit(learned: Learned) -> None:
    warm, cool = (best_policy(bandit_values(learned), ALPHA[probe]) for probe in ("warm bandit", "cool bandit"))
    assert abs(np.tanh(warm[0]) - BEST) > 0.2, "entropy pulls to the middle"
    assert abs(np.tanh(cool[0]) - BEST) < 0.02, "and less so when it is cheap"
    np.testing.assert_allclose(learned.policy("warm bandit"), warm, atol=0.05)
    np.testing.assert_allclose(np.tanh(learned.policy("cool bandit")[0]), np.tanh(cool[0]), atol=0.07)


def test_temperature_finds_the_price_of_entropy(learned: Learned) -> None:
    """The policy gets the entropy it was asked for, -1, around the best action."""
    if learned.name == "cql":
        return
    mean, log_std = learned.policy("automatic")
    assert np.tanh(mean) == pytest.approx(BEST, abs=0.04)
    assert entropy(mean, log_std) == pytest.approx(-1, abs=0.1)
    price = brentq(lambda alpha: entropy(*best_policy(payoff, alpha)) + 1, 1e-3, 0.5)
    assert float(np.exp(learned.state("automatic").log_alpha.net)) == pytest.approx(price, rel=0.4)
