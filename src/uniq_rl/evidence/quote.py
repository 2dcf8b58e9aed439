"""Tables that a Markdown text quotes, worked out from the raw files, so that no number in it is copied by hand.

A table stands between two comments, each at the beginning of a line; the first says what it is made of:

    <!-- quote: seeds bc@100000, td3_bc@100000 -->      the last score of every seed; a row for each set
    <!-- quote: methods bc@100000, dt@10000 -->         the same the other way round: a row for each method
    <!-- quote: scores uniq@1000000, iql@1000000 -->    mean and deviation over seeds, and the average over the sets
    <!-- quote: costs sac_n-10, sac_n-500 -->           speed and memory, from the output of benchmarks/methods.py
    <!-- /quote -->

`bc@100000` are the runs of `bc` with 100,000 updates. A table has the sets on which all that it names were run.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from uniq_rl.errors import UniqError
from uniq_rl.evidence import tables
from uniq_rl.evidence.results import RunResult, read_results
from uniq_rl.evidence.statistics import by_set
from uniq_rl.evidence.tables import COST_NAMES
from uniq_rl.evidence.variants import label, ordered_sets
from uniq_rl.storage import write_atomically

BLOCK = re.compile(
    r"^(<!-- quote: (?P<kind>\S+)(?P<names>[^\n]*?) -->\n).*?^(<!-- /quote -->)$", re.DOTALL | re.MULTILINE
)
OPENING, CLOSING = "<!-- quote:", "<!-- /quote -->"

Rows = list[list[str]]
Columns = dict[str, dict[str, list[RunResult]]]
"""By name, then by set."""


def write_quotes(folder: Path, texts: Sequence[Path], costs: Mapping[str, Any] | None = None) -> list[Path]:
    """Bring the quoted tables up to date; which texts changed. All are worked out before any is written."""
    results = read_results(folder)
    costs = tables.read_costs() if costs is None else costs
    changed = {}
    for path in texts:
        try:
            before = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UniqError(f"{path} cannot be read: {error}.") from None
        try:
            after = quoted(before, results, costs)
        except UniqError as error:
            raise UniqError(f"{path}: {error}") from None
        if after != before:
            changed[path] = after
    for path, text in changed.items():
        write_atomically(path, text.encode())
    return list(changed)


def quoted(text: str, results: Sequence[RunResult], costs: Mapping[str, Any]) -> str:
    opened, closed = (sum(line.startswith(mark) for line in text.splitlines()) for mark in (OPENING, CLOSING))
    if not opened == closed == len(BLOCK.findall(text)):
        raise UniqError(f"every {OPENING} ... --> needs a line of its own and a {CLOSING} of its own.")

    def table(block: re.Match[str]) -> str:
        kind, names = block["kind"], [name.strip() for name in block["names"].split(",")]
        if kind not in KINDS:
            raise UniqError(f"there is no table {kind!r} to quote, only {', '.join(KINDS)}.")
        columns, *rows = KINDS[kind](names, results, costs)
        return f"{block[1]}{tables.markdown_rows(columns, rows)}\n{block[4]}"

    return BLOCK.sub(table, text)


# What can be quoted


def seeds(names: Sequence[str], results: Sequence[RunResult], costs: Mapping[str, Any]) -> Rows:
    found, sets = runs_of(names, results)
    body = [[name, *(last_scores(column[name]) for column in found.values())] for name in sets]
    return [["built-in set", *found], *body]


def methods(names: Sequence[str], results: Sequence[RunResult], costs: Mapping[str, Any]) -> Rows:
    found, sets = runs_of(names, results)
    return [["method", *sets], *([name, *(last_scores(column[s]) for s in sets)] for name, column in found.items())]


def scores(names: Sequence[str], results: Sequence[RunResult], costs: Mapping[str, Any]) -> Rows:
    found, sets = runs_of(names, results)
    body = [[name, *(tables.score_value(column[name]).text for column in found.values())] for name in sets]
    means = [np.mean([np.mean([run.last for run in column[name]]) for name in sets]) for column in found.values()]
    return [["built-in set", *found], *body, ["**average**", *(f"**{mean:.1f}**" for mean in means)]]


def speed_and_memory(names: Sequence[str], results: Sequence[RunResult], costs: Mapping[str, Any]) -> Rows:
    header = ["configuration", "updates/s, 1 run", "time : IQL, 1 run", "time : IQL, 9 runs"]
    header += ["peak MB, 1 run", "peak : IQL, 1 run"]
    for name in names:
        if tables.cost_row(costs, name, runs=1) is None:
            raise UniqError(f"the cost of {name!r} was not measured.")
    titles = [COST_NAMES.get(name, label(name)) for name in names]
    cells = [[value.text for value in tables.cost_values(costs, name)] for name in names]
    return [header, *([title, *row] for title, row in zip(titles, cells, strict=True))]


KINDS: dict[str, Callable[[Sequence[str], Sequence[RunResult], Mapping[str, Any]], Rows]] = {
    "seeds": seeds,
    "methods": methods,
    "scores": scores,
    "costs": speed_and_memory,
}


def last_scores(runs: Sequence[RunResult]) -> str:
    return " / ".join("failed" if run.diverged else f"{run.last:.1f}" for run in runs)


def runs_of(names: Sequence[str], results: Sequence[RunResult]) -> tuple[Columns, list[str]]:
    """The runs of each name, under its title, and the sets that all of them were run on."""
    found: Columns = {}
    for name in names:
        variant, _, steps = name.partition("@")
        runs = [run for run in results if run.variant == variant and str(run.recipe.steps) == steps]
        if not runs:
            raise UniqError(f"there are no runs of {variant!r} with {steps or 'no'} updates; write it as 'iql@100000'.")
        found[label(variant)] = {key: sorted(own, key=lambda run: run.recipe.seed) for key, own in by_set(runs).items()}
    shared = set.intersection(*(set(column) for column in found.values()))
    if not shared:
        raise UniqError(f"{', '.join(found)} share no data set.")
    return found, ordered_sets(shared)
