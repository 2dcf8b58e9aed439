"""IQL and UNIQ on problems whose values are known in closed form."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import expectile

from probes import BEST, HERE, LOTTERIES, THERE, bandit, chain, constant, lotteries, two_ends
from uniq_rl.algorithms import IQL, UNIQ
from uniq_rl.algorithms.base import Algorithm, q_values
from uniq_rl.training.cohort import Cohort, Run

GAMMA = 0.5
PROBES = {"constant": constant(2.0), "chain": chain(3.0), "two ends": two_ends(1.0), "bandit": bandit()}
PROBES |= {"lotteries": lotteries()}
# Ten times the usual rate, a target that follows in 50 updates: 1200 updates suffice.
QUICK = {"hidden": (32,), "batch_size": 128, "learning_rate": 3e-3, "ema": 0.02, "gamma": GAMMA}
QUICK |= {"reward_scaling": "none"}
METHODS: dict[str, Algorithm] = {
    "iql": IQL(**QUICK),
    "uniq": UNIQ(**QUICK),
    "uniq primary": UNIQ(**QUICK, reading="primary"),
    "uniq low rank": UNIQ(**QUICK, ensemble="low_rank", target="v", rank=16),
}
CHUNK, CHUNKS = 300, 4


class Learned:
    """A method, trained on every probe in one program."""

    def __init__(self, method: Algorithm) -> None:
        self.method = method
        self.cohort = Cohort([Run(method, data, 0, name) for name, data in PROBES.items()])
        progress = self.cohort.start()
        for _ in range(CHUNKS):
            progress = self.cohort.calibrate(self.cohort.advance(progress, CHUNK))
        assert not progress.diverged.any()
        self.progress = progress
        self.policies = self.cohort.policies(progress)

    def state(self, probe: str) -> Any:
        return jax.tree.map(lambda leaf: leaf[list(PROBES).index(probe)], self.progress.state)

    def train_rows(self, probe: str) -> np.ndarray:
        return self.cohort.folds[list(PROBES).index(probe)].train

    def value(self, probe: str, obs: np.ndarray) -> float:
        """The baseline of the policy's advantage: V of IQL, `V_phi`, or the mean of the level-0.7 heads."""
        state, obs = self.state(probe), jnp.asarray(obs[None], jnp.float32)
        if isinstance(self.method, UNIQ):
            net = self.method.middle(state.ensemble.net) if state.primary is None else state.primary.net
        else:
            net = state.value.net
        return float(net(obs).mean())

    def heads(self, probe: str) -> np.ndarray:
        """Mean of the heads of each level, `HERE`."""
        heads = self.state(probe).ensemble.net(jnp.asarray(HERE[None], jnp.float32))
        return np.asarray(heads).reshape(3, -1).mean(axis=1)

    def q(self, probe: str, obs: np.ndarray, actions: list[float]) -> np.ndarray:
        """Mean of the critics."""
        action = jnp.asarray(actions, jnp.float32)[:, None]
        obs = jnp.tile(jnp.asarray(obs[None], jnp.float32), (len(actions), 1))
        return np.asarray(q_values(self.state(probe).critic.net, obs, action)).mean(axis=0)

    def action(self, probe: str) -> float:
        return float(self.cohort.policy(self.policies, list(PROBES).index(probe))(HERE)[0])

    def level(self, probe: str) -> float:
        """The expectile that the policy's baseline was trained at, `HERE`."""
        if not isinstance(self.method, UNIQ):
            return self.method.expectile
        tau = float(self.method.uncertainty(self.state(probe), jnp.asarray(HERE[None], jnp.float32)).tau[0])
        return tau if self.method.reading == "primary" else 0.7 * tau


@pytest.fixture(scope="module", params=list(METHODS))
def learned(request: pytest.FixtureRequest) -> Learned:
    return Learned(METHODS[request.param])


# Tolerances: two to three times the largest deviation among the four methods. What is left is the jitter of Adam at a
# constant rate, of the order of rate times root of parameters; the alternatives a test rules out lie further away.


def test_constant_reward(learned: Learned) -> None:
    assert learned.value("constant", HERE) == pytest.approx(2.0, abs=0.02)
    np.testing.assert_allclose(learned.q("constant", HERE, [-0.9, 0.0, 0.9]), 2.0, atol=0.02)


def test_discount_along_a_chain(learned: Learned) -> None:
    assert learned.value("chain", THERE) == pytest.approx(3.0, abs=0.03)
    assert learned.value("chain", HERE) == pytest.approx(GAMMA * 3.0, abs=0.03)
    np.testing.assert_allclose(learned.q("chain", HERE, [-0.9, 0.9]), GAMMA * 3.0, atol=0.03)


def test_a_time_out_is_not_the_end(learned: Learned) -> None:
    assert learned.value("two ends", HERE) == pytest.approx(1.0, abs=0.03)
    assert learned.value("two ends", THERE) == pytest.approx(1 / (1 - GAMMA), abs=0.03)


def test_policy_moves_to_the_better_actions(learned: Learned) -> None:
    rows = learned.train_rows("bandit")
    data = PROBES["bandit"]
    action, reward = data.action[rows, 0], data.reward[rows]
    weight = np.exp(learned.method.beta_pi * reward)
    expected = (weight * action).sum() / weight.sum()
    assert abs(expected - BEST) < abs(action.mean() - BEST) / 2, "the probe asks for a clear move"
    assert learned.action("bandit") == pytest.approx(expected, abs=0.04)
    np.testing.assert_allclose(learned.q("bandit", HERE, [-0.5, BEST]), [1 - 1.1**2, 1.0], atol=0.08)


def test_value_is_an_expectile_of_q_over_actions(learned: Learned) -> None:
    data, rows = PROBES["lotteries"], learned.train_rows("lotteries")
    action, reward = data.action[rows, 0], data.reward[rows]
    means = {a: reward[np.isclose(action, a)].mean() for a in LOTTERIES}
    np.testing.assert_allclose(learned.q("lotteries", HERE, list(means)), list(means.values()), atol=0.15)
    q_of_rows = np.select([np.isclose(action, a) for a in LOTTERIES], list(means.values()))
    level = learned.level("lotteries")
    expected = expectile(q_of_rows, alpha=level)
    assert abs(expectile(reward, alpha=level) - expected) > 0.08, "luck would show"
    assert learned.value("lotteries", HERE) == pytest.approx(expected, abs=0.05)
    if isinstance(learned.method, UNIQ):
        factor = level / 0.7 if learned.method.reading == "effective" else 1.0
        levels = [expectile(q_of_rows, alpha=factor * nominal) for nominal in (0.5, 0.7, 0.9)]
        np.testing.assert_allclose(learned.heads("lotteries"), levels, atol=0.06)
        assert np.diff(levels).min() > 0.2, "levels far enough apart to be told"
