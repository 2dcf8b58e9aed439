"""The policy as a user meets it: observations in, actions out, one file. Each method's own: see the contract suite."""

import json
from pathlib import Path
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from probes import drawn
from uniq_rl.algorithms import IQL, UNIQ, Algorithm, Spec
from uniq_rl.errors import UniqError
from uniq_rl.policy import Policy, algorithm_from, config_of, load_policy

SPEC = Spec(3, 2)
OBS = np.random.default_rng(0).normal(2, 3, size=(4, 3)).astype(np.float32)


def policy_of(algorithm: Algorithm, **changes: Any) -> Policy:
    fields = {
        "algorithm": algorithm,
        "state": drawn(lambda: algorithm.deployed(algorithm.init(jax.random.key(0), SPEC))),
        "obs_mean": jnp.zeros(3),
        "obs_std": jnp.ones(3),
        "action_low": -jnp.ones(2),
        "action_high": jnp.ones(2),
        "spec": SPEC,
    }
    return Policy(**(fields | changes))


@pytest.fixture(scope="module")
def policy() -> Policy:
    return policy_of(UNIQ(hidden=(5,)))


@pytest.fixture
def saved(policy: Policy, tmp_path: Path) -> Path:
    path = tmp_path / "policy.safetensors"
    policy.save(path)
    return path


def test_observations_are_normalised_as_in_training(policy: Policy) -> None:
    mean, std = np.array([2.0, 1.0, 0.0], np.float32), np.array([3.0, 0.5, 1.0], np.float32)
    normalising = policy_of(policy.algorithm, obs_mean=jnp.asarray(mean), obs_std=jnp.asarray(std))
    np.testing.assert_allclose(normalising(OBS), policy((OBS - mean) / std), atol=1e-6)
    for ours, theirs in zip(normalising.uncertainty(OBS), policy.uncertainty((OBS - mean) / std), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)
    assert not np.allclose(normalising(OBS), policy(OBS))


def test_actions_return_to_the_range_of_the_data(policy: Policy) -> None:
    low, high = np.array([0.0, -2.0], np.float32), np.array([10.0, 2.0], np.float32)
    other = policy_of(policy.algorithm, action_low=jnp.asarray(low), action_high=jnp.asarray(high))
    unit = policy(OBS)
    np.testing.assert_allclose(other(OBS), low + (unit + 1) / 2 * (high - low), rtol=1e-5, atol=1e-5)
    assert other(OBS).dtype == np.float32
    assert other(OBS[0]).shape == (2,)


class Overshooting(IQL):
    def act(self, state: Any, obs: jax.Array, memory: Any) -> Any:
        return 3 * obs[:, :2], memory


def test_actions_are_clipped() -> None:
    np.testing.assert_allclose(policy_of(Overshooting(hidden=(5,)))([-1.0, 0.1, 0.0]), [-1.0, 0.3], rtol=1e-6)


def test_range_and_statistics_are_saved(tmp_path: Path) -> None:
    policy = policy_of(IQL(hidden=(5,)), obs_mean=jnp.array([1.0, 2, 3]), action_high=jnp.array([1.0, 7.0]))
    policy.save(tmp_path / "policy")
    loaded = load_policy(str(tmp_path / "policy"))
    np.testing.assert_array_equal(loaded.obs_mean, [1, 2, 3])
    np.testing.assert_array_equal(loaded.action_high, [1, 7])
    np.testing.assert_array_equal(loaded(OBS), policy(OBS))


def test_every_hyper_parameter_survives(tmp_path: Path) -> None:
    algorithm = UNIQ(
        hidden=(5, 4), n_members=2, kappa=0.1 + 0.2, tau_max=1, learning_rate=1e-300, reading="primary", decay_steps=7.0
    )
    policy_of(algorithm).save(tmp_path / "policy")
    loaded = load_policy(tmp_path / "policy").algorithm
    assert loaded == algorithm
    assert loaded.kappa == 0.1 + 0.2
    assert loaded.hidden == (5, 4)


def test_uncertainty_of_a_method_that_has_none(policy: Policy) -> None:
    with pytest.raises(UniqError, match="learns no uncertainty"):
        policy_of(IQL(hidden=(5,))).uncertainty(OBS)


def test_an_empty_batch(policy: Policy) -> None:
    assert policy(np.zeros((0, 3))).shape == (0, 2)


def test_damaged_files_are_refused(saved: Path, tmp_path: Path) -> None:
    content = saved.read_bytes()
    for name, damaged in {"truncated": content[:-100], "text": b"weights: none\n" * 9, "empty": b""}.items():
        path = tmp_path / name
        path.write_bytes(damaged)
        with pytest.raises(UniqError, match="safetensors"):
            load_policy(path)
    with pytest.raises(UniqError, match="There is no file"):
        load_policy(tmp_path / "absent")
    save_file({"weight": np.zeros(3, np.float32)}, tmp_path / "foreign")
    with pytest.raises(UniqError, match="not one that uniq-rl wrote"):
        load_policy(tmp_path / "foreign")


def header_of(**changes: Any) -> dict[str, Any]:
    header = {"format": "policy-1", "algorithm": "uniq", "config": {"hidden": [5]}, "spec": SPEC._asdict()}
    return {key: value for key, value in (header | changes).items() if value is not None}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"format": "checkpoint-1"}, "holds 'checkpoint-1'"),
        ({"format": None}, "holds 'None'"),
        ({"algorithm": "sarsa"}, "no algorithm named 'sarsa'"),
        ({"algorithm": None}, "does not describe"),
        ({"config": {"hidden": [5], "colour": 3}}, "no hyper-parameter named colour"),
        ({"config": {"hidden": [5], "kappa": -1.0}}, "kappa is -1.0"),
        ({"config": None}, "does not describe"),
        ({"config": {"hidden": [6]}}, "another configuration"),
        (
            {"algorithm": "iql", "config": {"hidden": [5], "critics": 1}, "spec": {"obs_dim": 2, "action_dim": 2}},
            "another",
        ),
        ({"spec": {"obs_dim": 3}}, "does not describe"),
        ({"spec": {"obs_dim": 3, "action_dim": 5}}, "another configuration"),
    ],
)
def test_wrong_headers_are_refused(saved: Path, tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    path = tmp_path / "changed"
    save_file(load_file(saved), path, metadata={"uniq-rl": json.dumps(header_of())})
    load_policy(path)
    save_file(load_file(saved), path, metadata={"uniq-rl": json.dumps(header_of(**changes))})
    with pytest.raises(UniqError, match=reason):
        load_policy(path)


def test_a_configuration_is_plain_json() -> None:
    algorithm = UNIQ(hidden=(5,), delta=0.05)
    text = json.dumps(config_of(algorithm))
    assert algorithm_from("uniq", json.loads(text)) == algorithm


@pytest.mark.parametrize("number", [np.float64, np.float32])
def test_numbers_of_numpy_are_numbers(number: type[np.floating], tmp_path: Path) -> None:
    """A sweep over `np.linspace` or an array of float32 gives such numbers."""
    policy_of(UNIQ(hidden=(5,), kappa=number(0.25))).save(tmp_path / "policy")
    assert load_policy(tmp_path / "policy").algorithm.kappa == 0.25


class Counted(IQL):
    """Counts how often it is traced."""

    traces: ClassVar[int] = 0

    def act(self, state: Any, obs: jax.Array, memory: Any) -> Any:
        type(self).traces += 1
        return super().act(state, obs, memory)


def test_policies_that_differ_in_numbers_share_a_program() -> None:
    for rate in (1e-3, 1e-4):
        policy_of(Counted(hidden=(5,), learning_rate=rate))(OBS)
    assert Counted.traces == 1
