"""Which rows are trained on, which calibrate, and which nobody touches until coverage is measured."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from uniq_rl.data.checks import Array
from uniq_rl.data.dataset import Dataset
from uniq_rl.errors import UniqError

HELDOUT_MIN_EPISODES = 40  # with fewer, 5 % would be one episode: too little to measure coverage, too much to lose


@dataclass(frozen=True)
class Folds:
    """Sorted row indices, disjoint and together all rows."""

    train: Array
    calibration: Array
    heldout: Array


@dataclass(frozen=True)
class Split:
    """How to divide a data set. Deterministic in the episode structure and the seed."""

    calibration: float = 0.2  # share of what is not held out
    heldout: float = 0.05  # share of the episodes, whole ones; none when there are fewer than 40
    by: Literal["transition", "episode"] = "transition"
    seed: int = 0

    def __post_init__(self) -> None:
        for name, share in (("calibration", self.calibration), ("heldout", self.heldout)):
            if not 0 <= share < 1:
                raise UniqError(f"split: `{name}` is {share} but must be a share of at least 0 and below 1.")
        if self.by not in ("transition", "episode"):
            raise UniqError(f"split: `by` is {self.by!r} but must be 'transition' or 'episode'.")
        if self.seed < 0:
            raise UniqError(f"split: `seed` is {self.seed} but must be 0 or more.")

    def folds(self, dataset: Dataset) -> Folds:
        """Held-out episodes first, then the calibration rows out of the rest."""
        heldout_episode = np.zeros(dataset.episodes, dtype=bool)
        heldout_episode[self._heldout_episodes(dataset.episodes)] = True
        heldout = np.repeat(heldout_episode, dataset.episode_lengths)
        if self.by == "transition":
            calibration = self._calibration_rows(np.flatnonzero(~heldout), dataset.size)
        else:
            calibration_episode = self._calibration_episodes(np.flatnonzero(~heldout_episode), dataset.episode_lengths)
            calibration = np.repeat(calibration_episode, dataset.episode_lengths)
        train = ~heldout & ~calibration
        if not train.any():
            raise UniqError(
                f"data set {dataset.name}: a calibration share of {self.calibration} by {self.by} leaves no row to "
                f"train on ({dataset.episodes} episodes, {dataset.size} rows); lower it, or split by transition."
            )
        return Folds(*(np.flatnonzero(fold) for fold in (train, calibration, heldout)))

    def _heldout_episodes(self, episodes: int) -> Array:
        if episodes < HELDOUT_MIN_EPISODES or self.heldout == 0:
            return np.zeros(0, dtype=np.int64)
        count = max(1, round(self.heldout * episodes))
        return _shuffled(episodes, self.seed, stream=0)[:count]

    def _calibration_rows(self, rest: Array, size: int) -> Array:
        """[size] bool: random rows out of the rest."""
        chosen = np.zeros(size, dtype=bool)
        chosen[rest[_shuffled(len(rest), self.seed, stream=1)[: round(self.calibration * len(rest))]]] = True
        return chosen

    def _calibration_episodes(self, rest: Array, lengths: Array) -> Array:
        """[episodes] bool: episodes out of the rest, in random order until the share of the rows is reached."""
        order = rest[_shuffled(len(rest), self.seed, stream=1)]
        before = np.cumsum(lengths[order]) - lengths[order]
        chosen = np.zeros(len(lengths), dtype=bool)
        chosen[order[before < self.calibration * lengths[rest].sum()]] = True
        return chosen


def _shuffled(count: int, seed: int, stream: int) -> Array:
    """A permutation; by sorting uniform numbers, whose stream NumPy changes less readily than its shuffles."""
    return np.argsort(np.random.default_rng((seed, stream)).random(count), kind="stable")
