"""The table of logged transitions: what goes in at the left of the whole library."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from uniq_rl.data import bounds, checks
from uniq_rl.data.checks import Array
from uniq_rl.errors import UniqError


@dataclass(frozen=True, eq=False)
class Dataset:
    """Checked, read-only transitions; the rows of an episode are contiguous and in time order.

    `mask` says whether to bootstrap, `episode_end` where an episode stops: a time-out ends an episode with mask 1.

        row          0    1    2  |  3    4   | 5    6
        terminated   .    .    x  |  .    .   | .    .      row 2: the task ended, no value follows
        truncated    .    .    .  |  .    x   | .    .      row 4: the clock ran out, next_obs still has a value
        mask         1    1    0  |  1    1   | 1    1
        episode_end  .    .    x  |  .    x   | .    x      row 6: the data stop, which ends the last episode
    """

    obs: Array  # [N, obs_dim] float32
    action: Array  # [N, action_dim] float32, in [-1, 1]
    reward: Array  # [N] float32
    next_obs: Array  # [N, obs_dim] float32
    mask: Array  # [N] float32: 1 - terminated; 0 stops the bootstrap
    episode_end: Array  # [N] bool: terminated or truncated; the last row of an episode
    name: str = "data"
    task: str | None = None  # "hopper", ... when known
    infos: Mapping[str, Array] = field(default_factory=dict)  # per-row extras (qpos, qvel, ...), never used in training
    action_low: Array | None = None  # [action_dim] float32: what -1 stood for before rescaling; None: it was -1
    action_high: Array | None = None  # [action_dim] float32: what 1 stood for before rescaling; None: it was 1

    def __post_init__(self) -> None:
        where = f"data set {self.name}"

        def column(name: str) -> str:
            return f"{where}: column `{name}`"

        arrays = {
            "obs": checks.table(self.obs, column("obs")),
            "action": checks.actions(self.action, column("action")),
            "reward": checks.vector(self.reward, column("reward")),
            "next_obs": checks.table(self.next_obs, column("next_obs")),
            "mask": checks.to_float32(checks.flags(self.mask, column("mask"))),
            "episode_end": checks.flags(self.episode_end, column("episode_end")),
        }
        checks.check_rows(arrays, where)
        if arrays["obs"].shape != arrays["next_obs"].shape:
            raise UniqError(
                f"{where}: `next_obs` has {arrays['next_obs'].shape[1]} columns but `obs` has "
                f"{arrays['obs'].shape[1]}; both describe the same state."
            )
        # By definition a terminated row ends its episode, and so does the last row of the data.
        arrays["episode_end"] = arrays["episode_end"] | (arrays["mask"] == 0)
        arrays["episode_end"][-1] = True

        infos = {key: _frozen(checks.numeric(value, column(key))) for key, value in self.infos.items()}
        for key, value in infos.items():
            if value.ndim == 0 or len(value) != len(arrays["obs"]):
                raise UniqError(f"{column(key)} has shape {value.shape} but needs {len(arrays['obs'])} rows.")
        for key, value in arrays.items():
            object.__setattr__(self, key, _frozen(value))
        object.__setattr__(self, "infos", infos)
        self._check_bounds(where)

    def _check_bounds(self, where: str) -> None:
        if (self.action_low is None) != (self.action_high is None):
            raise UniqError(f"{where}: give both action_low and action_high, or neither.")
        if self.action_low is not None:
            found = bounds.checked(self.action_low, self.action_high, self.action_dim, where)
            object.__setattr__(self, "action_low", _frozen(found.low))
            object.__setattr__(self, "action_high", _frozen(found.high))

    @property
    def size(self) -> int:
        """Number of transitions."""
        return len(self.obs)

    @property
    def obs_dim(self) -> int:
        return int(self.obs.shape[1])

    @property
    def action_dim(self) -> int:
        return int(self.action.shape[1])

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the six arrays, and of the action bounds if any: the same whatever the file, name or extras."""
        digest = hashlib.sha256()
        columns = (self.obs, self.action, self.reward, self.next_obs, self.mask, self.episode_end)
        for array in (*columns, *(bound for bound in (self.action_low, self.action_high) if bound is not None)):
            stored = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"), copy=False))
            digest.update(f"{stored.dtype.str}{stored.shape}".encode())
            digest.update(stored.reshape(-1).view(np.uint8).data)
        return digest.hexdigest()

    @cached_property
    def episode_bounds(self) -> Array:
        """[E, 2]: first row and one past the last row of each episode."""
        stops = np.flatnonzero(self.episode_end) + 1
        starts = np.concatenate([[0], stops[:-1]])
        return _frozen(np.stack([starts, stops], axis=1))

    @property
    def episode_starts(self) -> Array:
        return self.episode_bounds[:, 0]

    @property
    def episode_lengths(self) -> Array:
        return self.episode_bounds[:, 1] - self.episode_bounds[:, 0]

    @cached_property
    def episode_returns(self) -> Array:
        """Undiscounted return of each episode, float64."""
        return _frozen(np.add.reduceat(self.reward.astype(np.float64), self.episode_starts))

    @property
    def episodes(self) -> int:
        """Number of episodes."""
        return len(self.episode_bounds)

    def take_episodes(self, indices: Sequence[int] | Array) -> "Dataset":
        """The chosen episodes, in the order given."""
        chosen = np.asarray(indices, dtype=np.int64).reshape(-1)
        if chosen.size == 0 or chosen.min() < 0 or chosen.max() >= self.episodes:
            raise UniqError(f"data set {self.name}: choose episodes between 0 and {self.episodes - 1}, at least one.")
        rows = np.concatenate([np.arange(start, stop) for start, stop in self.episode_bounds[chosen]])
        columns = ("obs", "action", "reward", "next_obs", "mask", "episode_end")
        return replace(
            self,
            **{key: getattr(self, key)[rows] for key in columns},
            infos={key: value[rows] for key, value in self.infos.items()},
        )


def _frozen(array: Array) -> Array:
    """A read-only array that nobody else can write to; copied only when someone could."""
    if array.flags.writeable or array.base is not None or not array.flags.c_contiguous:
        array = np.array(array, order="C")
    array.setflags(write=False)
    return array
