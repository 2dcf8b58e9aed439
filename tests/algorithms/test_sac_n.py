"""SAC-N's losses by hand, and its settings. Its values: test_soft_probes."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import networks_of, value
from scipy.stats import norm

from probes import drawn
from uniq_rl.algorithms import CQL, EDAC, SACN, Batch, Spec
from uniq_rl.algorithms.base import Learner
from uniq_rl.algorithms.sac_n import SoftActorCritic, SoftState
from uniq_rl.data import Preprocessing
from uniq_rl.errors import UniqError

SPEC = Spec(3, 2)
KEY = jax.random.key(7)
SMALL: dict[str, Any] = {"hidden": (7, 5), "gamma": 0.9, "ema": 0.1}
SMALL |= {"learning_rate": 0.01, "actor_learning_rate": 0.02, "alpha_learning_rate": 0.03}

update = jax.jit(lambda algorithm, state, batch: algorithm.update(state, batch, KEY))


def random_state(algorithm: SoftActorCritic) -> SoftState:
    """Random networks, targets that differ from what they follow, untouched moments."""
    state = drawn(lambda: algorithm.init(jax.random.key(0), SPEC), seed=1)
    return SoftState(
        log_alpha=Learner.of(state.log_alpha.net),
        actor=Learner.of(state.actor.net),
        critic=Learner.of(state.critic.net),
        target_critic=state.target_critic,
    )


def random_batch(rows: int = 6) -> Batch:
    rng = np.random.default_rng(2)
    return Batch(
        obs=jnp.asarray(rng.normal(size=(rows, SPEC.obs_dim))),
        action=jnp.asarray(rng.uniform(-1, 1, (rows, SPEC.action_dim))),
        reward=jnp.asarray(rng.normal(size=rows)),
        next_obs=jnp.asarray(rng.normal(size=(rows, SPEC.obs_dim))),
        mask=jnp.asarray(rng.choice([0.0, 1.0], rows)),
    )


def sample(policy: Any, obs: Any, key: jax.Array) -> tuple[np.ndarray, np.ndarray]:
    """Actions of a tanh-Gaussian and their log-densities, from the noise that the key gives."""
    x = np.asarray(obs)
    for layer in policy.net.layers[:-1]:
        x = np.maximum(x @ np.asarray(layer.weight) + np.asarray(layer.bias), 0)
    last = policy.net.layers[-1]
    mean, log_std = np.split(x @ np.asarray(last.weight) + np.asarray(last.bias), 2, axis=-1)
    log_std = np.clip(log_std, *policy.log_std)
    u = mean + np.exp(log_std) * np.asarray(jax.random.normal(key, (1, *mean.shape)))[0]
    density = norm.logpdf(u, mean, np.exp(log_std)) - np.log(1 - np.tanh(u) ** 2)
    return np.tanh(u), density.sum(axis=-1)


def values(ensemble: Any, obs: Any, action: Any) -> np.ndarray:
    inputs = np.concatenate([obs, action], axis=1)
    return np.stack([value(net, inputs) for net in networks_of(ensemble)])


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("target_entropy", [None, -0.3])
def test_one_update(target_entropy: float | None) -> None:
    """Alpha first, then the policy at the new alpha, then the critics with both, then the average."""
    algorithm = SACN(**SMALL, critics=3, target_entropy=target_entropy)
    begin, batch = random_state(algorithm), random_batch()
    state, metrics = update(algorithm, begin, batch)
    alpha_key, actor_key, next_key, _ = jax.random.split(KEY, 4)

    _, log_prob = sample(begin.actor.net, batch.obs, alpha_key)
    surplus = log_prob.mean() + (-2 if target_entropy is None else target_entropy)
    assert abs(surplus) > 0.1
    # Descent on -log_alpha * surplus; the first step of Adam has the length of the rate.
    alpha = np.exp(float(begin.log_alpha.net) + 0.03 * np.sign(surplus))
    assert float(metrics["alpha"]) == pytest.approx(alpha, rel=1e-6)
    assert float(state.log_alpha.net) == pytest.approx(np.log(alpha), abs=1e-7)

    action, log_prob = sample(begin.actor.net, batch.obs, actor_key)
    q = values(begin.critic.net, batch.obs, action)
    assert float(metrics["actor_loss"]) == pytest.approx((alpha * log_prob - q.min(axis=0)).mean(), rel=1e-6)
    assert float(metrics["entropy"]) == pytest.approx(-log_prob.mean(), rel=1e-9)
    assert float(metrics["q_policy"]) == pytest.approx(q.min(axis=0).mean(), rel=1e-9)
    assert float(metrics["q_spread"]) == pytest.approx(q.std(axis=0).mean(), rel=1e-9)

    action, log_prob = sample(state.actor.net, batch.next_obs, next_key)
    next_value = values(begin.target_critic, batch.next_obs, action).min(axis=0) - alpha * log_prob
    target = np.asarray(batch.reward) + 0.9 * np.asarray(batch.mask) * next_value
    q = values(begin.critic.net, batch.obs, batch.action)
    expected = sum(((member - target) ** 2).mean() for member in q)
    assert float(metrics["critic_loss"]) == pytest.approx(expected, rel=1e-6)
    assert float(metrics["q"]) == pytest.approx(q.min(axis=0).mean(), rel=1e-9)

    for old, new, average in zip(
        *map(jax.tree.leaves, (begin.target_critic, state.critic.net, state.target_critic)), strict=True
    ):
        np.testing.assert_allclose(average, 0.9 * old + 0.1 * new, rtol=1e-12, atol=1e-14)
    for part, rate in (("actor", 0.02), ("critic", 0.01)):
        steps = jax.tree.map(lambda a, b: jnp.abs(a - b).max(), getattr(begin, part).net, getattr(state, part).net)
        assert max(map(float, jax.tree.leaves(steps))) == pytest.approx(rate, rel=1e-3)


def test_many_critics_are_a_few_large_products() -> None:
    """500 critics take as many products as 3, and no loop."""

    def program(critics: int) -> str:
        algorithm = SACN(hidden=(4, 4), critics=critics)
        state = jax.eval_shape(lambda: algorithm.init(KEY, SPEC))
        return str(jax.make_jaxpr(lambda state: algorithm.update(state, random_batch(), KEY))(state))

    few, many = program(3), program(500)
    assert many.count("dot_general[") == few.count("dot_general[") > 0
    assert "while[" not in many
    assert "scan[" not in many


def test_beginning_near_zero() -> None:
    state = jax.jit(lambda: SACN(hidden=(16, 16), initial_alpha=0.5).init(KEY, SPEC))()
    for layers, bound in ((state.actor.net.net.layers, 1e-3), (state.critic.net.stacked.layers, 3e-3)):
        for hidden in layers[:-1]:
            np.testing.assert_array_equal(hidden.bias, np.full_like(hidden.bias, 0.1))
        for last in jax.tree.leaves(layers[-1]):
            assert bound / 2 < np.abs(last).max() <= bound
    assert float(state.log_alpha.net) == pytest.approx(np.log(0.5))


def test_defaults_are_the_published_ones() -> None:
    for method in (SACN(), EDAC()):
        assert (method.hidden, method.batch_size, method.critics) == ((256, 256, 256), 256, 10)
        rates = (method.learning_rate, method.actor_learning_rate, method.alpha_learning_rate)
        assert rates == (3e-4, 3e-4, 3e-4)
        assert (method.gamma, method.ema, method.initial_alpha, method.target_entropy) == (0.99, 0.005, 1.0, None)
        assert method.log_std == (-5.0, 2.0)
        assert method.preprocessing == Preprocessing(reward="none", normalize_obs=False, clip_action=1.0)


KINDS = ("medium", "medium-replay", "medium-expert")
CRITICS = {"halfcheetah": (10, 10, 10), "hopper": (500, 200, 200), "walker2d": (20, 20, 20)}


@pytest.mark.parametrize("task", CRITICS)
def test_preset(task: str) -> None:
    assert tuple(SACN.preset("paper", task, kind).critics for kind in KINDS) == CRITICS[task]


@pytest.mark.parametrize(("task", "kind"), [(None, None), ("hopper", None), ("ant", "medium"), ("hopper", "random")])
def test_preset_of_what_was_not_published_is_the_default(task: str | None, kind: str | None) -> None:
    for method in (SACN, EDAC, CQL):
        assert method.preset("paper", task, kind) == method()
    with pytest.raises(UniqError, match="preset"):
        SACN.preset("best", task, kind)


@pytest.mark.parametrize(
    "wrong",
    [
        {"critics": 0},
        {"hidden": (8, 0)},
        {"gamma": 1.1},
        {"initial_alpha": 0.0},
        {"alpha_learning_rate": -1.0},
        {"actor_learning_rate": float("nan")},
    ],
    ids=str,
)
def test_impossible_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UniqError, match=next(iter(wrong))):
        SACN(**wrong)
