"""The tables of the evidence, worked out from raw results alone, and how they are written.

A column belongs to one variant at one budget, and its title says both. Published scores stand behind the measured ones
in columns of their own. Every measured value carries the command that makes it again.
"""

import json
import math
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from uniq_rl.errors import UniqError
from uniq_rl.evidence import published
from uniq_rl.evidence.mechanism import mean_tau, share_above
from uniq_rl.evidence.results import RunResult
from uniq_rl.evidence.statistics import (
    READING_NAMES,
    READINGS,
    Interval,
    Reading,
    average,
    by_set,
    cell,
    columns,
    gain,
    interquartile_mean,
    probability_of_improvement,
)
from uniq_rl.evidence.variants import (
    ABLATION_SETS,
    ABLATIONS,
    CONTROLS,
    IQL,
    METHODS,
    ONE,
    REGENERATED,
    REGENERATED_SETS,
    SETS,
    UNIQ,
    command,
    in_order,
    on_sets,
)
from uniq_rl.evidence.wording import count, percent, thousands

MEASURED = "measured"
COSTS = Path("benchmarks") / "results" / "methods-h200.json"
COST_COMMAND = f"python benchmarks/methods.py --out {COSTS.as_posix()}"
COST_NAMES = {
    "sac_n-10": "SAC-N (N = 10)",
    "sac_n-500": "SAC-N (N = 500)",
    "edac-10": "EDAC (N = 10)",
    "edac-50": "EDAC (N = 50)",
    "dt-64": "DT (64 windows)",
    "dt": "DT (4096 windows)",
}
"""Configurations of the cost benchmark that are more than a method's name."""


@dataclass(frozen=True)
class Value:
    """One cell of a table, as it is shown and as a number."""

    text: str
    number: float | None = None
    note: str = ""
    source: str = MEASURED
    """`measured`, or who published it, with data and physics; empty for what is neither, like the name of a row."""
    command: str = ""


@dataclass(frozen=True)
class Table:
    title: str
    caption: str
    columns: list[str]
    rows: list[list[Value]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if any(len(row) != len(self.columns) for row in self.rows):
            raise UniqError(f"A row of {self.title!r} does not have the {len(self.columns)} cells of its header.")


def all_tables(results: Sequence[RunResult], costs: Mapping[str, Any] | None = None) -> dict[str, Table]:
    """Every table by its short name, which also names its files."""
    return {
        "table-1": main_table(results),
        "table-2": cost_table(results, costs),
        "table-3": ablation_table(results),
        "controls": controls_table(results),
        "regenerated": regenerated_table(results),
    }


# Tables


def main_table(results: Sequence[RunResult]) -> Table:
    """Table 1: nine sets x methods, with averages under every reading, and published columns behind."""
    found = ordered_columns(on_sets(results, SETS), METHODS)
    titles = [f"{METHODS[variant]}, {budget(steps)}" for variant, steps in found]
    nothing = [missing(column.source) for column in published.COLUMNS]
    rows = []
    for name in SETS:
        scores = [published_value(column, column.scores[name]) for column in published.COLUMNS]
        rows.append([named(name), *(score_value(on_sets(runs, [name])) for runs in found.values()), *scores])
    for reading in READINGS:
        means = [_average_value(runs, READING_NAMES[reading], average(runs, reading)) for runs in found.values()]
        rows.append([named(f"average, {READING_NAMES[reading]}"), *means, *nothing])
    printed = [published_value(column, column.average) for column in published.COLUMNS]
    rows.append([named("average, as published"), *(Value("-") for _ in found), *printed])
    pooled = [interval_value(interquartile_mean(runs), runs) for runs in found.values()]
    rows.append([named("interquartile mean, last [95 %]"), *pooled, *nothing])
    better = [_better_than_iql(found, key) for key in found]
    rows.append([named("P(better than IQL), last [95 %]"), *better, *nothing])
    rows.append([named("seeds"), *(_seeds(runs) for runs in found.values()), *nothing])
    origins = [Value(f"{c.data}; {c.physics}", source=c.source) for c in published.COLUMNS]
    rows.append([named("data; physics"), *(Value(origin(runs)) for runs in found.values()), *origins])
    caption = (
        "D4RL normalised score, mean ± sample standard deviation (ddof = 1, '-' with one seed) of the last evaluation "
        "over seeds; the budget in updates stands in the title of each column. A run with fewer than ten evaluations "
        "counts as many as it has among its last ten. The best evaluation is an oracle: "
        "nobody without a simulator could have picked it. † some seeds diverged and count as 0. Intervals are 95 %, "
        "by stratified bootstrap over seeds; P(better than IQL) compares equal budgets only. Columns marked "
        "'published' were printed by others, on other data and other physics, as their last row says."
    )
    title = "Table 1: scores on the nine sets"
    return Table(title, caption, ["set", *titles, *(column.title for column in published.COLUMNS)], rows)


def cost_table(results: Sequence[RunResult], costs: Mapping[str, Any] | None = None) -> Table:
    """Table 2: time and memory of an update relative to IQL's, beside the measured average score."""
    costs = read_costs() if costs is None else costs
    found = ordered_columns(on_sets(results, SETS), METHODS)
    rows = []
    for method, name in METHODS.items():
        if method == ONE:
            continue  # the same program as UNIQ
        runs = widest(found, method)
        score = _budgeted_average(runs) if runs else missing()
        for configuration in configurations(costs, method) or [method]:
            shown = COST_NAMES.get(configuration, name) if costs else name
            rows.append([named(shown), *cost_values(costs, configuration), _paper_memory(method), score])
    where = (costs.get("hardware") or {}).get("device", "unknown hardware") if costs else "not measured yet"
    caption = (
        f"Time of an update and peak device memory beyond the data, halfcheetah sizes, published settings ({where}), "
        "as multiples of IQL's with as many runs; 9 runs train as one program. The score is the measured average of "
        "the last evaluation over the nine sets, at the budget in brackets (that with the most sets): the method's as "
        "it was run, whichever configuration was timed."
    )
    head = ["method", "updates/s (1 run)", "time : IQL (1 run)", "time : IQL (9 runs)", "peak MB (1 run)"]
    head += ["memory : IQL (1 run)", "peak MB (published: the paper)", "average score, last"]
    return Table("Table 2: cost", caption, head, rows)


def ablation_table(results: Sequence[RunResult]) -> Table:
    """Table 3: what each part of UNIQ is worth."""
    found = ordered_columns(on_sets(results, ABLATION_SETS), ABLATIONS)

    def cells(variant: str, steps: int) -> list[Value]:
        runs, full = found[variant, steps], found.get((UNIQ, steps), [])
        scores = [score_value(on_sets(runs, [name])) for name in ABLATION_SETS]
        mean = _average_value(runs, "last", average(runs), len(ABLATION_SETS))
        return [*scores, mean, missing() if variant == UNIQ else _minus_full(runs, full)]

    caption = (
        "D4RL normalised score of the last evaluation, mean ± sample standard deviation over seeds. The last column is "
        "the average minus that of full UNIQ at the same budget over the sets both have, with its 95 % bootstrap "
        "interval. Full UNIQ has the paper's preset: κ = 0 and τ_max = 0.95 on hopper-medium-replay, κ = 0.5 and "
        "τ_max = 0.9 on the others; N_v = 3, reading = effective. † some seeds diverged and count as 0."
    )
    head = ["variant", "updates", *ABLATION_SETS, "average", "minus full UNIQ [95 %]"]
    return Table("Table 3: ablations", caption, head, variant_rows(found, ABLATIONS, len(head), cells))


def controls_table(results: Sequence[RunResult]) -> Table:
    """UNIQ beside what it nearly is when its mechanism does not switch on."""
    found = ordered_columns(on_sets(results, SETS), CONTROLS)

    def cells(variant: str, steps: int) -> list[Value]:
        runs, ours = found[variant, steps], found.get((UNIQ, steps), [])
        readings = [_average_value(runs, READING_NAMES[reading], average(runs, reading)) for reading in READINGS]
        itself = variant == UNIQ
        gap = missing() if itself else compared_value(gain, ours, runs, runs, sign=True)
        better = missing() if itself else compared_value(probability_of_improvement, ours, runs, runs, digits=2)
        sets = len(by_set(runs))
        return [Value(str(sets), sets), *readings, gap, better, _share_above(runs), _mean_tau(runs)]

    caption = (
        "Averages over the nine sets of the suite (or as many as the third column says). 'UNIQ minus this' and P(UNIQ "
        "better) compare equal budgets over the sets both have, last evaluation, with 95 % bootstrap intervals. With "
        "u > 1 on hardly any state, τ(s) stays at τ_max and UNIQ is nearly IQL at the expectile 0.63 (0.66 with "
        "configuration A) with a mean of three networks on 80 % of the data: these are the controls for that."
    )
    head = ["variant", "updates", "sets", *(f"average, {READING_NAMES[reading]}" for reading in READINGS)]
    head += ["UNIQ minus this [95 %]", "P(UNIQ better) [95 %]", "states with u > 1", "mean τ(s)"]
    return Table("Controls: is it the mechanism?", caption, head, variant_rows(found, CONTROLS, len(head), cells))


def regenerated_table(results: Sequence[RunResult]) -> Table:
    """The sets regenerated from D4RL's own policies, beside the published scores on D4RL's."""
    found = ordered_columns(on_sets(results, REGENERATED_SETS), METHODS)
    beside = (published.PAPER_UNIQ, published.CORL_IQL, published.UNTUNED_IQL)
    rows = []
    for name in REGENERATED_SETS:
        original = name.replace(REGENERATED, "medium")
        scores = [score_value(on_sets(runs, [name])) for runs in found.values()]
        rows.append([named(name), *scores, *(published_value(column, column.scores[original]) for column in beside)])
    means = [_average_value(runs, "last", average(runs), len(REGENERATED_SETS)) for runs in found.values()]
    rows.append([named("average, last"), *means, *(missing(column.source) for column in beside)])
    origins = [Value(f"{column.data}; {column.physics}", source=column.source) for column in beside]
    rows.append([named("data; physics"), *(Value(origin(runs)) for runs in found.values()), *origins])
    caption = (
        "D4RL's medium sets regenerated from the policies that D4RL ships inside its files: the closest that measured "
        "scores come to the published ones. Mean ± sample standard deviation of the last evaluation over seeds."
    )
    titles = [f"{METHODS[variant]}, {budget(steps)}" for variant, steps in found]
    head = ["set", *titles, *(column.title for column in beside)]
    return Table("Regenerated medium sets", caption, head, rows)


# Parts of tables


def ordered_columns(
    results: Iterable[RunResult], variants: Mapping[str, str]
) -> dict[tuple[str, int], list[RunResult]]:
    """The runs of each of the variants at each budget."""
    found = columns(run for run in results if run.variant in variants)
    return {key: found[key] for key in in_order(found)}


def widest(found: Mapping[tuple[str, int], Sequence[RunResult]], method: str) -> Sequence[RunResult]:
    """A method's runs at the budget with the most sets, at the largest of such budgets."""
    own = [(len(by_set(runs)), steps, runs) for (variant, steps), runs in found.items() if variant == method]
    return max(own, key=lambda budget: budget[:2], default=(0, 0, []))[2]


def variant_rows(
    found: Mapping[tuple[str, int], Sequence[RunResult]],
    names: Mapping[str, str],
    width: int,
    cells: Callable[[str, int], list[Value]],
) -> list[list[Value]]:
    """A row for each variant at each budget, or one that says that it was not run."""
    rows = []
    for variant, name in names.items():
        budgets = [steps for other, steps in found if other == variant]
        rows += [[named(name), Value(budget(steps), steps), *cells(variant, steps)] for steps in budgets]
        rows += [] if budgets else [[named(name), *(missing() for _ in range(width - 1))]]
    return rows


def budget(steps: int) -> str:
    return f"{thousands(steps)} updates"


def named(text: str) -> Value:
    return Value(text, source="")


def missing(source: str = MEASURED) -> Value:
    return Value("-", None, "not run" if source == MEASURED else "not published", source)


def published_value(column: published.Column, number: float) -> Value:
    return Value(f"{number:.{column.digits}f}", number, column.reading, column.source)


def score_value(runs: Sequence[RunResult], reading: Reading = "last") -> Value:
    """Mean and spread of the score of the seeds on one set."""
    if not runs:
        return missing()
    found = cell(runs, reading)
    std = "-" if math.isnan(found.std) else f"{found.std:.1f}"
    failed = sum(run.diverged for run in runs)
    seeds = ", ".join(f"{score:.1f}" for score in found.values)
    note = f"{count(len(runs), 'seed')}: {seeds}; {budget(runs[0].recipe.steps)}"
    critics = {run.recipe.config.get("critics", 2) for run in runs}
    if critics != {2}:  # SAC-N's differ by set
        note += f"; {', '.join(map(str, sorted(critics)))} critic{'' if critics == {1} else 's'}"
    note += f"; {failed} diverged" if failed else ""
    return Value(f"{found.mean:.1f} ± {std}{' †' if failed else ''}", found.mean, note, command=command(runs[0]))


def interval_value(interval: Interval, runs: Sequence[RunResult], sign: bool = False, digits: int = 1) -> Value:
    if math.isnan(interval.point):
        return Value("-", None, "cannot be compared: not run at the same budget on the same sets")
    spec = f"{'+' if sign else ''}.{digits}f"
    text = format(interval.point, spec)
    note = "no interval: a set has one seed"
    if not math.isnan(interval.low):
        text += f" [{format(interval.low, spec)}, {format(interval.high, spec)}]"
        note = "95 % interval by stratified bootstrap over seeds"
    return Value(text.replace("-", "−"), interval.point, note, command=command(runs[0]))


def compared_value(
    compare: Callable[[Sequence[RunResult], Sequence[RunResult]], Interval],
    ours: Sequence[RunResult],
    theirs: Sequence[RunResult],
    of: Sequence[RunResult],
    sign: bool = False,
    digits: int = 1,
) -> Value:
    """A comparison that says so when it is over fewer sets than there are; the cell belongs to the runs `of`."""
    value = interval_value(compare(ours, theirs), of, sign, digits)
    common = len({run.set for run in ours} & {run.set for run in theirs})
    partial = value.number is not None and common < len(SETS)
    return replace(value, text=f"{value.text} ({count(common, 'set')})") if partial else value


def origin(runs: Sequence[RunResult]) -> str:
    """Data and physics of runs, as their recipes have it."""
    data = sorted({str(run.recipe.data["name"]).rpartition("/")[0] or "own data" for run in runs})
    physics = sorted({run.recipe.physics for run in runs})
    return f"{', '.join(data)}; {', '.join(physics)}"


def _average_value(runs: Sequence[RunResult], reading: str, number: float, sets: int = len(SETS)) -> Value:
    """An average that says so when it is over fewer sets than the table has."""
    had = len(by_set(runs))
    partial = f" ({count(had, 'set')})" if had < sets else ""
    note = f"{reading}, mean over {count(had, 'set')} of the mean over seeds; {budget(runs[0].recipe.steps)}"
    return Value(f"{number:.1f}{partial}", number, note, command=command(runs[0]))


def _budgeted_average(runs: Sequence[RunResult]) -> Value:
    value = _average_value(runs, "last", average(runs))
    return replace(value, text=f"{value.text} ({budget(runs[0].recipe.steps)})")


def _better_than_iql(found: Mapping[tuple[str, int], Sequence[RunResult]], key: tuple[str, int]) -> Value:
    if key[0] == IQL:
        return Value("-", None, "IQL itself")
    base = found.get((IQL, key[1]), [])
    return compared_value(probability_of_improvement, found[key], base, found[key], digits=2)


def _seeds(runs: Sequence[RunResult]) -> Value:
    counts = [len(seeds) for seeds in by_set(runs).values()]
    text = str(counts[0]) if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
    failed = sum(run.diverged for run in runs)
    text += f" ({count(failed, 'run')} diverged)" if failed else ""
    return Value(text, min(counts), command=command(runs[0]))


def _minus_full(runs: Sequence[RunResult], full: Sequence[RunResult]) -> Value:
    """A variant that only names a setting of full UNIQ stands on the very same runs: no interval belongs to that."""
    sets, known = {run.set for run in full}, {run.recipe.id for run in full}
    if full and all(run.recipe.id in known for run in runs if run.set in sets):
        return Value("the same runs", 0.0, "this setting is what full UNIQ has", command=command(runs[0]))
    return interval_value(gain(runs, full), runs, sign=True)


def _share_above(runs: Sequence[RunResult]) -> Value:
    return _mean_known(runs, share_above, percent)


def _mean_tau(runs: Sequence[RunResult]) -> Value:
    return _mean_known(runs, mean_tau, lambda number: f"{number:.2f}")


def _mean_known(
    runs: Sequence[RunResult], read: Callable[[RunResult], float | None], shown: Callable[[float], str]
) -> Value:
    known = [number for run in runs if (number := read(run)) is not None]
    if not known:
        return Value("-", None, "the method has none, or it was not recorded")
    mean = float(np.mean(known))
    note = f"mean over {count(len(known), 'run')}, from {shown(min(known))} to {shown(max(known))}"
    return Value(shown(mean), mean, note, command=command(runs[0]))


# Costs


def read_costs(path: Path | None = None) -> dict[str, Any]:
    """The output of `benchmarks/methods.py`, from the working folder or the checkout; empty where there is none."""
    places = [path] if path else [COSTS, Path(__file__).resolve().parents[3] / COSTS]
    for place in places:
        if place.is_file():
            try:
                content = json.loads(place.read_text(encoding="utf-8"))
                if not all(
                    {"method", "runs", "chunk", "microseconds_per_update"} <= set(row) for row in content["rows"]
                ):
                    raise KeyError("rows")
            except (ValueError, KeyError, TypeError):
                raise UniqError(f"{place} is not the output of benchmarks/methods.py; it is damaged.") from None
            return dict(content)
    return {}


def configurations(costs: Mapping[str, Any], method: str) -> list[str]:
    """What the benchmark measured of a method: itself, or `method-...` with other options."""
    names = dict.fromkeys(str(row["method"]) for row in costs.get("rows", []))
    return [name for name in names if name == method or (name.startswith(f"{method}-") and name in COST_NAMES)]


def cost_row(costs: Mapping[str, Any], configuration: str, runs: int) -> dict[str, Any] | None:
    """Where something was measured in calls of several lengths, the longest, which cost least beside the updates."""
    rows = [row for row in costs.get("rows", []) if (row["method"], row["runs"]) == (configuration, runs)]
    return dict(max(rows, key=lambda row: row["chunk"])) if rows else None


def iql_beside(row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """IQL with as many runs, in calls of the same length, or else in the longest."""
    found = [base for base in rows if (base["method"], base["runs"]) == (IQL, row["runs"])]
    return max(found, key=lambda base: (base["chunk"] == row["chunk"], base["chunk"]), default=None)


def relative(costs: Mapping[str, Any], configuration: str, runs: int, field: str) -> float | None:
    """A cost as a multiple of IQL's with as many runs."""
    row = cost_row(costs, configuration, runs)
    base = iql_beside(row, costs["rows"]) if row else None
    if row is None or base is None or row.get(field) is None or not base.get(field):
        return None
    return float(row[field] / base[field])


def cost_values(costs: Mapping[str, Any], configuration: str) -> list[Value]:
    row = cost_row(costs, configuration, 1) or {}
    time, memory = "microseconds_per_update", "peak_megabytes_beyond_data"
    numbers = [
        (row.get("run_updates_per_second"), ",.0f"),
        (relative(costs, configuration, 1, time), ".2f"),
        (relative(costs, configuration, 9, time), ".2f"),
        (row.get(memory), ",.0f"),
        (relative(costs, configuration, 1, memory), ".2f"),
    ]
    return [
        Value("not measured", None, command=COST_COMMAND)
        if number is None
        else Value(format(number, spec), float(number), command=COST_COMMAND)
        for number, spec in numbers
    ]


def _paper_memory(method: str) -> Value:
    number = published.PAPER_MEMORY.get(method)
    if number is None:
        return missing(published.PAPER_MEMORY_SOURCE)
    return Value(f"{number:,.0f}", number, source=published.PAPER_MEMORY_SOURCE)


# Writing


def published_columns(table: Table) -> list[bool]:
    """For each column, whether its values were printed by others."""
    return [
        any(value.source not in ("", MEASURED) for value in column) for column in zip(*table.rows, strict=True)
    ] or [False] * len(table.columns)


def sources(table: Table) -> dict[str, str]:
    """Where each published column comes from."""
    found = {}
    for i, outside in enumerate(published_columns(table)):
        if outside:
            found[table.columns[i]] = next(row[i].source for row in table.rows if row[i].source not in ("", MEASURED))
    return found


def commands(table: Table) -> list[str]:
    return sorted({value.command for row in table.rows for value in row if value.command})


def to_text(table: Table, width: int = 120) -> str:
    """For a terminal: in blocks of as many columns as fit, each with the names of the rows."""
    cells = [table.columns, *([value.text for value in row] for row in table.rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(table.columns))]
    blocks: list[list[int]] = [[]]
    for i in range(1, len(table.columns)):
        if blocks[-1] and widths[0] + sum(widths[j] + 2 for j in [*blocks[-1], i]) > width:
            blocks.append([])
        blocks[-1].append(i)
    parts = [table.title]
    for block in blocks:
        lines = [
            "  ".join([row[0].ljust(widths[0]), *(row[i].rjust(widths[i]) for i in block)]).rstrip() for row in cells
        ]
        rule = "-" * (widths[0] + sum(widths[i] + 2 for i in block))
        parts.append("\n".join([lines[0], rule, *lines[1:]]))
    return "\n\n".join([*parts, table.caption]) + "\n"


def markdown_rows(columns: Sequence[str], rows: Iterable[Sequence[str]], align: str = "---:") -> str:
    """A table of texts: the first column left, the others as `align` says, by itself right."""

    def line(texts: Sequence[str]) -> str:
        return f"| {' | '.join(' '.join(text.split()).replace('|', chr(92) + '|') for text in texts)} |"

    return "\n".join(map(line, [columns, ["---", *[align] * (len(columns) - 1)], *rows]))


def to_markdown(table: Table) -> str:
    rows = markdown_rows(table.columns, [[value.text for value in row] for row in table.rows])
    parts = [f"### {table.title}", rows, table.caption]
    parts += ["\n".join(f"- {name}: {source}" for name, source in sources(table).items())] * bool(sources(table))
    if commands(table):
        parts.append("\n".join(["Made by:", "", *(f"- `{text}`" for text in commands(table))]))
    return "\n\n".join(parts) + "\n"


LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"$<$",
    ">": r"$>$",
    "±": r"$\pm$",
    "−": r"$-$",
    "†": r"$\dagger$",
    "×": r"$\times$",
    "τ": r"$\tau$",
    "κ": r"$\kappa$",
    "σ": r"$\sigma$",
    "δ": r"$\delta$",
    "Δ": r"$\Delta$",
    "µ": r"$\mu$",
    "–": "--",
    "\n": " ",
}
HAT = "\u0302"
WIDE = 6
"""A LaTeX table with more columns than this behind the first is printed in parts, for it would be too small to read."""
HEADING = 16
SHRUNK = r"\resizebox{\ifdim\width>\linewidth \linewidth\else\width\fi}{!}{%"
"""Scaled to the width of the text where it is wider."""


def escaped(text: str) -> str:
    """Plain ASCII that any LaTeX compiles; a character it is not known how to write is named by its number."""
    found = []
    for character, following in zip(text, f"{text[1:]} ", strict=True):
        if character != HAT:
            plain = character if character.isascii() else rf"\texttt{{U+{ord(character):04X}}}"
            written = LATEX.get(character, plain)
            found.append(rf"$\hat{{{written.strip('$')}}}$" if following == HAT else written)
    return "".join(found)


def to_latex(table: Table) -> str:
    """For `booktabs` and `graphicx`. A line parts measured from published columns; wide tables come in parts."""
    behind = np.arange(1, len(table.columns))
    parts = np.array_split(behind, max(1, math.ceil(len(behind) / WIDE)))
    notes = [f"{name}: {source}" for name, source in sources(table).items()]
    notes += [f"made by: {text}" for text in commands(table)]
    title = re.sub(r"^Table \d+: (.)", lambda found: found[1].upper(), table.title)  # LaTeX counts its own
    lines: list[str] = []
    for number, chosen in enumerate(parts, 1):
        part = f" ({number} of {len(parts)})" if len(parts) > 1 else ""
        caption = f"{title}{part}." + (f" {table.caption}" if number == 1 else "")
        lines += [r"\begin{table}[tp]", r"\centering", rf"\caption{{{escaped(caption)}}}", SHRUNK]
        lines += [*_tabular(table, [0, *chosen]), "}", r"\end{table}"]
    return "\n".join([*lines, *(f"% {' '.join(note.split())}" for note in notes)]) + "\n"


def _tabular(table: Table, chosen: Sequence[int]) -> list[str]:
    outside = published_columns(table)
    marks = ["|r" if outside[i] and not outside[before] else "r" for before, i in pairwise(chosen)]
    return [
        rf"\begin{{tabular}}{{l{''.join(marks)}}}",
        r"\toprule",
        _latex_row(_stacked(table.columns[i]) for i in chosen),
        r"\midrule",
        *(_latex_row(escaped(row[i].text) for i in chosen) for row in table.rows),
        r"\bottomrule",
        r"\end{tabular}",
    ]


def _stacked(name: str) -> str:
    """A heading in lines as long as the numbers below it."""
    lines = [escaped(line) for line in textwrap.wrap(name, HEADING, break_long_words=False, break_on_hyphens=False)]
    return lines[0] if len(lines) == 1 else r"\shortstack[r]{" + r"\\ {}".join(lines) + "}"


def _latex_row(texts: Iterable[str]) -> str:
    """A row must not begin with a bracket: after a line break that would be an option."""
    row = " & ".join(texts)
    return f"{'{}' if row.startswith(('[', '*')) else ''}{row} " + r"\\"
