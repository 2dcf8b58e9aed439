"""Small data sets whose every number is known."""

from typing import Any

import numpy as np

from uniq_rl.data import Dataset

Columns = dict[str, Any]


def chain(lengths: tuple[int, ...] = (3, 2, 4), terminated: tuple[bool, ...] = (True, False, True)) -> Columns:
    """D4RL columns of episodes whose observation is (100 * episode + step, step); reward = row number."""
    obs, next_obs, terminals, timeouts = [], [], [], []
    for episode, (length, dies) in enumerate(zip(lengths, terminated, strict=True)):
        for step in range(length):
            obs.append([100.0 * episode + step, step])
            next_obs.append([100.0 * episode + step + 1, step + 1])
            terminals.append(dies and step == length - 1)
            timeouts.append(not dies and step == length - 1)
    rows = len(obs)
    return {
        "observations": np.array(obs, dtype=np.float32),
        "next_observations": np.array(next_obs, dtype=np.float32),
        "actions": np.linspace(-1, 1, rows, dtype=np.float32)[:, None],
        "rewards": np.arange(rows, dtype=np.float32),
        "terminals": np.array(terminals),
        "timeouts": np.array(timeouts),
    }


def random_dataset(episodes: int, length: int = 5, *, seed: int = 0, task: str | None = None) -> Dataset:
    rng = np.random.default_rng(seed)
    rows = episodes * length
    return Dataset(
        obs=rng.normal(size=(rows, 3)),
        action=rng.uniform(-1, 1, size=(rows, 2)),
        reward=rng.normal(size=rows),
        next_obs=rng.normal(size=(rows, 3)),
        mask=np.ones(rows),
        episode_end=np.arange(rows) % length == length - 1,
        name="random",
        task=task,
    )
