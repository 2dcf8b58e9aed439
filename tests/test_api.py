"""The library as functions: data from anywhere, in any range, on the host or on the device; and back again."""

import csv
from pathlib import Path

import jax
import numpy as np
import pytest

import uniq_rl as ur

TINY = {"steps": 40, "log_every": 20, "seeds": (0, 1)}


class Impatient(ur.Monitor):
    """Asks to stop after the first chunk."""

    def stop_requested(self) -> bool:
        return True


def logged(seed: int = 0, episodes: int = 12, length: int = 10) -> dict[str, np.ndarray]:
    """A thermostat: heat between 0 and 40, temperatures around 20."""
    rng = np.random.default_rng(seed)
    rows = episodes * length
    obs = rng.normal(20, 3, (rows, 2))
    action = rng.uniform(0, 40, (rows, 1))
    return {
        "obs": obs,
        "action": action,
        "reward": -np.abs(obs[:, 0] + action[:, 0] / 10 - 22),
        "terminated": np.zeros(rows, bool),
        "truncated": np.arange(1, rows + 1) % length == 0,
    }


def written_as_table(path: Path) -> Path:
    log = logged()
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["inside", "outside", "heat", "comfort", "over", "cut"])
        columns = (log["obs"][:, 0], log["obs"][:, 1], log["action"][:, 0], log["reward"])
        flags = (log["terminated"].astype(int), log["truncated"].astype(int))
        writer.writerows(zip(*columns, *flags, strict=True))
    return path


COLUMNS = """obs = ["inside", "outside"]
action = ["heat"]
reward = "comfort"
terminated = "over"
truncated = "cut"
"""


def test_a_table_in_its_own_range_trains_resumes_and_acts_in_that_range(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    table = written_as_table(tmp_path / "thermostat.csv")
    (tmp_path / "names.toml").write_text(COLUMNS)
    options = {"columns": str(tmp_path / "names.toml"), "action_range": (0.0, 40.0)}
    algorithm = ur.UNIQ(hidden=(8, 8), recalibrate_every=20, normalize_obs=True)
    whole = ur.train(algorithm, table, out=tmp_path / "whole", **TINY, **options)
    cut = ur.train(algorithm, table, out=tmp_path / "cut", monitor=Impatient(), **TINY, **options)
    assert not cut.finished
    resumed = ur.resume(tmp_path / "cut")
    assert resumed.finished
    for seed in (0, 1):
        name = f"policy-{seed}.safetensors"
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    obs = logged(1)["obs"]
    actions = whole.policies[0](obs)
    assert actions.min() >= 0
    assert actions.max() <= 40
    unit, _ = whole.policies[0].act(obs.astype(np.float32))
    np.testing.assert_allclose(actions, 20 * (np.asarray(unit) + 1), rtol=1e-5)
    assert np.ptp(actions) > 0
    np.testing.assert_array_equal(ur.load_policy(tmp_path / "whole" / "policy-0.safetensors")(obs), actions)


def test_streamed_data_give_the_same_parameters() -> None:
    """The same rows in the same order; another program around them may round the last bit otherwise."""
    log = {**logged(), "action": logged()["action"] / 20 - 1}
    algorithm = ur.UNIQ(hidden=(8, 8), recalibrate_every=20)
    resident, streamed = (ur.train(algorithm, log, stream=stream, **TINY) for stream in (False, True))
    for seed in (0, 1):
        pair = zip(*(jax.tree.leaves(result.policies[seed].state) for result in (resident, streamed)), strict=True)
        for expected, found in pair:
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_a_built_in_set_trains_and_resumes_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNIQ_RL_DATA", str(tmp_path / "cache"))
    plan = {"steps": 20, "eval_every": 20, "eval_episodes": 1, "log_every": 20}
    name, size = "suite/halfcheetah-random", 1000
    cut = ur.train(
        ur.BC(hidden=(8,)), name, size=size, out=tmp_path / "run", monitor=Impatient(), **{**plan, "log_every": 10}
    )
    assert not cut.finished
    result = ur.resume(tmp_path / "run")
    assert result.finished
    assert np.isfinite(result.scores[0])
    assert ur.load_dataset(name, size=size).size == size


def test_a_size_is_for_built_in_sets_only() -> None:
    with pytest.raises(ur.UniqError, match="built-in"):
        ur.load_dataset("mine.npz", size=1000)


def test_data_in_memory_are_asked_for_again(tmp_path: Path) -> None:
    log = {**logged(), "action": logged()["action"] / 20 - 1}
    ur.train(ur.BC(hidden=(8,)), log, out=tmp_path / "run", monitor=Impatient(), **TINY)
    with pytest.raises(ur.UniqError, match="pass the data again"):
        ur.resume(tmp_path / "run")
    with pytest.raises(ur.UniqError, match="no longer the data"):
        ur.resume(tmp_path / "run", {**log, "reward": log["reward"] + 1})
    assert ur.resume(tmp_path / "run", log).finished


def test_ten_percent_cloning_sees_the_best_episodes_only() -> None:
    """Two kinds of episodes with opposite actions: the clone of the better tenth does what those did."""
    log = logged(episodes=20)
    good = np.repeat(np.arange(20) < 2, 10)
    log |= {"action": np.where(good, 0.5, -0.5)[:, None], "reward": good.astype(float)}
    result = ur.train(ur.BC(hidden=(8,), learning_rate=0.05, top_fraction=0.1), log, steps=200)
    np.testing.assert_allclose(result.policies[0](log["obs"][:5]), 0.5, atol=0.05)


def test_without_outer_levels_there_is_no_spread_and_all_else_is_drawn(tmp_path: Path) -> None:
    method = ur.UNIQ(hidden=(8, 8), batch_size=16, outer_levels=False, recalibrate_every=20)
    data = {**logged(), "action": logged()["action"] / 20 - 1}
    result = ur.train(method, data, out=tmp_path / "out", **TINY)
    recorded = [line["distributions"] for line in result.records if "distributions" in line]
    assert {tuple(found) for found in recorded} == {("sigma", "u", "tau")}
    known = ur.load_policy(tmp_path / "out" / "policy-0.safetensors").uncertainty(data["obs"][:3])
    assert known.delta is None
    assert known.sigma.shape == (3,)
    assert (tmp_path / "out" / "conservatism.png").stat().st_size > 10_000
