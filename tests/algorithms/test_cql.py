"""CQL's conservative term by hand, and its settings. Its values: test_soft_probes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp
from test_sac_n import KEY, SMALL, random_batch, random_state, sample, update, values

from uniq_rl.algorithms import CQL
from uniq_rl.algorithms.cql import soft_maximum
from uniq_rl.data import Preprocessing
from uniq_rl.errors import UniqError


def test_soft_maximum_by_hand() -> None:
    """Values 0, log 2, log 3 of actions of density 1/2, 1/4, 3: exp(Q) over density is 2, 8, 1, and the sum 11."""
    q = jnp.log(jnp.array([[[1.0], [2.0], [3.0]], [[10.0], [20.0], [30.0]]]))
    log_density = jnp.log(jnp.array([[0.5], [0.25], [3.0]]))
    np.testing.assert_allclose(soft_maximum(q, log_density), np.log([[11.0], [110.0]]), rtol=1e-6)


def test_soft_maximum_estimates_an_integral_from_wherever_actions_come() -> None:
    """`log` of the integral of `exp(2 a)` over [-1, 1], which is `sinh(2)`, from a policy's actions alone."""
    actions, log_density = random_state(CQL(**SMALL)).actor.net.samples(random_batch().obs, KEY, 20_000)
    # Two dimensions; the value depends on the first, so the second's room, 2, multiplies.
    estimate = soft_maximum(2 * actions[None, :, :, 0], log_density) - np.log(20_000)
    np.testing.assert_allclose(estimate, np.full((1, 6), np.log(2 * np.sinh(2.0))), atol=0.25)


def test_huge_values_do_not_overflow() -> None:
    assert float(soft_maximum(jnp.full((1, 3, 1), 1e4), jnp.zeros((3, 1)))[0, 0]) == pytest.approx(1e4 + np.log(3))


@pytest.mark.usefixtures("x64")
def test_one_update() -> None:
    algorithm = CQL(**SMALL, conservative_weight=4.0, sampled_actions=2)
    begin, batch = random_state(algorithm), random_batch()
    state, metrics = update(algorithm, begin, batch)
    _, _, next_key, loss_key = jax.random.split(KEY, 4)
    obs, rows = np.asarray(batch.obs), len(batch.obs)

    action, _ = sample(state.actor.net, batch.next_obs, next_key)
    next_value = values(begin.target_critic, batch.next_obs, action).min(axis=0)  # no entropy
    target = np.asarray(batch.reward) + 0.9 * np.asarray(batch.mask) * next_value
    logged = values(begin.critic.net, obs, batch.action)
    td = sum(((q - target) ** 2).mean() for q in logged)
    assert float(metrics["critic_loss"]) == pytest.approx(td, rel=1e-6)

    uniform_key, here_key, there_key = jax.random.split(loss_key, 3)
    uniform = np.asarray(jax.random.uniform(uniform_key, (2, rows, 2), minval=-1, maxval=1))
    proposals = [(action, np.full(rows, np.log(0.25))) for action in uniform]
    for where, key in ((batch.obs, here_key), (batch.next_obs, there_key)):
        actions, log_density = state.actor.net.samples(where, key, 2)
        proposals += [(np.asarray(actions[i]), np.asarray(log_density[i])) for i in range(2)]
    # Actions proposed at the next state are valued at this one.
    weighted = [values(begin.critic.net, obs, action) - density for action, density in proposals]
    gap = (logsumexp(weighted, axis=0) - logged).mean(axis=1)
    assert float(metrics["conservative_gap"]) == pytest.approx(gap.mean(), rel=1e-6)

    def whole(net: object) -> jax.Array:
        return algorithm.critic_loss(net, batch, jnp.asarray(target), state.actor.net, loss_key)[0]  # type: ignore[arg-type]

    assert float(whole(begin.critic.net)) == pytest.approx(td + 4.0 * gap.sum(), rel=1e-6)


@pytest.mark.usefixtures("x64")
def test_logged_actions_are_raised_and_others_lowered() -> None:
    """The conservative term's gradient in Q: a softmax over the sampled actions, minus 1 at the logged one."""
    q, log_density = jnp.array([[[1.0], [0.5]]]), jnp.log(jnp.array([[0.5], [0.8]]))
    slope = jax.grad(lambda q: jnp.sum(soft_maximum(q, log_density)))(q)
    weights = np.exp([1.0, 0.5]) / [0.5, 0.8]
    np.testing.assert_allclose(slope[0, :, 0], weights / weights.sum(), rtol=1e-12)


def test_defaults_are_the_published_ones() -> None:
    cql = CQL()
    assert (cql.hidden, cql.critics, cql.batch_size) == ((256, 256, 256), 2, 256)
    assert (cql.learning_rate, cql.actor_learning_rate, cql.alpha_learning_rate) == (3e-4, 3e-5, 3e-5)
    assert (cql.gamma, cql.ema, cql.conservative_weight, cql.sampled_actions) == (0.99, 0.005, 10.0, 10)
    assert (cql.log_std, cql.initial_alpha, cql.target_entropy) == ((-20.0, 2.0), 1.0, None)
    assert cql.preprocessing == Preprocessing(reward="none", normalize_obs=True, clip_action=1.0)


@pytest.mark.parametrize("task", ["halfcheetah", "hopper", "walker2d"])
@pytest.mark.parametrize("kind", ["medium", "medium-replay", "medium-expert"])
def test_preset_scales_rewards_on_hopper_medium_alone(task: str, kind: str) -> None:
    scaled = CQL(reward_scaling="return_range") if (task, kind) == ("hopper", "medium") else CQL()
    assert CQL.preset("paper", task, kind) == scaled


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(UniqError, match="conservative_weight"):
        CQL(conservative_weight=-1.0)
    with pytest.raises(UniqError, match="sampled_actions"):
        CQL(sampled_actions=0)
