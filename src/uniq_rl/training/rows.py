"""Where the transitions lie while runs train: on the device, or on the host when the device is too small.

Either way a batch is the same rows: which ones follows from a run's seed and step alone.
"""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from uniq_rl.algorithms import Algorithm, Batch, Spec, Windows
from uniq_rl.data import Dataset
from uniq_rl.data.preprocessing import Fitted
from uniq_rl.data.split import Folds

SLICE = 4096
"""Rows looked at together outside training: calibration's memory does not grow with its fold."""
STREAMED_BYTES = 64 * 2**20
"""Rows on their way to the device at a time; as many again wait behind them."""
DEVICE_SHARE = 0.6
"""Data larger than this share of the device's memory stay on the host."""


class Fold(NamedTuple):
    """A range of the packed rows."""

    offset: Any
    size: Any


class Rows(NamedTuple):
    """The rows a run may use, and for what."""

    train: Fold
    calibration: Fold
    heldout: Fold


TRANSITION_COLUMNS = ("obs", "action", "next_obs", "reward", "mask")
WINDOW_COLUMNS = ("obs", "action", "return_to_go", "time_step", "rows_left")


class Packed(NamedTuple):
    """One data set in the order train, calibration, held-out, as one matrix."""

    matrix: np.ndarray
    fitted: Fitted
    folds: Folds
    sizes: tuple[int, int, int]

    def ranges(self, offset: int) -> Rows:
        starts = offset + np.cumsum([0, *self.sizes[:-1]])
        return Rows(*(Fold(start, size) for start, size in zip(starts, self.sizes, strict=True)))


def columns_of(algorithm: Algorithm) -> tuple[str, ...]:
    """What the rows of a method hold, in order."""
    if algorithm.window_length is not None:
        return WINDOW_COLUMNS
    return (*TRANSITION_COLUMNS, "next_action") if algorithm.wants_next_action else TRANSITION_COLUMNS


def pack(
    fitted: Fitted, dataset: Dataset, folds: Folds, train: np.ndarray, names: tuple[str, ...] = TRANSITION_COLUMNS
) -> Packed:
    """One row per transition, so that a batch is one gather.

    What concerns the order of time is worked out before the rows are sorted into folds. For windows the episodes are
    whole in every fold, and in order, so that the rows of a window lie side by side.
    """
    columns = fitted.apply(dataset)
    if "next_action" in names:  # an episode's last row has none
        following = np.roll(columns["action"], -1, axis=0)
        columns["next_action"] = np.where(dataset.episode_end[:, None], np.float32(np.nan), following)
    if "return_to_go" in names:
        columns |= episode_columns(dataset)
    parts = [columns[name].reshape(dataset.size, -1) for name in names]
    order = np.concatenate([train, folds.calibration, folds.heldout])
    sizes = (len(train), len(folds.calibration), len(folds.heldout))
    return Packed(np.concatenate(parts, axis=1)[order], fitted, folds, sizes)


def unpack(rows: Array, spec: Spec) -> Batch:
    ends = np.cumsum([spec.obs_dim, spec.action_dim, spec.obs_dim, 1, 1])
    obs, action, next_obs, reward, mask, next_action = jnp.split(rows, ends, axis=-1)
    return Batch(obs, action, reward[..., 0], next_obs, mask[..., 0], next_action if next_action.shape[-1] else None)


def episode_columns(dataset: Dataset) -> dict[str, np.ndarray]:
    """Where each row stands in its episode, and what the episode still earned from there on, undiscounted."""
    starts, stops = (np.repeat(bound, dataset.episode_lengths) for bound in dataset.episode_bounds.T)
    row = np.arange(dataset.size)
    earned = np.concatenate([[0.0], np.cumsum(dataset.reward, dtype=np.float64)])
    columns = {"return_to_go": earned[stops] - earned[row], "time_step": row - starts, "rows_left": stops - 1 - row}
    return {name: column.astype(np.float32) for name, column in columns.items()}


def consecutive(positions: Array, length: int | None, size: int) -> Array:
    """`[...]` to `[..., length]`: each position and those after it, of `size` rows; without a length, as they are."""
    if length is None:
        return positions
    ahead = jnp.arange(length).reshape((1,) * positions.ndim + (length,))
    return jnp.minimum(positions[..., None] + ahead, size - 1)


def unpack_windows(rows: Array, spec: Spec) -> Windows:
    """Rows `[B, window, width]`; what lies beyond the episode of the first row is zero and masked."""
    width = spec.obs_dim + spec.action_dim
    inside = jnp.arange(rows.shape[1])[None] <= rows[:, :1, width + 2]
    rows = jnp.where(inside[..., None], rows, 0)
    return Windows(
        obs=rows[..., : spec.obs_dim],
        action=rows[..., spec.obs_dim : width],
        return_to_go=rows[..., width],
        time_step=rows[..., width + 1].astype(jnp.int32),
        mask=inside.astype(rows.dtype),
    )


def unpack_for(algorithm: Algorithm, rows: Array, spec: Spec) -> Batch | Windows:
    """The rows of one update as the method wants them."""
    return unpack(rows, spec) if algorithm.window_length is None else unpack_windows(rows, spec)


class Resident:
    """All rows on the device, once, whoever uses them."""

    def __init__(self, parts: Sequence[np.ndarray]) -> None:
        self.data = jax.device_put(np.concatenate(parts))

    @property
    def nbytes(self) -> int:
        return self.data.nbytes

    def take(self, positions: np.ndarray) -> Array:
        return self.data[positions]


class Streamed:
    """All rows in a memory-mapped file on the host; batches travel ahead of the updates that need them."""

    def __init__(self, parts: Sequence[np.ndarray]) -> None:
        self._file = tempfile.NamedTemporaryFile(prefix="uniq-rl-rows-")  # noqa: SIM115 - lives as long as the rows
        shape = (sum(len(part) for part in parts), parts[0].shape[1])
        self.data = np.memmap(self._file.name, np.float32, "w+", shape=shape)
        np.concatenate(parts, out=self.data)

    @property
    def nbytes(self) -> int:
        return self.data.nbytes

    def take(self, positions: np.ndarray) -> Array:
        return jnp.asarray(self.data[positions])

    def ahead(self, positions: Callable[[int, int], Array], length: int) -> Iterator[Array]:
        """Rows of `length` updates in pieces; the next piece is gathered while the caller uses this one."""
        row = self.data.shape[1] * self.data.itemsize
        per_update = positions(0, 1).size * row
        most = max(1, min(length, STREAMED_BYTES // per_update))
        piece = next(size for size in range(most, 0, -1) if length % size == 0)

        def gathered(start: int) -> Array:
            return self.take(np.asarray(positions(start, piece)))

        with ThreadPoolExecutor(max_workers=1) as thread:
            waiting = thread.submit(gathered, 0)
            for start in range(piece, length + 1, piece):
                rows = waiting.result()
                if start < length:
                    waiting = thread.submit(gathered, start)
                yield rows


def stored(parts: Sequence[np.ndarray], stream: bool | None) -> Resident | Streamed:
    """On the device if the rows fit there; `stream` decides otherwise."""
    if stream is None:
        limit = (jax.devices()[0].memory_stats() or {}).get("bytes_limit", float("inf"))
        stream = sum(part.nbytes for part in parts) > DEVICE_SHARE * limit
    return Streamed(parts) if stream else Resident(parts)
