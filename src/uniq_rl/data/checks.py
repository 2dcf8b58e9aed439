"""Checks shared by the `Dataset` type and by every loader: each fault becomes one sentence that names its place.

`where` is the beginning of that sentence, for example "hopper.hdf5: column `actions`". Rows count from 0.
"""

import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np

from uniq_rl.errors import UniqError

Array = np.ndarray[Any, np.dtype[Any]]

ACTION_TOLERANCE = 1e-4  # rounding in recorded actions; anything beyond it is another scale, not rounding


def printable(name: object) -> str:
    """A name from a file, fit for a sentence: damaged files have names with line breaks, and long ones."""
    text = "".join(character if character.isprintable() else "?" for character in str(name))
    return text if len(text) <= 60 else text[:60] + "..."


def listed(names: Iterable[object]) -> str:
    """The first few names, for "found: ..."."""
    return ", ".join(map(printable, itertools.islice(names, 8))) or "nothing"


def numeric(values: Any, where: str) -> Array:
    """The values as an array of bool, integer or real numbers."""
    try:
        array = np.asarray(values)
    except (ValueError, TypeError) as error:  # ragged lists
        raise UniqError(f"{where} is not a rectangular array of numbers; give rows of equal length.") from error
    if array.dtype.kind not in "biuf":
        raise UniqError(f"{where} holds {array.dtype} values; store plain numbers (float32) instead.")
    return array


def check_finite(array: Array, where: str) -> None:
    """Raise at the first NaN or infinity."""
    if np.isfinite(array).all():
        return
    index = np.argwhere(~np.isfinite(array))[0]
    place = f"row {index[0]}" + (f", column {index[1]}" if len(index) > 1 else "")
    value = array[tuple(index)]
    raise UniqError(f"{where} is {value} at {place}; remove the episode or repair the value (it must fit a float32).")


def to_float32(array: Array) -> Array:
    """Cast; what overflows becomes an infinity, which `check_finite` then reports in place of a warning."""
    with np.errstate(over="ignore"):
        return array.astype(np.float32, copy=False)


def table(values: Any, where: str) -> Array:
    """A finite float32 array [N, dim]."""
    array = numeric(values, where)
    if array.ndim != 2 or array.shape[1] == 0:
        advice = "reshape it to one flat vector per row" if array.ndim != 1 else "reshape it to (rows, 1)"
        raise UniqError(f"{where} has shape {array.shape} but must be (rows, dimensions); {advice}.")
    array = to_float32(array)
    check_finite(array, where)
    return array


def actions(values: Any, where: str) -> Array:
    """A finite float32 array [N, action_dim], clipped to [-1, 1] after a tolerance for rounding."""
    if numeric(values, where).dtype.kind != "f":
        raise UniqError(
            f"{where} holds {np.asarray(values).dtype} values, so the actions look discrete; only continuous actions "
            "are supported, as floating-point numbers in [-1, 1] or with their bounds, action_range=(low, high)."
        )
    array = table(values, where)
    excess = np.abs(array)
    if array.size and excess.max() > 1 + ACTION_TOLERANCE:
        row, column = np.unravel_index(excess.argmax(), array.shape)
        raise UniqError(
            f"{where} reaches {array[row, column]:g} at row {row}, column {column}, outside [-1, 1]; divide the "
            "actions by the bound of the action space, or give its bounds as action_range=(low, high)."
        )
    return np.clip(array, -1, 1)


def _flat(values: Any, where: str) -> Array:
    """One number per row; (N, 1) counts as (N,)."""
    array = numeric(values, where)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise UniqError(f"{where} has shape {array.shape} but must hold one number per row: (rows,) or (rows, 1).")
    return array


def vector(values: Any, where: str) -> Array:
    """A finite float32 array [N]."""
    array = to_float32(_flat(values, where))
    check_finite(array, where)
    return array


def flags(values: Any, where: str) -> Array:
    """A bool array [N] from 0/1 values of any type."""
    array = _flat(values, where)
    wrong = (array != 0) & (array != 1)
    if wrong.any():
        row = int(wrong.argmax())
        raise UniqError(f"{where} is {array[row]} at row {row} but may only be 0 or 1 (false or true).")
    return array.astype(bool)


def check_rows(columns: dict[str, Array], source: str) -> int:
    """The common number of rows, at least 2. The keys are the names a user knows the columns by."""
    first, reference = next(iter(columns.items()))
    rows = len(reference)
    for name, array in columns.items():
        if len(array) != rows:
            raise UniqError(
                f"{source}: column `{name}` has {len(array)} rows but `{first}` has {rows}; "
                "every column needs one row per transition."
            )
    if rows < 2:
        raise UniqError(f"{source} holds {rows} transition{'' if rows == 1 else 's'}; at least 2 are needed.")
    return rows
