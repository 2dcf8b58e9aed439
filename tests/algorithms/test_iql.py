"""IQL's settings are the official ones. Its update: test_reference; its values: test_probes."""

import dataclasses

import pytest

from uniq_rl.algorithms import ALGORITHMS, IQL, algorithm_named
from uniq_rl.data import Preprocessing
from uniq_rl.errors import UniqError


def test_defaults_are_the_official_ones() -> None:
    iql = IQL()
    assert (iql.hidden, iql.critics, iql.batch_size, iql.learning_rate) == ((256, 256), 2, 256, 3e-4)
    assert (iql.gamma, iql.ema, iql.expectile, iql.beta_pi, iql.weight_cap) == (0.99, 0.005, 0.7, 3.0, 100.0)
    assert iql.preprocessing == Preprocessing(reward="return_range", normalize_obs=False, clip_action=1 - 1e-5)
    assert (iql.folds.calibration, iql.folds.heldout, iql.calibration_interval) == (0.0, 0.0, None)


def test_the_actor_decays_over_the_budget_unless_told_otherwise() -> None:
    assert IQL().decay_steps is None
    assert IQL().budgeted(1000).decay_steps == 1000.0
    assert IQL(decay_steps=50.0).budgeted(1000).decay_steps == 50.0


@pytest.mark.parametrize("steps", [0.0, -5.0, float("nan")])
def test_nothing_decays_in_no_time(steps: float) -> None:
    with pytest.raises(UniqError, match="decay_steps"):
        IQL(decay_steps=steps)


@pytest.mark.parametrize("expectile", [-0.1, 1.0, float("nan")])
def test_expectile_lies_below_one(expectile: float) -> None:
    with pytest.raises(UniqError, match="expectile"):
        IQL(expectile=expectile)


def test_a_changed_copy_is_checked_too() -> None:
    with pytest.raises(UniqError, match="gamma"):
        dataclasses.replace(IQL(), gamma=2.0)


def test_methods_by_name() -> None:
    assert algorithm_named("iql") is IQL
    assert all(method.name == name for name, method in ALGORITHMS.items())
    with pytest.raises(UniqError, match=r"no algorithm named 'IQL'.*iql"):
        algorithm_named("IQL")
