"""What a method wants done to the data before training, and the numbers that came out of doing it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from uniq_rl.data.checks import Array
from uniq_rl.data.dataset import Dataset
from uniq_rl.errors import UniqError

RETURN_RANGE = 1000.0  # official IQL: returns span this much after scaling
STD_FLOOR = 1e-3  # added to each standard deviation, so that constant observations stay finite


@dataclass(frozen=True)
class Fitted:
    """Preprocessing with its numbers: everything a trained policy needs to see data the same way."""

    reward_scale: float
    reward_shift: float
    obs_mean: Array  # [obs_dim] float32
    obs_std: Array  # [obs_dim] float32
    clip_action: float
    note: str | None = None  # a sentence for the user when something could not be done as asked

    def apply(self, dataset: Dataset) -> dict[str, Array]:
        """The five training columns, float32, one entry per row of the data set."""
        clip = np.float32(self.clip_action)
        return {
            "obs": self.normalize(dataset.obs),
            "action": np.clip(dataset.action, -clip, clip),
            "reward": (dataset.reward * self.reward_scale + self.reward_shift).astype(np.float32),
            "next_obs": self.normalize(dataset.next_obs),
            "mask": dataset.mask,
        }

    def normalize(self, obs: Array) -> Array:
        """Observations as the networks see them."""
        normalized: Array = ((obs - self.obs_mean) / self.obs_std).astype(np.float32)
        return normalized

    def to_json(self) -> dict[str, Any]:
        """Plain values; float32 survives the way through JSON exactly."""
        return {
            "reward_scale": self.reward_scale,
            "reward_shift": self.reward_shift,
            "obs_mean": self.obs_mean.tolist(),
            "obs_std": self.obs_std.tolist(),
            "clip_action": self.clip_action,
            "note": self.note,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Fitted":
        try:
            return cls(
                reward_scale=float(values["reward_scale"]),
                reward_shift=float(values["reward_shift"]),
                obs_mean=np.asarray(values["obs_mean"], dtype=np.float32),
                obs_std=np.asarray(values["obs_std"], dtype=np.float32),
                clip_action=float(values["clip_action"]),
                note=None if values.get("note") is None else str(values["note"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise UniqError(f"stored preprocessing is damaged ({error!r}); write it again.") from error


@dataclass(frozen=True)
class Preprocessing:
    """What a method wants done to the data."""

    reward: Literal["none", "return_range"] = "none"  # return_range: official IQL's scale, and its shift on AntMaze
    normalize_obs: bool = False
    top_fraction: float = 1.0  # keep the best share of the episodes by return
    clip_action: float = 1.0  # IQL: 1 - 1e-5

    def __post_init__(self) -> None:
        if self.reward not in ("none", "return_range"):
            raise UniqError(f"preprocessing: `reward` is {self.reward!r} but must be 'none' or 'return_range'.")
        for name, share in (("top_fraction", self.top_fraction), ("clip_action", self.clip_action)):
            if not 0 < share <= 1:
                raise UniqError(f"preprocessing: `{name}` is {share} but must be above 0 and at most 1.")

    def fit(self, dataset: Dataset, rows: Array | None = None) -> Fitted:
        """Work out the numbers; `rows` are the training rows (default: all)."""
        scale, shift, note = self._reward(dataset)
        mean = np.zeros(dataset.obs_dim, dtype=np.float32)
        std = np.ones(dataset.obs_dim, dtype=np.float32)
        if self.normalize_obs:
            seen = dataset.obs[self.keep(dataset, rows)]
            mean = seen.mean(axis=0, dtype=np.float64).astype(np.float32)
            std = (seen.std(axis=0, dtype=np.float64) + STD_FLOOR).astype(np.float32)
        return Fitted(scale, shift, mean, std, self.clip_action, note)

    def keep(self, dataset: Dataset, rows: Array | None = None) -> Array:
        """Those of the training rows that lie in the best `top_fraction` of the episodes they come from."""
        rows = np.arange(dataset.size) if rows is None else np.asarray(rows)
        if self.top_fraction == 1:
            return rows
        episode_of = np.repeat(np.arange(dataset.episodes), dataset.episode_lengths)
        candidates = np.unique(episode_of[rows])
        count = max(1, round(self.top_fraction * len(candidates)))
        order = np.argsort(-dataset.episode_returns[candidates], kind="stable")
        best = candidates[order[:count]]
        return rows[np.isin(episode_of[rows], best)]

    def _reward(self, dataset: Dataset) -> tuple[float, float, str | None]:
        """Scale, shift and a note. Returns of the true episodes of the whole data set, whatever is trained on."""
        if self.reward == "none":
            return 1.0, 0.0, None
        if dataset.task == "antmaze":
            return 1.0, -1.0, None
        returns = dataset.episode_returns
        if len(returns) == 1:
            return 1.0, 0.0, f"data set {dataset.name} has a single episode, so its rewards are left unscaled."
        span = float(returns.max() - returns.min())
        # Sums of float32 rewards differ in the last digits even when the returns are equal.
        if span <= 1e-6 * max(1.0, float(np.abs(returns).max())):
            return (
                1.0,
                0.0,
                f"data set {dataset.name}: all episode returns are equal, so its rewards are left unscaled.",
            )
        return RETURN_RANGE / span, 0.0, None
