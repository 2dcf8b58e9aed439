"""Data of one's own as a table, one row per step: Parquet or CSV, read by PyArrow (extra `tables`)."""

import dataclasses
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from uniq_rl.data import checks
from uniq_rl.data.arrays import from_columns
from uniq_rl.data.bounds import ActionRange
from uniq_rl.data.checks import Array
from uniq_rl.data.dataset import Dataset
from uniq_rl.data.names import name_of_file, task_of
from uniq_rl.errors import UniqError

SUFFIXES = (".parquet", ".pq", ".csv")
COLUMNS_FILE = "columns.toml"

MAX_ROWS_PER_BYTE = 2**14  # far beyond what any encoding of real data reaches: a forged header
ALLOWANCE = 2**20  # rows


@dataclass(frozen=True)
class Columns:
    """Which columns of a table mean what. A name that ends in * stands for all columns that begin so.

    Numbered columns (obs_0, obs_1, ...) are taken in the order of their numbers. A column may also hold lists of equal
    length. A change in `episode` ends an episode; where the task did not end there, it was cut off.
    """

    obs: tuple[str, ...] = ("obs_*",)
    action: tuple[str, ...] = ("action_*",)
    reward: str = "reward"
    terminated: str = "terminated"
    truncated: str | None = None
    episode: str | None = None
    next_obs: tuple[str, ...] | None = None
    action_low: float | tuple[float, ...] | None = None
    action_high: float | tuple[float, ...] | None = None

    @classmethod
    def from_toml(cls, path: str | os.PathLike[str]) -> "Columns":
        """Read a small TOML file: obs = ["x", "y"], reward = "r", terminated = "done", ..."""
        path = Path(path)
        try:
            values = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UniqError(f"{path} cannot be read as TOML ({' '.join(str(error).split())}); repair it.") from None
        return cls.from_mapping(values, str(path))

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any], where: str = "columns") -> "Columns":
        known = [field.name for field in dataclasses.fields(cls)]
        checked: dict[str, Any] = {}
        for key, value in values.items():
            if key not in known:
                raise UniqError(f"{where}: `{key}` is unknown; the entries are {', '.join(known)}.")
            if key in ("action_low", "action_high"):
                checked[key] = tuple(value) if isinstance(value, list | tuple) else value
                continue
            several = key in ("obs", "action", "next_obs")
            names = (value,) if isinstance(value, str) else value
            valid = isinstance(names, list | tuple) and names and all(isinstance(name, str) for name in names)
            if not valid or (len(names) > 1 and not several):
                raise UniqError(f"{where}: `{key}` is {value!r} but must be a column name{' or a list' * several}.")
            checked[key] = tuple(names) if several else names[0]
        return cls(**checked)


def load_table(
    path: str | os.PathLike[str],
    columns: Columns | Mapping[str, Any] | str | os.PathLike[str] | None = None,
    name: str | None = None,
    task: str | None = None,
    action_range: ActionRange = None,
) -> Dataset:
    """Read a Parquet or CSV file.

    `columns` is a `Columns`, a mapping or a TOML file; by default `columns.toml` beside the table, or else obs_0,
    obs_1, ..., action_0, ..., reward, terminated and, where they exist, truncated, episode and next_obs_0, ...
    """
    path = Path(path)
    table = _read(path)
    chosen = _with_defaults(_columns(path, columns), table.column_names)
    if table.num_rows == 0:
        raise UniqError(f"{path} has a header but no rows; give one row per step.")
    arrays: dict[str, Any] = {
        "obs": _matrix(table, chosen.obs, path),
        "action": _matrix(table, chosen.action, path),
        "reward": _numbers(table, chosen.reward, path),
        "terminated": _flags(table, chosen.terminated, path),
    }
    if chosen.next_obs is not None:
        arrays["next_obs"] = _matrix(table, chosen.next_obs, path)
    if chosen.truncated is not None:
        arrays["truncated"] = _flags(table, chosen.truncated, path)
    if chosen.episode is not None:
        ends = _ends_of_ids(_column(table, chosen.episode, path), f"{path}: column `{chosen.episode}`")
        arrays["truncated"] = arrays.get("truncated", False) | ends
    for side in ("action_low", "action_high"):
        if getattr(chosen, side) is not None:
            arrays[side] = getattr(chosen, side)
    return from_columns(
        arrays,
        source=str(path),
        name=name or name_of_file(path),
        task=task or task_of(path.name),
        action_range=action_range,
    )


def _columns(path: Path, columns: Columns | Mapping[str, Any] | str | os.PathLike[str] | None) -> Columns:
    if isinstance(columns, Columns):
        return columns
    if isinstance(columns, Mapping):
        return Columns.from_mapping(columns)
    if columns is not None:
        return Columns.from_toml(columns)
    beside = path.with_name(COLUMNS_FILE)
    return Columns.from_toml(beside) if beside.is_file() else Columns()


def _with_defaults(columns: Columns, found: list[str]) -> Columns:
    """Optional columns under their own names are used where they exist, and plain `obs` where nothing is numbered."""
    changes: dict[str, Any] = {}
    for key in ("truncated", "episode"):
        if getattr(columns, key) is None and key in found:
            changes[key] = key
    if columns.next_obs is None and any(name.startswith("next_obs_") for name in found):
        changes["next_obs"] = ("next_obs_*",)
    for key in ("obs", "action", "next_obs"):
        pattern = changes.get(key, getattr(columns, key))
        if key in found and pattern in (None, (f"{key}_*",)) and not any(name.startswith(f"{key}_") for name in found):
            changes[key] = (key,)
    return dataclasses.replace(columns, **changes)


# --- reading ---


def _read(path: Path) -> Any:
    """The whole table; whatever Arrow says about a damaged file becomes one sentence."""
    try:
        import pyarrow
    except ImportError:
        raise UniqError(f"{path}: tables are read by PyArrow; install it with the extra uniq-rl[tables].") from None
    if not path.is_file():
        raise UniqError(f"{path} does not exist or is not a file; check the path.")
    if path.stat().st_size == 0:
        raise UniqError(f"{path} is empty; give a header and one row per step.")
    try:
        table = _read_csv(path) if path.suffix.lower() == ".csv" else _read_parquet(path)
        table.column_names  # noqa: B018  decoded here, where names that are no text are refused
        return table
    except (pyarrow.ArrowException, OSError, ValueError, TypeError, KeyError, OverflowError, MemoryError) as error:
        reason = " ".join(str(error).split())
        reason = reason if len(reason) < 200 else reason[:200] + " ..."
        raise UniqError(
            f"{path} cannot be read as a table: it is damaged, cut short or of another format ({reason}); write it "
            "again."
        ) from error


def _read_csv(path: Path) -> Any:
    from pyarrow import csv

    with open(path, "rb") as file:
        header = file.readline(2**16)
    delimiter = next((mark for mark in (",", ";", "\t") if mark.encode() in header), ",")
    return csv.read_csv(
        path,
        parse_options=csv.ParseOptions(delimiter=delimiter),
        read_options=csv.ReadOptions(use_threads=False),  # only so do its messages name the row
        convert_options=csv.ConvertOptions(null_values=[""], strings_can_be_null=True),  # "nan" is a number
    )


def _read_parquet(path: Path) -> Any:
    from pyarrow import parquet

    with parquet.ParquetFile(path, page_checksum_verification=True) as file:
        if not 0 <= file.metadata.num_rows <= MAX_ROWS_PER_BYTE * path.stat().st_size + ALLOWANCE:
            raise ValueError(f"it declares {file.metadata.num_rows} rows in {path.stat().st_size} bytes")
        table = file.read(use_threads=False)
    table.validate(full=True)
    return table


# --- columns ---


def _column(table: Any, name: str, path: Path) -> Any:
    """One column as one piece."""
    count = table.column_names.count(name)
    if count != 1:
        found = checks.listed(table.column_names)
        fault = (
            f"has no column `{name}` (found: {found})"
            if not count
            else f"has {count} columns named `{checks.printable(name)}`"
        )
        raise UniqError(f"{path} {fault}; rename a column, or say in {COLUMNS_FILE} which columns mean what.")
    column = table.column(name)
    if column.null_count:
        row = int(np.argmax(column.is_null().to_numpy()))
        raise UniqError(
            f"{path}: column `{checks.printable(name)}` is empty at row {row}; fill it in or remove the episode."
        )
    return column.combine_chunks()


def _matrix(table: Any, names: tuple[str, ...], path: Path) -> Array:
    """[rows, dimensions] from all columns the names stand for."""
    expanded = [label for name in names for label in _expanded(name, table.column_names, path)]
    return np.concatenate(
        [np.reshape(_numbers(table, label, path), (table.num_rows, -1)) for label in expanded], axis=1
    )


def _expanded(name: str, found: list[str], path: Path) -> list[str]:
    """The columns a name stands for: itself, or for `obs_*` all that begin so."""
    if not name.endswith("*"):
        return [name]
    prefix = name[:-1]
    matching = [label for label in found if label.startswith(prefix)]
    if not matching:
        shown = checks.listed(found)
        raise UniqError(
            f"{path} has no column `{name}` (found: {shown}); rename columns, or say in {COLUMNS_FILE} which columns "
            "mean what."
        )
    numbers = [label.removeprefix(prefix) for label in matching]
    if all(number.isdecimal() for number in numbers):
        matching.sort(key=lambda label: int(label.removeprefix(prefix)))
    return matching


def _numbers(table: Any, name: str, path: Path) -> Array:
    """[rows], or [rows, length] for a column of lists."""
    import pyarrow

    column, where = _column(table, name, path), f"{path}: column `{checks.printable(name)}`"
    kind = pyarrow.types
    length = None
    if kind.is_list(column.type) or kind.is_large_list(column.type) or kind.is_fixed_size_list(column.type):
        values = column.flatten()
        lengths = np.asarray(column.value_lengths())
        length = int(lengths[0])
        if values.null_count or (lengths != length).any() or length == 0:
            raise UniqError(f"{where} holds lists of unequal length or with gaps; give lists of equal length.")
        column = values
    if kind.is_decimal(column.type) or kind.is_float16(column.type):
        column = column.cast(pyarrow.float64())
    if kind.is_string(column.type) or kind.is_large_string(column.type):
        raise _not_a_number(column, where)
    if not (kind.is_integer(column.type) or kind.is_floating(column.type) or kind.is_boolean(column.type)):
        raise UniqError(f"{where} holds {column.type} values; store plain numbers instead.")
    array = np.asarray(column.to_numpy(zero_copy_only=False))
    checks.check_finite(array, where)
    return array if length is None else array.reshape(table.num_rows, length)


def _flags(table: Any, name: str, path: Path) -> Array:
    return checks.flags(_numbers(table, name, path), f"{path}: column `{name}`")


def _not_a_number(column: Any, where: str) -> UniqError:
    for row, text in enumerate(column.to_pylist()):
        try:
            float(text)
        except ValueError:
            return UniqError(f"{where} is {text[:40]!r} at row {row}, which is not a number; repair the row.")
    return UniqError(f"{where} holds text; store plain numbers instead.")


def _ends_of_ids(column: Any, where: str) -> Array:
    """[rows] bool: the last row of each id."""
    ids = np.asarray(column.dictionary_encode().indices)
    ends = np.append(ids[1:] != ids[:-1], True)
    if ends.sum() != len(np.unique(ids)):
        first = next(row for row in np.flatnonzero(ends)[:-1] + 1 if ids[row] in ids[: row - 1])
        raise UniqError(
            f"{where} comes back to an earlier episode at row {first}; sort the rows by episode and step, and give "
            "every episode an id of its own."
        )
    return ends
