"""What is in a data set, before anyone trains on it."""

from typing import Any

import numpy as np

from uniq_rl.data.checks import Array
from uniq_rl.data.dataset import Dataset
from uniq_rl.data.episodes import jumps
from uniq_rl.data.split import HELDOUT_MIN_EPISODES

GRID = 8
FEW_ROWS = 10
AT_BOUND = 0.999  # tanh policies never quite reach 1


def inspect_dataset(dataset: Dataset) -> dict[str, Any]:
    """A plain summary, ready for JSON: counts, ranges, suspicious rows, rows per region of the state space."""
    terminated = int((dataset.mask == 0).sum())
    summary: dict[str, Any] = {
        "name": dataset.name,
        "task": dataset.task,
        "fingerprint": dataset.fingerprint,
        "transitions": dataset.size,
        "episodes": dataset.episodes,
        "obs_dim": dataset.obs_dim,
        "action_dim": dataset.action_dim,
        "terminated": terminated,
        "truncated": dataset.episodes - terminated,
        "length": {
            "min": int(dataset.episode_lengths.min()),
            "median": float(np.median(dataset.episode_lengths)),
            "max": int(dataset.episode_lengths.max()),
        },
        "return": _span(dataset.episode_returns),
        "reward": _span(dataset.reward) | {"zero_share": float((dataset.reward == 0).mean())},
        "action": [
            _span(column) | {"share_at_bound": float((np.abs(column) >= AT_BOUND).mean())}
            for column in dataset.action.T
        ],
        "obs": [_span(column) | {"std": float(column.std(dtype=np.float64))} for column in dataset.obs.T],
        "suspicious": _suspicious(dataset),
        "regions": _regions(dataset.obs),
    }
    summary["warnings"] = _warnings(dataset, summary)
    return summary


def _span(values: Array) -> dict[str, float]:
    return {"min": float(values.min()), "mean": float(values.mean(dtype=np.float64)), "max": float(values.max())}


def _suspicious(dataset: Dataset) -> dict[str, Any]:
    jumping = jumps(dataset.obs, dataset.next_obs)
    inside = ~dataset.episode_end
    broken = np.flatnonzero(jumping & inside)
    cut = dataset.episode_end & (dataset.mask == 1)
    cut[-1] = False  # nothing follows the last row
    alive = dataset.mask == 1
    return {
        # next_obs is not the obs of the next row of the same episode
        "rows_not_continuing": len(broken),
        "first_row_not_continuing": int(broken[0]) if len(broken) else None,
        # a cut-off episode whose next_obs is the first obs of the next one: perhaps an observation after the reset
        "cut_rows_that_continue": int((cut & ~jumping).sum()),
        # the state does not change although the episode goes on
        "rows_standing_still": int(((dataset.obs == dataset.next_obs).all(axis=1) & alive).sum()),
        "duplicate_rows": _duplicates(np.concatenate([dataset.obs, dataset.action], axis=1)),
        "constant_obs_columns": np.flatnonzero(np.ptp(dataset.obs, axis=0) == 0).tolist(),
        "constant_action_columns": np.flatnonzero(np.ptp(dataset.action, axis=0) == 0).tolist(),
        # D4RL's v1 files repeat one simulator state on every row, so they cannot be replayed
        "constant_infos": sorted(key for key, value in dataset.infos.items() if (value == value[0]).all()),
    }


def _duplicates(rows: Array) -> int:
    """How many rows repeat an earlier one exactly. Hashes find the candidates, the bytes decide."""
    words = np.ascontiguousarray(rows + np.float32(0)).view(np.uint32)  # adding 0 makes -0.0 equal to 0.0
    factors = np.random.default_rng(0).integers(1, 2**63, size=(words.shape[1],), dtype=np.uint64)
    hashes = np.zeros(len(words), dtype=np.uint64)
    for index, factor in enumerate(factors):
        hashes += words[:, index].astype(np.uint64) * factor
    _, where, counts = np.unique(hashes, return_inverse=True, return_counts=True)
    candidates = words[counts[where] > 1]
    return len(candidates) - len(np.unique(candidates, axis=0)) if len(candidates) else 0


def _regions(obs: Array) -> dict[str, Any]:
    """Rows per cell of a grid over the two principal components of the standardised observations."""
    mean = obs.mean(axis=0, dtype=np.float64)
    std = obs.std(axis=0, dtype=np.float64)
    scaled = (obs - mean) / np.where(std > 0, std, 1)
    _, vectors = np.linalg.eigh(scaled.T @ scaled)
    axes = vectors[:, ::-1][:, :2]  # eigenvalues ascend
    cells = np.zeros((len(obs), 2), dtype=np.int64)
    for index, axis in enumerate(axes.T):
        axis = axis * np.sign(axis[np.abs(axis).argmax()])  # eigenvectors have no sign of their own
        cells[:, index] = _cell(scaled @ axis)
    counts = np.zeros((GRID, GRID), dtype=np.int64)
    np.add.at(counts, (cells[:, 0], cells[:, 1]), 1)
    return {
        "counts": counts.tolist(),
        "share_nonempty": float((counts > 0).mean()),
        f"share_below_{FEW_ROWS}": float((counts < FEW_ROWS).mean()),
    }


def _cell(values: Array) -> Array:
    """Equal-width cells between the 0.5 and 99.5 percentiles; the few values beyond count in the outermost cells."""
    low, high = np.percentile(values, [0.5, 99.5])
    width = (high - low) / GRID
    if width <= 1e-12:
        return np.zeros(len(values), dtype=np.int64)
    cell: Array = np.clip(np.floor((values - low) / width), 0, GRID - 1).astype(np.int64)
    return cell


def _warnings(dataset: Dataset, summary: dict[str, Any]) -> list[str]:
    """Sentences for what most often spoils a result."""
    suspicious = summary["suspicious"]
    found = []
    if dataset.episodes < HELDOUT_MIN_EPISODES:
        found.append(
            f"{dataset.episodes} episodes are too few to hold any out ({HELDOUT_MIN_EPISODES} are needed), so coverage "
            "on unseen episodes cannot be measured."
        )
    if np.ptp(dataset.episode_returns) == 0:
        found.append("All episode returns are equal, so rewards cannot be scaled by their range.")
    if suspicious["rows_not_continuing"]:
        found.append(
            f"{suspicious['rows_not_continuing']} rows inside an episode do not lead to the next row's observation "
            f"(first: row {suspicious['first_row_not_continuing']}): an episode end may be missing there."
        )
    if suspicious["cut_rows_that_continue"]:
        found.append(
            f"{suspicious['cut_rows_that_continue']} cut-off episodes end in the first observation of the next one: "
            "their next_obs may have been recorded after the reset."
        )
    if suspicious["duplicate_rows"]:
        found.append(f"{suspicious['duplicate_rows']} rows repeat an earlier observation and action exactly.")
    if suspicious["constant_obs_columns"]:
        found.append(f"Observation columns {suspicious['constant_obs_columns']} never change.")
    return found
