"""ReBRAC by hand, and its settings. Its whole update: test_reference; its probes: test_td3_bc."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_td3_bc import Known, batch_of

from uniq_rl.algorithms import ReBRAC, Spec
from uniq_rl.algorithms.td3_bc import TD3State
from uniq_rl.data import Preprocessing
from uniq_rl.errors import UniqError


def test_defaults_are_the_published_ones() -> None:
    method = ReBRAC()
    assert (method.hidden, method.critics, method.batch_size, method.learning_rate) == ((256,) * 3, 2, 1024, 1e-3)
    assert (method.policy_noise, method.noise_clip, method.delay) == (0.2, 0.5, 2)
    assert (method.gamma, method.ema, method.layer_norm) == (0.99, 0.005, True)
    assert method.preprocessing == Preprocessing(reward="none", normalize_obs=False)


@pytest.mark.parametrize(
    ("task", "beta1", "beta2"),
    [
        ("halfcheetah", (0.001, 0.01, 0.01), (0.01, 0.001, 0.1)),
        ("hopper", (0.01, 0.05, 0.1), (0.01, 0.5, 0.01)),
        ("walker2d", (0.05, 0.05, 0.01), (0.1, 0.01, 0.01)),
    ],
)
def test_presets_are_the_published_penalties(task: str, beta1: tuple[float, ...], beta2: tuple[float, ...]) -> None:
    kinds = ("medium", "medium-replay", "medium-expert")
    found = [ReBRAC.preset("paper", task, kind) for kind in kinds]
    assert found == [ReBRAC(beta1=b1, beta2=b2) for b1, b2 in zip(beta1, beta2, strict=True)]


def test_data_without_published_penalties_get_the_defaults() -> None:
    assert ReBRAC.preset("paper", "hopper", "random") == ReBRAC.preset("paper", None, None) == ReBRAC()
    with pytest.raises(UniqError, match="no preset"):
        ReBRAC.preset("best", "hopper", "medium")


@pytest.mark.parametrize("option", ["beta1", "beta2"])
def test_negative_penalties_are_refused(option: str) -> None:
    wrong: dict[str, Any] = {option: -0.1}
    with pytest.raises(UniqError, match=option):
        ReBRAC(**wrong)


def test_policy_loss_by_hand() -> None:
    """The smallest critic over its mean absolute value; distances summed over dimensions, averaged over rows."""
    critic: Any = Known([[2.0, -4.0], [1.0, 5.0]])
    action = jnp.array([[0.5, 0.0], [0.0, -1.0]])
    loss, q = ReBRAC(beta1=0.1).policy_loss(critic, batch_of([[0.0, 0.0], [0.0, 0.5]]), action)
    np.testing.assert_array_equal(q, [1.0, -4.0])
    assert float(loss) == pytest.approx(0.1 * (0.25 + 2.25) / 2 - (1 - 4) / 2 / 2.5, rel=1e-6)


def test_penalty_on_the_target_by_hand() -> None:
    """Summed over dimensions; none where the log does not say what was done next."""
    critic: Any = Known([[2.0, -4.0, 3.0], [1.0, 5.0, 7.0]])
    nowhere: Any = None
    state = TD3State(actor=nowhere, critic=nowhere, target_actor=nowhere, target_critic=critic)
    action = np.array([[0.5, 0.0], [0.0, -1.0], [0.2, 0.2]])
    batch = batch_of(action, next_action=[[0.0, 0.0], [0.5, 0.5], [np.nan, np.nan]])
    value = ReBRAC(beta2=0.4).next_value(state, batch, jnp.asarray(action))
    np.testing.assert_allclose(value, [1 - 0.4 * 0.25, -4 - 0.4 * (0.25 + 2.25), 3.0], rtol=1e-6)


def test_networks_begin_near_zero_and_only_critics_normalise() -> None:
    actor, critic = jax.jit(lambda key: ReBRAC(hidden=(32, 16)).networks(key, Spec(3, 2)))(jax.random.key(0))
    for net, bound in ((actor.mean, 1e-3), (critic.stacked, 3e-3)):
        *hidden, last = net.layers
        assert 0.5 * bound < np.abs(last.weight).max() <= bound
        assert np.abs(last.bias).max() <= bound
        for layer in hidden:
            np.testing.assert_array_equal(layer.bias, np.float32(0.1))
            limit = layer.weight.shape[-2] ** -0.5
            assert 0.9 * limit < np.abs(layer.weight).max() <= limit
    assert actor.mean.norms == ()
    assert [norm.scale.shape for norm in critic.stacked.norms] == [(2, 32), (2, 16)]
    plain = jax.eval_shape(lambda: ReBRAC(layer_norm=False).networks(jax.random.key(0), Spec(3, 2))[1])
    assert plain.stacked.norms == ()
