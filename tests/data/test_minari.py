"""Data sets that Minari itself wrote."""

import builtins
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from logged import chain

from uniq_rl.data import from_arrays, load_dataset, load_minari
from uniq_rl.errors import UniqError

ID = "test/chain/mixed-v0"


def test_without_minari(monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def missing(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("minari"):
            raise ImportError(name)
        return original(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(
        UniqError, match=r"minari:mujoco/hopper/medium-v0 .* install it with the extra uniq-rl\[minari\]"
    ):
        load_dataset("minari:mujoco/hopper/medium-v0")


@pytest.fixture
def minari(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    return pytest.importorskip("minari")


def write(minari: Any, kind: str = "plain", data_format: str = "hdf5") -> None:
    """The chain as a Minari data set."""
    from gymnasium import spaces
    from minari.data_collector import EpisodeBuffer

    columns, buffers, start = chain(), [], 0
    box = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    observation_space = spaces.Dict({"observation": box, "goal": spaces.Box(0, 9, (1,))}) if kind == "goal" else box
    bound = {"wide": 4.0, "unbounded": np.inf}.get(kind, 1.0)
    action_space = spaces.Discrete(3) if kind == "discrete" else spaces.Box(-bound, bound, (1,), np.float32)
    for length in (3, 2, 4):
        rows = slice(start, start + length)
        last = columns["next_observations"][start + length - 1 : start + length]
        obs = np.concatenate([columns["observations"][rows], last])
        actions = columns["actions"][rows] * (bound if np.isfinite(bound) else 1)
        buffers.append(
            EpisodeBuffer(
                observations={"observation": obs, "goal": np.full((length + 1, 1), 7.0)} if kind == "goal" else obs,
                actions=np.arange(length) % 3 if kind == "discrete" else actions,
                rewards=columns["rewards"][rows],
                terminations=columns["terminals"][rows],
                truncations=columns["timeouts"][rows],
            )
        )
        start += length
    minari.create_dataset_from_buffers(
        dataset_id=ID,
        buffer=buffers,
        observation_space=observation_space,
        action_space=action_space,
        data_format=data_format,
        author="a test",
        author_email="test@example.org",
        code_permalink="none",
        algorithm_name="none",
        description="none",
    )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("data_format", ["hdf5", "arrow"])
def test_local(minari: Any, data_format: str) -> None:
    if data_format == "arrow":
        pytest.importorskip("pyarrow")
    write(minari, data_format=data_format)
    data = load_dataset(f"minari:{ID}")
    assert data.fingerprint == from_arrays(chain()).fingerprint
    assert (data.name, data.task) == (f"minari:{ID}", None)  # never in one column with D4RL, whatever the id says
    assert load_dataset(f"minari:{ID}", task="hopper").task == "hopper"
    assert load_minari(ID).fingerprint == data.fingerprint


@pytest.mark.filterwarnings("ignore")
def test_actions_of_another_range(minari: Any) -> None:
    write(minari, "wide")
    data = load_minari(ID)
    np.testing.assert_allclose(data.action, chain()["actions"], atol=1e-7)
    assert data.action_high is not None
    assert data.action_high.tolist() == [4]


@pytest.mark.filterwarnings("ignore")
def test_collected_from_an_environment(minari: Any) -> None:
    import gymnasium

    collector = minari.DataCollector(gymnasium.make("Pendulum-v1", max_episode_steps=20))
    collector.action_space.seed(0)
    seen = []
    for seed in range(3):
        collector.reset(seed=seed)
        over = False
        while not over:
            seen.append(collector.action_space.sample())
            _, _, terminated, truncated, _ = collector.step(seen[-1])
            over = terminated or truncated
    collector.create_dataset(ID, eval_env="Pendulum-v1")
    collector.close()
    data = load_minari(ID)
    assert data.episode_lengths.tolist() == [20, 20, 20]
    assert data.mask.tolist() == [1] * 60
    np.testing.assert_array_equal(data.next_obs[:19], data.obs[1:20])
    np.testing.assert_allclose(data.action * 2, np.asarray(seen), atol=1e-6)


@pytest.mark.filterwarnings("ignore")
def test_an_unbounded_action_space(minari: Any) -> None:
    write(minari, "unbounded")
    assert load_minari(ID).action_low is None


@pytest.mark.filterwarnings("ignore")
def test_observations_with_a_goal(minari: Any) -> None:
    write(minari, "goal")
    data = load_minari(ID)
    assert data.obs[4].tolist() == [7, 101, 1]
    assert data.next_obs[4].tolist() == [7, 102, 2]


@pytest.mark.filterwarnings("ignore")
def test_faults(minari: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(minari, "discrete")
    with pytest.raises(UniqError, match="actions of kind Discrete; only continuous"):
        load_minari(ID)
    with pytest.raises(UniqError, match="minari:test/none-v0 is not on this machine"):
        load_minari("minari:test/none-v0", download=False)
    metadata = tmp_path / ID / "data" / "metadata.json"
    known = json.loads(metadata.read_text())
    metadata.write_text(json.dumps({key: value for key, value in known.items() if key != "action_space"}))
    with pytest.raises(UniqError, match="does not say what its observations and actions are"):
        load_minari(ID)
    metadata.write_text("{")
    with pytest.raises(UniqError, match=f"minari:{ID} cannot be had from Minari") as caught:
        load_minari(ID)
    assert "\n" not in str(caught.value)
    assert capsys.readouterr().out == ""


@pytest.mark.filterwarnings("ignore")
def test_remote(minari: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not here is asked for, once; Minari's own download is not what is tested."""
    asked = []

    def download(dataset_id: str) -> None:
        asked.append(dataset_id)
        write(minari)

    monkeypatch.setattr(minari, "download_dataset", download)
    assert load_dataset(f"minari:{ID}").size == 9
    assert load_dataset(f"minari:{ID}").size == 9
    assert asked == [ID]

    def unreachable(dataset_id: str) -> None:
        raise ConnectionError("no route\nto host")

    monkeypatch.setattr(minari, "download_dataset", unreachable)
    with pytest.raises(
        UniqError, match=r"cannot be had from Minari \(no route to host\); check the id and the network"
    ):
        load_dataset("minari:test/other-v0")
