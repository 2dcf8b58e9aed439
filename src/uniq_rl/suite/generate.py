"""Play a policy until there are exactly as many transitions as wanted, as D4RL did, but many episodes at a time.

Episodes are numbered in the order they start, and a data set is the episodes in that order, the last cut off where the
wanted size is reached. Which episodes belong to it thus never depends on how long they were: short ones, which end
first, are not preferred. Nothing depends on the machine: the number of environments follows from the size.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from uniq_rl.physics.locomotion import HORIZON, Lockstep, rollout_returns
from uniq_rl.suite.behaviour import Policy

Array = npt.NDArray[np.float32]
Columns = Mapping[str, Array]
ROWS_PER_ENVIRONMENT = 4000
MAX_ENVIRONMENTS = 128


def environments(size: int) -> int:
    """Enough to keep the cores busy, few enough that each plays several episodes."""
    return int(np.clip(size // ROWS_PER_ENVIRONMENT // 16, 1, MAX_ENVIRONMENTS // 16)) * 16


def collect(
    task: str,
    policy: Policy,
    size: int,
    seed: Sequence[int],
    tick: Callable[[int], None] | None = None,
    threads: int | None = None,
) -> Columns:
    """Exactly `size` transitions of `policy`: the columns of a data set, with `action_log_prob`."""
    count = environments(size)
    noise, starts = (np.random.default_rng([*seed, stream]) for stream in range(2))

    def fresh(number: int) -> list[int]:
        return [int(start) for start in starts.integers(2**62, size=number)]

    with Lockstep(task, count, "d4rl", threads) as env:
        widths = {"obs": env.obs_dim, "action": env.action_dim, "next_obs": env.obs_dim}
        widths |= dict.fromkeys(("reward", "mask", "episode_end", "action_log_prob"), 1)
        rows = np.empty((size + count * HORIZON, sum(widths.values())), np.float32)
        owner = np.empty(len(rows), np.int64)  # the episode of each row
        lengths = np.zeros(size + count, np.int64)  # of each episode, so far
        episode = np.arange(count)
        active = np.ones(count, np.bool_)
        begun, filled = count, 0
        obs = env.reset(fresh(count)).astype(np.float32)
        while active.any():
            action, log_prob = policy.sample(obs, noise)
            after, reward, terminated = env.step(action, active)
            next_obs = after.astype(np.float32)
            lengths[episode[active]] += 1
            over = active & (terminated | (lengths[episode] == HORIZON))
            flags = np.stack([reward, ~terminated, over, log_prob], axis=1).astype(np.float32)
            now = slice(filled, filled + int(active.sum()))
            rows[now] = np.concatenate([obs, action, next_obs, flags], axis=1)[active]
            owner[now] = episode[active]
            filled = now.stop
            if filled < size:
                ended = np.flatnonzero(over)
                episode[ended] = np.arange(begun, begun + len(ended))
                begun += len(ended)
                if len(ended):
                    next_obs = env.reset_some(ended.tolist(), fresh(len(ended))).astype(np.float32)
            else:  # an episode is still wanted while those before it do not suffice
                before = np.cumsum(lengths[:begun]) - lengths[:begun]
                active &= ~over & (before[episode] < size)
            obs = next_obs
            if tick is not None:
                tick(min(filled, size))

    order = np.argsort(owner[:filled], kind="stable")[:size]
    parts = np.split(rows[order], np.cumsum(list(widths.values()))[:-1], axis=1)
    columns = {key: part if widths[key] > 1 else part[:, 0] for key, part in zip(widths, parts, strict=True)}
    columns["episode_end"][-1] = 1
    return columns


def returns_of(task: str, policy: Policy, episodes: int, seed: Sequence[int]) -> npt.NDArray[np.float64]:
    """Undiscounted returns of whole episodes."""
    noise, starts = (np.random.default_rng([*seed, stream]) for stream in range(2))
    with Lockstep(task, episodes, "d4rl") as env:
        seeds = [int(start) for start in starts.integers(2**62, size=episodes)]
        return rollout_returns(env, lambda obs: policy.sample(obs, noise)[0], seeds)[0]
