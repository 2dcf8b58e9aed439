"""Tables that a Markdown text quotes, worked out from the raw files, so that no number in it is copied by hand.

A table stands between two comments, each at the beginning of a line; the first says what it is made of:

    <!-- quote: seeds bc@100000, td3_bc@100000 -->      the last score of every seed; a row for each set
    <!-- quote: methods bc@100000, dt@10000 -->         the same the other way round: a row for each method
    <!-- quote: scores uniq@1000000, iql@1000000 -->    mean and deviation over seeds, and the average over the sets
    <!-- quote: means uniq@1000000, iql@1000000 -->     the same of every seed's mean of the last ten evaluations
    <!-- quote: gaps uniq@1000000, iql@1000000 -->      the first minus the second, with 95 % intervals
    <!-- quote: curves edac@300000 -->                  the scores of every seed over the updates
    <!-- quote: costs sac_n-10, sac_n-500 -->           speed and memory, from the output of benchmarks/methods.py
    <!-- quote: mechanism uniq@1000000 -->              what calibrated uncertainty did on each set, mean over seeds
    <!-- quote: table controls -->                      a table of the page, whole
    <!-- quote: verdicts -->                            the paper's claims
    <!-- /quote -->

`bc@100000` are the runs of `bc` with 100,000 updates. A table has the sets on which all that it names were run, or
those of them that it names too: `curves hopper-medium, edac@300000`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from uniq_rl.errors import UniqError
from uniq_rl.evidence import tables
from uniq_rl.evidence.claims import verdicts
from uniq_rl.evidence.mechanism import error_correlation, last_of, mean_tau, share_above, share_lowered
from uniq_rl.evidence.results import RunResult, read_results
from uniq_rl.evidence.statistics import READING_NAMES, Interval, Reading, average, by_set, gain, gap_on_set
from uniq_rl.evidence.tables import COST_NAMES
from uniq_rl.evidence.variants import SETS, label, ordered_sets
from uniq_rl.evidence.wording import percent, signed
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
        align = "---" if kind in SENTENCES else "---:"
        return f"{block[1]}{tables.markdown_rows(columns, rows, align)}\n{block[4]}"

    return BLOCK.sub(table, text)


# What can be quoted


def seeds(names: Sequence[str], results: Sequence[RunResult], costs: Mapping[str, Any]) -> Rows:
    found, sets = runs_of(names, results)
    body = [[name, *(last_scores(column[name]) for column in found.values())] for name in sets]
    return [["built-in set", *found], *body]


def methods(names: Sequence[str], results: Sequence[RunResult], costs: Mapping[str, Any]) -> Rows:
    found, sets = runs_of(names, results)
    return [["method", *sets], *([name, *(last_scores(column[s]) for s in sets)] for name, column in found.items())]


def curves(names: Sequence[str], results: Sequence[RunResult], costs: Mapping[str, Any]) -> Rows:
    found, sets = runs_of(names, results)
    if len(sets) != 1:
        raise UniqError(f"{', '.join(found)} share {len(sets)} data sets; curves are quoted of one.")
    runs = [(f"{name}, seed {run.recipe.seed}", run) for name, column in found.items() for run in column[sets[0]]]
    scored = [dict(zip((line["step"] for line in run.evaluations), run.scores, strict=True)) for _, run in runs]
    steps = sorted(set().union(*scored))
    body = [[f"{step:,}", *(_score(line.get(step, np.nan)) for line in scored)] for step in steps]
    return [[f"{sets[0]}, updates", *(name for name, _ in runs)], *body]


def _score(score: float) -> str:
    return "-" if np.isnan(score) else f"{score:.1f}"


def scores(
    names: Sequence[str], results: Sequence[RunResult], costs: Mapping[str, Any], reading: Reading = "last"
) -> Rows:
    found, sets = runs_of(names, results)
    body = [[name, *(tables.score_value(column[name], reading).text for column in found.values())] for name in sets]
    means = [average(pooled(column, sets), reading) for column in found.values()]
    return [["built-in set", *found], *body, ["**average**", *(f"**{mean:.1f}**" for mean in means)]]


def gaps(names: Sequence[str], results: Sequence[RunResult], costs: Mapping[str, Any]) -> Rows:
    found, sets = runs_of(names, results)
    if len(found) != 2:
        raise UniqError(f"gaps are between two variants, not {len(found)}.")
    (a, ours), (b, theirs) = found.items()

    def row(title: str, chosen: Sequence[str], reading: Reading, difference: Interval) -> list[str]:
        runs = [pooled(column, chosen) for column in (ours, theirs)]
        gap = tables.interval_value(difference, runs[0], sign=True)
        return [title, *(f"{average(own, reading):.1f}" for own in runs), gap.text]

    body = [row(name, [name], "last", gap_on_set(ours[name], theirs[name])) for name in sets]
    readings: tuple[Reading, ...] = ("last", "mean_of_last", "mean_of_all")
    for reading in readings:
        total = gain(pooled(ours, sets), pooled(theirs, sets), reading)
        body.append(row(f"average, {READING_NAMES[reading]}", sets, reading, total))
    return [["built-in set", a, b, f"{a} minus {b} [95 %]"], *body]


def speed_and_memory(names: Sequence[str], results: Sequence[RunResult], costs: Mapping[str, Any]) -> Rows:
    header = ["configuration", "updates/s, 1 run", "time : IQL, 1 run", "time : IQL, 9 runs"]
    header += ["peak MB, 1 run", "peak : IQL, 1 run"]
    for name in names:
        if tables.cost_row(costs, name, runs=1) is None:
            raise UniqError(f"the cost of {name!r} was not measured.")
    titles = [COST_NAMES.get(name, label(name)) for name in names]
    cells = [[value.text for value in tables.cost_values(costs, name)] for name in names]
    return [header, *([title, *row] for title, row in zip(titles, cells, strict=True))]


def mechanism(names: Sequence[str], results: Sequence[RunResult], costs: Mapping[str, Any]) -> Rows:
    if len(names) != 1:
        raise UniqError("the mechanism is that of one variant, as in 'mechanism uniq@1000000'.")
    found, sets = runs_of(names, results)
    (column,) = found.values()

    def cell(runs: Sequence[RunResult], read: Callable[[RunResult], float | None], text: Callable[[float], str]) -> str:
        known = [number for run in runs if (number := read(run)) is not None]
        return text(float(np.mean(known))) if known else "-"

    quantities: dict[str, tuple[Callable[[RunResult], float | None], Callable[[float], str]]] = {
        "states with `u > 1`": (share_above, percent),
        "`tau(s)` lowered": (share_lowered, percent),
        "mean `tau(s)`": (mean_tau, "{:.3f}".format),
        "coverage": (partial(last_of, name="coverage"), lambda share: f"{100 * share:.1f} %"),
        "rank correlation of `sigma` with the error": (error_correlation, partial(signed, spec=".2f")),
    }
    body = [[name, *(cell(column[name], *quantity) for quantity in quantities.values())] for name in sets]
    return [["built-in set", *quantities], *body]


def whole_table(names: Sequence[str], results: Sequence[RunResult], costs: Mapping[str, Any]) -> Rows:
    known = tables.all_tables(results, costs)
    if len(names) != 1 or names[0] not in known:
        raise UniqError(f"there is no table {', '.join(names)!r} on the page, only {', '.join(known)}.")
    table = known[names[0]]
    return [table.columns, *([value.text for value in row] for row in table.rows)]


def claims(names: Sequence[str], results: Sequence[RunResult], costs: Mapping[str, Any]) -> Rows:
    body = [[verdict.claim, f"**{verdict.verdict}**", verdict.why] for verdict in verdicts(results, costs)]
    return [["claim", "verdict", "what was measured"], *body]


KINDS: dict[str, Callable[[Sequence[str], Sequence[RunResult], Mapping[str, Any]], Rows]] = {
    "seeds": seeds,
    "methods": methods,
    "scores": scores,
    "means": partial(scores, reading="mean_of_last"),
    "gaps": gaps,
    "curves": curves,
    "costs": speed_and_memory,
    "mechanism": mechanism,
    "table": whole_table,
    "verdicts": claims,
}


SENTENCES = {"verdicts"}
"""Kinds whose cells are words rather than numbers."""


def last_scores(runs: Sequence[RunResult]) -> str:
    return " / ".join("failed" if run.diverged else f"{run.last:.1f}" for run in runs)


def runs_of(names: Sequence[str], results: Sequence[RunResult]) -> tuple[Columns, list[str]]:
    """The runs of each name, under its title, and the sets that all of them were run on, or the named ones of these."""
    found: Columns = {}
    chosen = [name for name in names if name in SETS]
    for name in [name for name in names if name not in chosen]:
        variant, _, steps = name.partition("@")
        runs = [run for run in results if run.variant == variant and str(run.recipe.steps) == steps]
        if not runs:
            raise UniqError(f"there are no runs of {variant!r} with {steps or 'no'} updates; write it as 'iql@100000'.")
        found[label(variant)] = {key: sorted(own, key=lambda run: run.recipe.seed) for key, own in by_set(runs).items()}
    if not found:
        raise UniqError(f"a table of {', '.join(chosen)} names no runs; write them as 'iql@100000'.")
    shared = set.intersection(*(set(column) for column in found.values()))
    if not shared:
        raise UniqError(f"{', '.join(found)} share no data set.")
    if absent := [name for name in chosen if name not in shared]:
        raise UniqError(f"{', '.join(found)} were not all run on {absent[0]}.")
    return found, ordered_sets(chosen or shared)


def pooled(column: Mapping[str, Sequence[RunResult]], sets: Sequence[str]) -> list[RunResult]:
    return [run for name in sets for run in column[name]]
