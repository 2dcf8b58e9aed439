"""The page of a results folder: verdicts, tables, curves, statistics, calibration, maps, cost, and every run."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from uniq_rl import __version__
from uniq_rl.errors import UniqError
from uniq_rl.evidence import claims, published, statistics, tables, variants
from uniq_rl.evidence.mechanism import error_correlation, error_curve, last_of, mapped, mean_tau
from uniq_rl.evidence.parts import (
    Json,
    finite,
    line,
    listed,
    opening_runs,
    section,
    series,
    shapes,
    shown,
    spread,
    written,
)
from uniq_rl.evidence.results import RUNS, RunResult
from uniq_rl.evidence.statistics import READING_NAMES, READINGS, Interval, Reading
from uniq_rl.evidence.tables import Table, Value, compared_value, interval_value, missing, named
from uniq_rl.evidence.variants import (
    IQL,
    LEADING,
    METHODS,
    ONE,
    REGENERATED_SETS,
    SETS,
    UNIQ,
    command,
    label,
    on_sets,
    ordered_sets,
    place_of,
)
from uniq_rl.evidence.wording import count, signed, thousands

SHORT = {ONE: "UNIQ one conf."}
PLACES = {
    "Figure 1b": "gap",
    "Table 1": "main",
    "Table 2": "cost",
    "Table 3": "ablations",
    "Maps of τ(s)": "maps",
    "Calibration over time": "calibration",
    "σ against true error": "errors",
}
"""Where on the page the figure of a verdict is."""
PINNED = ("average", "interquartile mean", "P(better", "seeds", "data; physics")
THRESHOLDS = np.linspace(0, 120, 49)
CALIBRATION = (
    ("u_above_1", "share of states with u > 1", "percent"),
    ("q_hat", "q̂, the conformal quantile", "plain"),
    ("coverage", "coverage on unseen episodes", "percent"),
)
UNDIAGNOSED = "Not measured: no finished policy has been diagnosed yet."
Columns = dict[tuple[str, int], list[RunResult]]
Tables = dict[str, Table]
Numbers = dict[str, np.ndarray]


def page(results: Sequence[RunResult]) -> tuple[Json, list[Table]]:
    """The page and the tables in it that are worth a file of their own."""
    try:
        return _page(results)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise UniqError(f"The results are damaged: a file in {RUNS} holds what no run writes ({error!r}).") from None


def _page(results: Sequence[RunResult]) -> tuple[Json, list[Table]]:
    columns = in_order(statistics.columns(results))
    results = [run for runs in columns.values() for run in runs]
    suite = in_order(statistics.columns(on_sets(results, SETS)))
    found = tables.all_tables(results) | {
        "statistics": statistics_table(suite),
        "errors": error_table(columns),
        "sets": set_table(results),
        "published": published_table(),
    }
    data = charts(results, columns, suite)
    whole = {
        "title": "uniq-rl: the evidence",
        "sentence": sentence(results),
        "lead": lead(results),
        "sections": [
            verdict_section(results),
            score_section(found),
            gap_section(data),
            curve_section(),
            statistics_section(found),
            calibration_section(data),
            map_section(data),
            error_section(found, data),
            cost_section(found, data),
            ablation_section(found, results),
            run_section(results),
            data_section(found),
        ],
        "foot": foot(results),
        "data": data,
    }
    return whole, list(found.values())


def charts(results: Sequence[RunResult], columns: Columns, suite: Columns) -> Json:
    """What the script draws."""
    points, cost_label = cost_points(suite)
    return {
        "series": all_series(columns),
        "grids": {
            "curves-charts": [curve_view(columns)],
            "profile-charts": [profile_view(suite, reading) for reading in READINGS],
            "calibration-charts": calibration_views(columns),
            "errors-charts": error_panels(columns),
        },
        "gap": gaps(columns),
        "statistics": [reading_view(suite, reading) for reading in READINGS],
        "maps": map_points(columns),
        "cost": points,
        "cost_label": cost_label,
        "runs": [run_details(run) for run in results],
    }


# Sections


def verdict_section(results: Sequence[RunResult]) -> Json:
    text = (
        "Each claim against what was measured here, by 95 % intervals. Not shown: measured, but the interval has both "
        "answers in it. Not tested: the runs that it takes are missing."
    )
    found = [judged(verdict) for verdict in claims.verdicts(results)]
    return section("verdicts", "Verdicts", "What holds of the paper's claims", [text], verdicts=found)


def score_section(found: Tables) -> Json:
    text = "Choose a cell to see its seeds and the command that makes it again."
    return section("main", "Scores", "Scores", [text], tables=[shown("table-1", found["table-1"], pinned=PINNED)])


def gap_section(data: Json) -> Json:
    text = (
        "Difference of the mean last scores at the same budget; a dot for each seed that both were run with. "
        "The paper claims a bar to the right of zero for every set."
    )
    nothing = "Not measured: UNIQ and IQL have no set in common at the same budget."
    missing = [] if data["gap"] else [nothing]
    return section("gap", "Gap", "UNIQ minus IQL", [text], charts="gap-chart", missing=missing)


def curve_section() -> Json:
    text = (
        "D4RL score over updates: mean over seeds, with a band of one sample standard deviation. A run that "
        "diverged counts as 0 from there on. Hover over a panel, or focus it and use the arrow keys."
    )
    return section("curves", "Curves", "Learning curves", [text], charts="curves-charts")


def statistics_section(found: Tables) -> Json:
    text = (
        "Interquartile mean of all runs on the nine sets, probability that a run beats one of IQL on the same "
        "set at the same budget, and the share of runs above each score; 95 % intervals by a bootstrap over "
        "seeds within sets. Best is an oracle: nobody without a simulator could have picked it."
    )
    return section(
        "statistics",
        "Statistics",
        "Statistics over sets and seeds",
        [text],
        charts="statistics-charts",
        grids=["profile-charts"],
        tables=[shown("statistics", found["statistics"])],
    )


def calibration_section(data: Json) -> Json:
    text = (
        "The mechanism acts where u(s) = σ(s) / q̂ exceeds 1. Coverage is the share of scores on episodes used "
        "for neither training nor calibration that lie below q̂; it should be near 1 − δ. From the first evaluation "
        "on; mean over seeds, band of one sample standard deviation."
    )
    nothing = "Not measured: no run with calibrated uncertainty is in the results."
    return section(
        "calibration",
        "Calibration",
        "Calibration over time",
        [text],
        charts="calibration-charts",
        missing=[] if data["grids"]["calibration-charts"] else [nothing],
    )


def map_section(data: Json) -> Json:
    text = "States of the data, laid out by two coordinates, coloured by the expectile or the disagreement there."
    return section(
        "maps",
        "Maps",
        "Where the caution is: τ(s) over the states",
        [text] if data["maps"] else [],
        charts="maps-charts",
        missing=[] if data["maps"] else [UNDIAGNOSED],
    )


def error_section(found: Tables, data: Json) -> Json:
    text = (
        "States of unseen episodes in ten groups of equal size by σ(s): mean σ across, mean error of the value "
        "upwards, against the return that the log earned from there on (part of it is improvement, not error). "
        "The rank correlation says how well the order of one predicts the order of the other."
    )
    known = bool(data["grids"]["errors-charts"])
    return section(
        "errors",
        "Error",
        "Does disagreement predict error?",
        [text] if known else [],
        charts="errors-charts",
        tables=[shown("errors", found["errors"])] if known else [],
        missing=[] if known else [UNDIAGNOSED],
    )


def cost_section(found: Tables, data: Json) -> Json:
    text = (
        "Each method at its largest budget; hover over a point to read it. Where the table below has several "
        "configurations of a method, the point is at the time of the first."
    )
    points = bool(data["cost"])
    return section(
        "cost",
        "Cost",
        "Cost",
        [text] if points else [],
        charts="cost-charts" if points else "",
        tables=[shown("table-2", found["table-2"])],
        missing=[] if points else ["Score against cost is not measured: no run recorded its speed."],
    )


def ablation_section(found: Tables, results: Sequence[RunResult]) -> Json:
    regenerated = on_sets(results, REGENERATED_SETS)
    return section(
        "ablations",
        "Ablations",
        "Ablations and controls",
        tables=[
            shown("table-3", found["table-3"]),
            shown("controls", found["controls"]),
            shown("regenerated", found["regenerated"], pinned=PINNED),
        ],
        missing=[] if regenerated else ["Not measured: there is no run on a regenerated set; published scores alone."],
    )


def run_section(results: Sequence[RunResult]) -> Json:
    text = "Open a run for its curves, its diagnostics, its configuration and the command that makes it again."
    table = opening_runs(shown("runs", run_table(results), search=True, tall=True))
    return section("runs", "Every run", "Every run", [text], tables=[table])


def data_section(found: Tables) -> Json:
    text = "Scores on different data or under different physics do not belong in one comparison."
    both = [shown(name, found[name]) for name in ("sets", "published")]
    return section("data", "Data", "Data and physics", [text], tables=both)


# Words


def sentence(results: Sequence[RunResult]) -> str:
    methods = len({run.recipe.method for run in results})
    sets = len({run.set for run in results})
    compared = {UNIQ, IQL} <= {run.variant for run in results}
    what = "Does UNIQ's calibrated caution beat IQL?" if compared else "What was measured so far:"
    return f"{what} {count(methods, 'method')} on {count(sets, 'data set')}, {count(len(distinct(results)), 'run')}."


def distinct(results: Sequence[RunResult]) -> list[RunResult]:
    """Each run once, also one that stands in several rows."""
    return list({run.recipe.id: run for run in results}.values())


def lead(results: Sequence[RunResult]) -> list[str]:
    physics = written(sorted({run.recipe.physics for run in results}))
    budgets = written([thousands(steps) for steps in sorted({run.recipe.steps for run in results}, reverse=True)])
    numbers = sorted({run.recipe.eval_episodes for run in results})
    episodes = f"{written(numbers)} episode{'' if numbers == [1] else 's'}"
    failed = sum(run.diverged for run in distinct(results))
    return [
        f"D4RL normalised scores, {physics} physics, {episodes} per evaluation, budgets of {budgets} updates. "
        f"{count(failed, 'run')} diverged{' and counts as 0' if failed == 1 else ' and count as 0' if failed else ''}. "
        "Every number is worked out from the raw files, one per run; a dash means that it was not measured."
    ]


def foot(results: Sequence[RunResult]) -> list[str]:
    runs = distinct(results)
    devices = Counter(str((run.environment.get("hardware") or {}).get("device", "unknown")) for run in runs)
    commits = Counter(str(run.environment.get("commit") or "unknown")[:12] for run in runs)
    counted = [", ".join(f"{name} ({number})" for name, number in found.most_common()) for found in (devices, commits)]
    return [
        f"Runs by device: {counted[0]}. Runs by commit: {counted[1]}.",
        f"Built by uniq-rl {__version__} with `uniq-rl report` from the result files alone; the page fetches nothing.",
    ]


def judged(verdict: claims.Verdict) -> Json:
    return {
        "claim": verdict.claim,
        "verdict": verdict.verdict,
        "why": verdict.why,
        "figure": verdict.figure,
        "link": PLACES.get(verdict.figure, ""),
    }


# Series


def in_order(columns: Columns) -> Columns:
    return {key: columns[key] for key in variants.in_order(columns)}


def key_of(variant: str, steps: int) -> str:
    return f"{variant}@{steps}"


def all_series(columns: Columns) -> list[Json]:
    """A variant at one budget is one series: the variant has a colour, its smaller budgets have dashes.

    Charts show the first few at their largest budget before anybody toggles.
    """
    several = len({steps for _, steps in columns}) > 1
    order = list(dict.fromkeys(variant for variant, _ in columns))
    found = []
    for variant, steps in columns:
        smaller = sum(other == variant and budget > steps for other, budget in columns)
        name = label(variant)
        found.append(
            series(
                key_of(variant, steps),
                name + (f", {thousands(steps)}" if several else ""),
                order.index(variant),
                dashes=smaller,
                short=SHORT.get(variant, name),
                on=variant in LEADING and not smaller,
                minor=variant not in METHODS or smaller > 0,
            )
        )
    return found


def by_panel(columns: Columns) -> dict[str, dict[str, list[RunResult]]]:
    """Set, then series, then its seeds."""
    panels: dict[str, dict[str, list[RunResult]]] = {}
    cells = {key: statistics.by_set(runs) for key, runs in columns.items()}
    for name in ordered_sets(name for found in cells.values() for name in found):
        panels[name] = {key_of(*key): found[name] for key, found in cells.items() if name in found}
    return panels


# Curves


def curve_view(columns: Columns) -> Json:
    panels = [
        {"title": name, "lines": [score_line(key, runs) for key, runs in found.items()]}
        for name, found in by_panel(columns).items()
    ]
    return {"name": "score", "panels": panels, "options": {"format": "score", "xLabel": "updates"}}


def score_line(key: str, runs: Sequence[RunResult]) -> Json:
    steps, scores = aligned([[(entry["step"], entry["score"]) for entry in run.evaluations] for run in runs])
    return line(key, steps, *spread(np.nan_to_num(scores, nan=0.0)))


def aligned(curves: Sequence[Sequence[tuple[int, float | None]]]) -> tuple[list[int], np.ndarray]:
    """The steps that all curves have, and their values there, NaN for None."""
    tables = [{int(step): np.nan if value is None else float(value) for step, value in curve} for curve in curves]
    steps = sorted(set.intersection(*(set(table) for table in tables)))
    return steps, np.array([[table[step] for step in steps] for table in tables])


def calibration_views(columns: Columns) -> list[Json]:
    views = []
    for field, name, kind in CALIBRATION:
        panels = []
        for title, found in by_panel(columns).items():
            lines, levels = [], set()
            for key, runs in found.items():
                known = [run for run in runs if any(entry.get(field) is not None for entry in run.calibration)]
                if not known:
                    continue
                # Before the first update heads disagree at random: that would set the scale of all that follows.
                trained = [[(e["step"], e.get(field)) for e in run.calibration if e["step"]] for run in known]
                steps, values = aligned(trained)
                if steps:
                    mean, low, high = spread(values)
                    low, high = (np.clip(low, 0, 1), np.clip(high, 0, 1)) if kind == "percent" else (low, high)
                    lines.append(line(key, steps, mean, low, high))
                levels |= {1 - float(run.recipe.config["delta"]) for run in known if "delta" in run.recipe.config}
            if lines:
                marks = [{"value": level, "label": f"1 − δ = {level:g}"} for level in sorted(levels)]
                panels.append({"title": title, "lines": lines, "references": marks if field == "coverage" else []})
        if panels:
            options = {"format": kind, "xLabel": "updates"}
            views.append({"name": name, "panels": panels, "options": options})
    return views


def gaps(columns: Columns) -> list[Json]:
    """UNIQ minus IQL on each set, at the largest budget that both have there."""
    found = []
    for name in ordered_sets(run.set for runs in columns.values() for run in runs):
        budgets = [steps for variant, steps in columns if variant == UNIQ and (IQL, steps) in columns]
        for steps in sorted(budgets, reverse=True):
            ours, theirs = (on_sets(columns[variant, steps], [name]) for variant in (UNIQ, IQL))
            if ours and theirs:
                found.append(gap(name, ours, theirs))
                break
    return found


def gap(name: str, ours: Sequence[RunResult], theirs: Sequence[RunResult]) -> Json:
    a, b = statistics.cell(ours), statistics.cell(theirs)
    paired = dict(zip(b.seeds, b.values, strict=True))
    both = [(seed, value - paired[seed]) for seed, value in zip(a.seeds, a.values, strict=True) if seed in paired]
    rows = [["UNIQ", f"{a.mean:.1f}"], ["IQL", f"{b.mean:.1f}"], *([f"seed {s}", f"{v:+.1f}"] for s, v in both)]
    rows.append(["budget", f"{thousands(ours[0].recipe.steps)} updates"])
    return {"label": name, "value": a.mean - b.mean, "dots": [value for _, value in both], "rows": rows}


# Statistics


def complete(suite: Columns) -> Columns:
    """The methods that were run on every set that any of them was: only those can be pooled and compared."""
    chosen = {key: runs for key, runs in suite.items() if key[0] in METHODS}
    most = max((len({run.set for run in runs}) for runs in chosen.values()), default=0)
    return {key: runs for key, runs in chosen.items() if len({run.set for run in runs}) == most}


def reading_view(suite: Columns, reading: Reading) -> Json:
    pooled = complete(suite)
    better = {
        key: statistics.probability_of_improvement(runs, suite.get((IQL, key[1]), []), reading)
        for key, runs in pooled.items()
        if key[0] != IQL
    }
    return {
        "name": READING_NAMES[reading],
        "iqm": [interval(key, statistics.interquartile_mean(runs, reading)) for key, runs in pooled.items()],
        "better": [interval(key, found) for key, found in better.items()],
    }


def profile_view(suite: Columns, reading: Reading) -> Json:
    lines = []
    for key, runs in complete(suite).items():
        found = statistics.performance_profile(runs, THRESHOLDS, reading)
        ends = {"low": finite(found.low), "high": finite(found.high)}
        lines.append({"series": key_of(*key), "x": THRESHOLDS.tolist(), "y": finite(found.point), **ends})
    options = {"format": "share", "formatX": "plain", "xLabel": "score", "range": [0, 1.02]}
    panels = [{"title": "Performance profiles", "small": "share of runs above a score", "lines": lines}]
    return {"name": READING_NAMES[reading], "choose": "", "panels": panels if lines else [], "options": options}


def interval(key: tuple[str, int], found: Interval) -> Json:
    point, low, high = finite(found)
    return {"series": key_of(*key), "point": point, "low": low, "high": high}


def statistics_table(suite: Columns) -> Table:
    """The numbers of the charts above: interquartile mean and probability of improvement under every reading."""
    rows = []
    for (variant, steps), runs in suite.items():
        if variant not in METHODS:
            continue
        sets = len({run.set for run in runs})
        base, improvement = suite.get((IQL, steps), []), statistics.probability_of_improvement
        pooled = [interval_value(statistics.interquartile_mean(runs, reading), runs) for reading in READINGS]
        better = [
            Value("-", None, "IQL itself")
            if variant == IQL
            else compared_value(partial(improvement, reading=reading), runs, base, runs, digits=2)
            for reading in READINGS
        ]
        head = [
            named(label(variant)),
            Value(thousands(steps), steps),
            Value(str(sets), sets),
            Value(str(len(runs)), len(runs)),
        ]
        rows.append([*head, *pooled, *better])
    titles = ["method", "updates", "sets", "runs"]
    titles += [f"IQM, {READING_NAMES[reading]} [95 %]" for reading in READINGS]
    titles += [f"P(better than IQL), {READING_NAMES[reading]} [95 %]" for reading in READINGS]
    caption = (
        "Interquartile mean (IQM) of all runs on the nine sets and probability of improvement over IQL at the same "
        "budget, with 95 % intervals by stratified bootstrap over seeds. Methods with fewer sets are not comparable."
    )
    return Table("Statistics over sets and seeds", caption, titles, rows)


# What was worked out from finished policies


def diagnosed(
    columns: Columns, read: Callable[[RunResult], Numbers]
) -> dict[tuple[tuple[str, int], str], list[RunResult]]:
    """The runs that have that part of a diagnosis, by series and set."""
    found: defaultdict[tuple[tuple[str, int], str], list[RunResult]] = defaultdict(list)
    for key, runs in columns.items():
        for run in runs:
            if len(next(iter(read(run).values()))):
                found[key, run.set].append(run)
    return dict(found)


def map_points(columns: Columns) -> list[Json]:
    """One map for each series and set: that of the lowest seed."""
    maps = []
    for (key, name), runs in sorted(diagnosed(columns, mapped).items(), key=lambda item: place_of(item[0][1])):
        run = min(runs, key=lambda run: run.recipe.seed)
        points = {axis: finite(values, 4) for axis, values in mapped(run).items()}
        axes = [str(text) for text in run.diagnosis["map"].get("axes", [])]
        maps.append({"series": key_of(*key), "set": name, "seed": run.recipe.seed, "axes": axes, **points})
    return maps


def error_panels(columns: Columns) -> list[Json]:
    found = diagnosed(columns, error_curve)
    panels = []
    for name in ordered_sets(name for _, name in found):
        lines = []
        for (key, other), runs in found.items():
            if other != name:
                continue
            curves = [error_curve(run) for run in runs]
            sigma, error = (np.mean([curve[field] for curve in curves], axis=0) for field in ("sigma", "error"))
            lines.append({"series": key_of(*key), "x": finite(sigma), "y": finite(error)})
        panels.append({"title": name, "lines": lines})
    options = {"format": "plain", "formatX": "plain", "xLabel": "σ"}
    return [{"name": "error", "panels": panels, "options": options}] if panels else []


def error_table(columns: Columns) -> Table:
    found = diagnosed(columns, error_curve)
    sets = ordered_sets(name for _, name in found)
    rows = []
    for variant, steps in dict.fromkeys(key for key, _ in found):
        cells = [correlation(found.get(((variant, steps), name), [])) for name in sets]
        rows.append([named(label(variant)), Value(thousands(steps), steps), *cells])
    caption = (
        "Spearman's rank correlation between σ(s) and the error of the value on unseen episodes, mean over seeds: 1 "
        "would be a perfect order, 0 none at all."
    )
    return Table("Rank correlation of disagreement and error", caption, ["method", "updates", *sets], rows)


def correlation(runs: Sequence[RunResult]) -> Value:
    known = {run.recipe.seed: number for run in runs if (number := error_correlation(run)) is not None}
    if not known:
        return missing()
    mean = float(np.mean(list(known.values())))
    note = ", ".join(f"seed {seed}: {signed(number, '.2f')}" for seed, number in sorted(known.items()))
    return Value(signed(mean, ".2f"), mean, note, command=command(runs[0]))


def cost_points(suite: Columns) -> tuple[list[Json], str]:
    """Average score against the time of an update: as the benchmark timed it side by side, or as the runs did."""
    costs, points = tables.read_costs(), []
    timed = any(tables.relative(costs, method, 1, "microseconds_per_update") for method in METHODS)
    pooled = complete(suite)
    largest = {variant: max(steps for other, steps in pooled if other == variant) for variant, _ in pooled}
    for key, runs in pooled.items():
        if key[1] < largest[key[0]]:
            continue  # the same method at the same cost
        time = benchmarked(costs, key[0]) if timed else recorded(runs)
        if time is not None:
            points.append({"series": key_of(*key), "x": time, "y": statistics.average(runs)})
    name = "time of an update, IQL = 1 (one run)" if timed else "µs per update of a run, in its cohort"
    return points, name


def benchmarked(costs: Json, variant: str) -> float | None:
    """As a multiple of IQL's; of the configurations that were timed, the first."""
    method = UNIQ if variant == ONE else variant
    names = tables.configurations(costs, method)
    return tables.relative(costs, names[0], 1, "microseconds_per_update") if names else None


def recorded(runs: Sequence[RunResult]) -> float | None:
    rates = [float(rate) for run in runs if (rate := run.cost.get("run_updates_per_second"))]
    return 1e6 / float(np.median(rates)) if rates else None


# Sets, published columns, runs


def set_table(results: Sequence[RunResult]) -> Table:
    groups: defaultdict[tuple[str, str, str], list[RunResult]] = defaultdict(list)
    for run in distinct(results):
        groups[run.set, str(run.recipe.data.get("name")), run.recipe.physics].append(run)
    rows = []
    for (name, source, physics), runs in sorted(groups.items(), key=lambda item: place_of(item[0][0])):
        prints = sorted({str(run.data.get("fingerprint", "unknown"))[:12] for run in runs})
        sizes, episodes = (
            sorted({int(run.data[field]) for run in runs if run.data.get(field) is not None})
            for field in ("transitions", "episodes")
        )
        rows.append(
            [
                named(name),
                Value(source),
                Value(physics),
                Value(written(sizes) or "-", sizes[0] if sizes else None),
                Value(written(episodes) or "-", episodes[0] if episodes else None),
                Value(written(prints), note="" if len(prints) == 1 else "made on machines that differ in last bits"),
                Value(str(len(runs)), len(runs)),
            ]
        )
    caption = (
        "The data each row of scores was trained on and the physics it was evaluated under. suite/ sets are made by "
        "this package's own behaviour policies; regenerated/ ones by D4RL's. The fingerprint is a hash of the content."
    )
    heads = ["set", "data", "physics", "transitions", "episodes", "fingerprint", "runs"]
    return Table("Measured columns", caption, heads, rows)


def published_table() -> Table:
    rows = [
        [named(column.title), *(Value(text, source="") for text in (column.reading, column.data, column.physics))]
        for column in published.COLUMNS
    ]
    caption = "What others printed, on which data and under which physics; none of it was measured here."
    return Table("Published columns", caption, ["column", "reading", "data", "physics"], rows)


def run_table(results: Sequence[RunResult]) -> Table:
    rows = []
    for run in results:
        readings = [statistics.value(run, reading) for reading in READINGS]
        rows.append(
            [
                named(label(run.variant)),
                Value(run.set),
                Value(str(run.recipe.seed), run.recipe.seed),
                Value(thousands(run.recipe.steps), run.recipe.steps),
                *(Value(f"{score:.1f}".replace("-", "−"), score) for score in readings),
                Value("diverged" if run.diverged else "finished"),
                measured(last_of(run, "u_above_1"), lambda value: f"{100 * value:.1f} %"),
                measured(last_of(run, "q_hat"), lambda value: f"{value:.3g}"),
                measured(last_of(run, "coverage"), lambda value: f"{100 * value:.1f} %"),
                measured(mean_tau(run), lambda value: f"{value:.3f}"),
                measured(error_correlation(run), partial(signed, spec=".2f")),
            ]
        )
    heads = ["variant", "set", "seed", "updates", *(READING_NAMES[reading] for reading in READINGS), "ended"]
    heads += ["u > 1", "q_hat", "coverage", "mean τ(s)", "rank correlation of σ and error"]
    caption = (
        "Scores of a run that diverged count as 0. A dash: the method has no such quantity, or it was not recorded. "
        "A run that stands in two rows of the tables above is listed under both names."
    )
    return Table("Every run", caption, heads, rows)


def measured(value: float | None, text: Any) -> Value:
    return Value("-") if value is None else Value(text(value), float(value))


def run_details(run: RunResult) -> Json:
    recipe = run.recipe
    curves: list[Json] = [
        {
            "name": "score",
            "format": "score",
            "x": [int(entry["step"]) for entry in run.evaluations],
            "y": finite(run.scores),
        }
    ]
    for field, name, kind in CALIBRATION:
        known = [(entry["step"], entry.get(field)) for entry in run.calibration]
        if any(value is not None for _, value in known):
            curves.append(
                {"name": name, "format": kind, "x": [int(s) for s, _ in known], "y": finite(v for _, v in known)}
            )
    episodes = count(recipe.eval_episodes, "episode")
    facts: dict[str, Any] = {
        "data": recipe.data,
        "content of the data": run.data,
        "seed": str(recipe.seed),
        "updates": recipe.steps,
        "evaluated": f"every {recipe.eval_every:,} updates, {episodes}, {recipe.physics} physics",
        "last, mean of the last 10, best (oracle)": [round(statistics.value(run, reading), 2) for reading in READINGS],
        "returns of the last evaluation": run.evaluations[-1].get("returns", "none: the run had diverged"),
        "diverged": run.diverged,
        "cost": run.cost,
        "hardware": run.environment.get("hardware"),
        "versions": run.environment.get("versions"),
        "commit": run.environment.get("commit"),
        "file": f"{RUNS}/{recipe.id}.json",
    }
    return {
        "title": f"{label(run.variant)} on {run.set}, seed {recipe.seed}",
        "command": command(run),
        "curves": curves,
        "shapes": shapes(run.diagnosis.get("distributions") or {}),
        "diagnosed": len(curves) > 1,
        "facts": listed(facts),
        "config": listed({"method": recipe.method, **recipe.config}),
    }
