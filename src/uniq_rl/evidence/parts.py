"""What pages are made of: sections, tables as the template wants them, and numbers as JSON can hold them."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from uniq_rl.evidence.tables import MEASURED, Table, published_columns

COLOURS = 10
"""Colours the style sheet knows; series beyond them share colours and differ by dashes."""
DASHES = (None, "6 3", "2 3", "8 3 2 3", "1 2", "12 4", "4 1")
Json = dict[str, Any]


def section(
    id: str,
    short: str,
    title: str,
    text: Sequence[str] = (),
    charts: str = "",
    grids: Sequence[str] = (),
    tables: Sequence[Json] = (),
    verdicts: Sequence[Json] = (),
    missing: Sequence[str] = (),
) -> Json:
    """One part of a page: `short` names it in the list of sections, `missing` says what was not measured."""
    return {
        "id": id,
        "short": short,
        "title": title,
        "text": list(text),
        "charts": [name for name in (charts, *grids) if name],
        "tables": list(tables),
        "verdicts": list(verdicts),
        "missing": list(missing),
    }


def shown(id: str, table: Table, *, pinned: Sequence[str] = (), search: bool = False, tall: bool = False) -> Json:
    """A table for the template. Rows whose name begins like one of `pinned` stay below when others are sorted."""
    outside = published_columns(table)
    silent = ("", "-", "not measured")
    words = [
        all(value.number is None for value in column) and any(value.text not in silent for value in column)
        for column in zip(*table.rows, strict=True)
    ] or [False] * len(table.columns)
    classes = [
        " ".join(name for name, is_so in (("published", out), ("words", word)) if is_so)
        for out, word in zip(outside, words, strict=True)
    ]
    rows = [
        {
            "pinned": row[0].text.startswith(tuple(pinned)) if pinned else False,
            "cells": [
                {
                    "text": value.text,
                    "number": None if value.number is None or not math.isfinite(value.number) else repr(value.number),
                    "note": value.note,
                    "source": value.source or MEASURED,
                    "command": value.command,
                    "class": kind,
                    "run": None,
                }
                for value, kind in zip(row, classes, strict=True)
            ],
        }
        for row in table.rows
    ]
    heads = [{"name": name, "class": kind} for name, kind in zip(table.columns, classes, strict=True)]
    return {
        "id": id,
        "title": table.title,
        "caption": table.caption,
        "columns": heads,
        "rows": rows,
        "published": any(outside) and not all(outside[1:]),
        "search": search,
        "tall": tall,
    }


def opening_runs(table: Json) -> Json:
    """The first cell of each row opens the run of that number."""
    for number, row in enumerate(table["rows"]):
        row["cells"][0] |= {"run": number, "command": "", "note": ""}
    return table


def series(key: str, label: str, number: int, dashes: int = 0, **more: Any) -> Json:
    """A method, or a run, as charts show it: always with the same colour and dashes."""
    dash = DASHES[(number // COLOURS + dashes) % len(DASHES)]
    found = {"key": key, "label": label, "short": label, "colour": number % COLOURS, "on": True, "minor": False, **more}
    return found if dash is None else found | {"dash": dash}


def line(key: str, x: Iterable[float], y: Any, low: Any = None, high: Any = None) -> Json:
    found = {"series": key, "x": [int(step) for step in x], "y": finite(y)}
    return found if low is None or high is None else found | {"low": finite(low), "high": finite(high)}


def finite(values: Any, digits: int = 6) -> list[float | None]:
    """Numbers to so many significant digits, None where there is none."""
    numbers = [math.nan if value is None else float(value) for value in values]
    return [float(f"{number:.{digits}g}") if math.isfinite(number) else None for number in numbers]


def spread(columns: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean over rows, and the mean less and plus the sample standard deviation, which one row does not have."""
    mean = columns.mean(axis=0)
    std = columns.std(axis=0, ddof=1) if len(columns) > 1 else np.full_like(mean, np.nan)
    return mean, mean - std, mean + std


def shapes(distributions: Mapping[str, Any]) -> list[Json]:
    """Histograms among what is known of a policy; others are passed over."""
    names = {"sigma": "σ(s), disagreement", "u": "u(s), calibrated", "tau": "τ(s)", "delta": "Δ(s), spread of returns"}
    return [
        {"name": names.get(name, name), "edges": finite(found["edges"]), "counts": [int(n) for n in found["counts"]]}
        for name, found in distributions.items()
        if isinstance(found, Mapping) and {"edges", "counts"} <= set(found) and len(found["counts"])
    ]


def listed(config: Mapping[str, Any]) -> list[list[str]]:
    """Names and values, as a list of definitions."""
    return [[str(name), written(value)] for name, value in config.items()]


def written(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {written(item)}" for name, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(written(item) for item in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    return "none" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
