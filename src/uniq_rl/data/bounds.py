"""Action spaces other than [-1, 1]: rescaled when the data come in, restored when a policy acts."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from uniq_rl.data import checks
from uniq_rl.data.checks import Array
from uniq_rl.errors import UniqError

ActionRange = str | tuple[Any, Any] | None
"""`(low, high)`, each a number or one number per dimension; "data" for the extremes of the data; None for [-1, 1]."""


@dataclass(frozen=True)
class Bounds:
    """The range of each action dimension as recorded, float32 `[action_dim]`."""

    low: Array
    high: Array

    def are_unit(self) -> bool:
        """Whether there is nothing to restore."""
        return bool((self.low == -1).all() and (self.high == 1).all())

    def scale(self, raw: Array) -> Array:
        """From the recorded range to [-1, 1], float64."""
        low, high = self.low.astype(np.float64), self.high.astype(np.float64)
        scaled: Array = 2 * ((raw - low) / (high - low)) - 1
        return scaled

    def restore(self, action: Array) -> Array:
        """From [-1, 1] to the recorded range, float32."""
        low, high = self.low.astype(np.float64), self.high.astype(np.float64)
        restored: Array = (low + (action.astype(np.float64) + 1) / 2 * (high - low)).astype(np.float32)
        return restored


def checked(low: Any, high: Any, action_dim: int, where: str) -> Bounds:
    """Bounds of `action_dim` dimensions; a single number stands for all of them."""
    columns = []
    for side, values in (("low", low), ("high", high)):
        bound = checks.to_float32(checks.numeric(values, f"{where}: action_{side}"))
        if bound.ndim > 1 or (bound.ndim == 1 and len(bound) != action_dim):
            raise UniqError(
                f"{where}: action_{side} has shape {bound.shape} but the actions have {action_dim} dimensions; give "
                "one number, or one per dimension."
            )
        columns.append(np.array(np.broadcast_to(bound, (action_dim,))))
    for dimension, (least, most) in enumerate(zip(*columns, strict=True)):
        if not (np.isfinite(least) and np.isfinite(most) and least < most):
            raise UniqError(
                f"{where}: the action range of dimension {dimension} is [{least:g}, {most:g}]; give finite bounds, the "
                "lower one first."
            )
    return Bounds(*columns)


def bounded_actions(values: Any, action_range: ActionRange, where: str) -> tuple[Array, Bounds | None]:
    """Actions in [-1, 1], and the bounds they were rescaled from; None if they needed no rescaling."""
    if action_range is None:
        return checks.actions(values, where), None
    raw = checks.numeric(values, where)
    if raw.dtype.kind == "b" or (raw.dtype.kind != "f" and isinstance(action_range, str)):
        return checks.actions(values, where), None  # which refuses discrete actions
    checks.table(raw, where)  # finite, two dimensions
    bounds = _bounds(raw, action_range, where)
    if (bounds.low == -1).all() and (bounds.high == 1).all():
        return checks.actions(raw.astype(np.float32), where), None
    scaled = bounds.scale(raw)
    excess = np.abs(scaled)
    if excess.size and excess.max() > 1 + checks.ACTION_TOLERANCE:
        row, column = np.unravel_index(excess.argmax(), excess.shape)
        raise UniqError(
            f"{where} is {raw[row, column]:g} at row {row}, column {column}, outside the action range "
            f"[{bounds.low[column]:g}, {bounds.high[column]:g}]; widen the range or repair the row."
        )
    return np.clip(scaled, -1, 1).astype(np.float32), bounds


def _bounds(raw: Array, action_range: str | tuple[Any, Any], where: str) -> Bounds:
    if isinstance(action_range, str):
        if action_range != "data":
            raise UniqError(f'{where}: the action range is {action_range!r} but must be (low, high) or "data".')
        return _extremes(raw, where)
    try:
        low, high = action_range
    except (TypeError, ValueError):
        raise UniqError(f'{where}: the action range is {action_range!r} but must be (low, high) or "data".') from None
    return checked(low, high, raw.shape[1], where)


def _extremes(raw: Array, where: str) -> Bounds:
    if not len(raw):
        raise UniqError(f"{where} has no rows to read the action range from; give (low, high).")
    least, most = raw.min(axis=0), raw.max(axis=0)
    constant = np.flatnonzero(least == most)
    if len(constant):
        raise UniqError(
            f"{where} never changes in column {constant[0]}, so its range cannot be read from the data; give "
            "(low, high)."
        )
    # Outwards where float32 rounds inwards, so that no action lies outside its own range.
    low, high = checks.to_float32(least), checks.to_float32(most)
    low = np.where(low > least, np.nextafter(low, np.float32(-np.inf)), low)
    high = np.where(high < most, np.nextafter(high, np.float32(np.inf)), high)
    return checked(low, high, raw.shape[1], where)
