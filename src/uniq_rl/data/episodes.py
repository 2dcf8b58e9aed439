"""From raw columns to a `Dataset`: where episodes end, what follows each row, which rows must go."""

from collections.abc import Mapping

import numpy as np

from uniq_rl.data import checks
from uniq_rl.data.bounds import ActionRange, bounded_actions
from uniq_rl.data.checks import Array
from uniq_rl.data.dataset import Dataset
from uniq_rl.errors import UniqError

CONTINUES = 1e-6  # official IQL: a larger distance between next_obs and the next row's obs is another episode


def jumps(obs: Array, next_obs: Array) -> Array:
    """[N] bool: the row's stored next observation is not the observation of the next row. Never set on the last row."""
    found = np.zeros(len(obs), dtype=bool)
    candidates = np.flatnonzero((next_obs[:-1] != obs[1:]).any(axis=1))  # few, so the norm needs little memory
    difference = next_obs[candidates].astype(np.float64) - obs[candidates + 1].astype(np.float64)
    found[candidates] = np.linalg.norm(difference, axis=1) > CONTINUES
    return found


def assemble(
    columns: Mapping[str, Array],
    labels: Mapping[str, str],
    *,
    source: str,
    name: str,
    task: str | None,
    infos: Mapping[str, Array],
    end_at_jumps: bool,
    how_to_mark: str,
    action_range: ActionRange = None,
) -> Dataset:
    """Build a data set from raw columns under their canonical names.

    `columns` holds obs, action, reward, terminated and maybe next_obs and truncated. `labels` gives the names the user
    knows them by, for the error messages, whose rows are the rows of the source. `end_at_jumps` also ends an episode
    where a stored next_obs does not continue. `action_range` is what to rescale the actions from, see `bounds`.
    """

    def where(key: str) -> str:
        return f"{source}: column `{labels[key]}`"

    raw = {key: checks.numeric(value, where(key)) for key, value in columns.items()}
    checks.check_rows({labels[key]: np.atleast_1d(value) for key, value in raw.items()}, source)
    obs = checks.table(raw["obs"], where("obs"))
    action, bounds = bounded_actions(raw["action"], action_range, where("action"))
    reward = checks.vector(raw["reward"], where("reward"))
    terminated = checks.flags(raw["terminated"], where("terminated"))
    end = terminated.copy()
    if "truncated" in raw:
        end |= checks.flags(raw["truncated"], where("truncated"))
    keep = np.ones(len(obs), dtype=bool)
    if "next_obs" in raw:
        next_obs = checks.table(raw["next_obs"], where("next_obs"))
        if next_obs.shape != obs.shape:
            raise UniqError(
                f"{where('next_obs')} has {next_obs.shape[1]} dimensions but `{labels['obs']}` has {obs.shape[1]}; "
                "both describe the same state."
            )
        if end_at_jumps:  # on the raw numbers: rounding to float32 can open a gap
            end |= jumps(raw["obs"], raw["next_obs"])
    if not end.any():
        raise UniqError(f"{source}: no episode end is marked anywhere in {len(obs)} rows; {how_to_mark}.")
    end[-1] = True  # a file that stops inside an episode
    if "next_obs" not in raw:
        next_obs = np.concatenate([obs[1:], obs[-1:]])
        next_obs[end] = obs[end]  # a terminal row's successor is masked, so any finite value will do
        # Where an episode was cut off, the successor is unknown: the next row belongs to another episode. The row
        # goes, and the row before it becomes the last of its episode.
        keep = ~end | terminated
        end[:-1] |= ~keep[1:]
        if keep.sum() < 2:
            raise UniqError(
                f"{source}: only {int(keep.sum())} of {len(obs)} rows have a known next observation and at least 2 are "
                "needed; store next observations or longer episodes."
            )
    return Dataset(
        obs=obs[keep],
        action=action[keep],
        reward=reward[keep],
        next_obs=next_obs[keep],
        mask=1 - terminated[keep],
        episode_end=end[keep],
        name=name,
        task=task,
        infos={key: checks.numeric(value, f"{source}: column `{key}`")[keep] for key, value in infos.items()},
        action_low=None if bounds is None else bounds.low,
        action_high=None if bounds is None else bounds.high,
    )
