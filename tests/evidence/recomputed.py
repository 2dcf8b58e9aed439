"""The tables of the page, worked out a second time: from the JSON files, with arithmetic of its own.

Nothing of `uniq_rl.evidence` is used here, except what others published, which is no arithmetic.
"""

import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from uniq_rl.evidence import published

Run = dict[str, Any]
Rows = list[list[str]]
SETS = [
    f"{task}-{kind}"
    for task in ("halfcheetah", "hopper", "walker2d")
    for kind in ("medium", "medium-replay", "medium-expert")
]
REGENERATED = [f"{task}-medium (regenerated)" for task in ("halfcheetah", "hopper", "walker2d")]
FOUR = ["halfcheetah-medium", "hopper-medium", "hopper-medium-replay", "walker2d-medium"]
FIRST = {"uniq": "UNIQ", "iql": "IQL", "uniq one configuration": "UNIQ one configuration"}
METHODS = {
    **FIRST,
    "bc": "BC",
    "td3_bc": "TD3+BC",
    "cql": "CQL",
    "rebrac": "ReBRAC",
    "sac_n": "SAC-N",
    "edac": "EDAC",
    "dt": "DT",
}
READINGS = ("last", "mean of the last 10", "best (oracle)")


def read(folder: Path) -> list[Run]:
    runs = [json.loads(path.read_text()) for path in (folder / "runs").glob("*.json")]
    for run in runs:
        run["set"] = f"{run['task']}-{run['kind']}"
        run["steps"], run["seed"] = run["recipe"]["steps"], run["recipe"]["seed"]
    return sorted(runs, key=lambda run: (run["variant"], run["task"], run["kind"], run["steps"], run["seed"]))


def select(runs: Sequence[Run], **wanted: Any) -> list[Run]:
    def fits(run: Run) -> bool:
        return all(run[key] in value if isinstance(value, list) else run[key] == value for key, value in wanted.items())

    return [run for run in runs if fits(run)]


def reading(run: Run, name: str) -> float:
    if run["diverged"]:
        return 0.0
    scores = [line["score"] for line in run["evaluations"]]
    return {
        "last": scores[-1],
        "mean of the last 10": sum(scores[-10:]) / len(scores[-10:]),
        "best (oracle)": max(scores),
    }[name]


def scores_by_set(runs: Sequence[Run], name: str = "last") -> dict[str, list[float]]:
    return {one: [reading(run, name) for run in select(runs, set=one)] for one in sorted({run["set"] for run in runs})}


def amount(steps: int) -> str:
    return f"{steps / 1e6:g}M" if steps >= 1e6 else f"{steps / 1e3:g}k"


def minus(text: str) -> str:
    return text.replace("-", "−")


def score(runs: Sequence[Run]) -> str:
    if not runs:
        return "-"
    values = [reading(run, "last") for run in runs]
    mean = sum(values) / len(values)
    spread = (sum((value - mean) ** 2 for value in values) / (len(values) - 1)) ** 0.5 if len(values) > 1 else None
    failed = " †" if any(run["diverged"] for run in runs) else ""
    return f"{mean:.1f} ± {'-' if spread is None else f'{spread:.1f}'}{failed}"


def average(runs: Sequence[Run], name: str = "last") -> float:
    means = [sum(values) / len(values) for values in scores_by_set(runs, name).values()]
    return sum(means) / len(means)


def average_text(runs: Sequence[Run], name: str = "last", sets: int = 9) -> str:
    count = len(scores_by_set(runs))
    partial = "" if count == sets else f" ({count} set{'s' if count > 1 else ''})"
    return f"{average(runs, name):.1f}{partial}"


# Intervals: 2000 draws of seeds within sets, from the streams that the page says it draws from.


def draws(strata: Sequence[list[float]], stream: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng([0, stream])
    return [np.array(values)[rng.integers(len(values), size=(2000, len(values)))] for values in strata]


def interval_text(point: float, drawn: np.ndarray, strata: Sequence[list[float]], spec: str) -> str:
    text = format(point, spec)
    if min(len(values) for values in strata) > 1:
        low, high = np.quantile(drawn, [0.025, 0.975])
        text += f" [{format(low, spec)}, {format(high, spec)}]"
    return minus(text)


def middle(values: np.ndarray) -> np.ndarray:
    count = values.shape[-1]
    ordered = np.sort(values, axis=-1)
    return np.asarray(ordered[..., count // 4 : count - count // 4].mean(axis=-1))


def iqm(runs: Sequence[Run], name: str = "last") -> str:
    strata = list(scores_by_set(runs, name).values())
    drawn = middle(np.concatenate(draws(strata), axis=-1))
    return interval_text(float(middle(np.concatenate([np.array(values) for values in strata]))), drawn, strata, ".1f")


def pairs(ours: Sequence[Run], theirs: Sequence[Run], name: str) -> tuple[list[list[float]], list[list[float]]]:
    a, b = scores_by_set(ours, name), scores_by_set(theirs, name)
    both = [one for one in a if one in b]
    return [a[one] for one in both], [b[one] for one in both]


def fewer(common: Sequence[list[float]]) -> str:
    """A comparison on fewer than the nine sets says so."""
    return "" if len(common) == len(SETS) else f" ({len(common)} set{'' if len(common) == 1 else 's'})"


def better(ours: Sequence[Run], theirs: Sequence[Run], name: str = "last") -> str:
    if not ours or not theirs:
        return "-"
    a, b = pairs(ours, theirs, name)

    def wins(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        above, equal = x[..., :, None] > y[..., None, :], x[..., :, None] == y[..., None, :]
        return np.asarray((above + 0.5 * equal).mean(axis=(-2, -1)))

    point = np.mean([wins(np.array(x), np.array(y)) for x, y in zip(a, b, strict=True)])
    drawn = np.mean([wins(x, y) for x, y in zip(draws(a, 0), draws(b, 1), strict=True)], axis=0)
    return interval_text(float(point), drawn, [*a, *b], ".2f") + fewer(a)


def gain(ours: Sequence[Run], theirs: Sequence[Run]) -> str:
    if not ours or not theirs:
        return "-"
    a, b = pairs(ours, theirs, "last")

    def means(strata: Sequence[Any]) -> np.ndarray:
        return np.asarray(np.mean([np.mean(values, axis=-1) for values in strata], axis=0))

    return interval_text(float(means(a) - means(b)), means(draws(a, 0)) - means(draws(b, 1)), [*a, *b], "+.1f")


# Tables


def series(runs: Sequence[Run], order: Sequence[str]) -> list[tuple[str, int, list[Run]]]:
    """The first three at the largest budget, then at the next one and so on; the others one after the other."""
    first = select(runs, variant=[variant for variant in order if variant in FIRST])
    budgets = sorted({run["steps"] for run in first}, reverse=True)
    found = [(variant, steps) for steps in budgets for variant in order if variant in FIRST]
    for variant in order:
        if variant not in FIRST:
            budgets = sorted({run["steps"] for run in select(runs, variant=variant)}, reverse=True)
            found += [(variant, steps) for steps in budgets]
    cells = [(variant, steps, select(runs, variant=variant, steps=steps)) for variant, steps in found]
    return [cell for cell in cells if cell[2]]


def main_table(runs: Sequence[Run]) -> Rows:
    found = series(select(runs, set=SETS), list(METHODS))
    printed = published.COLUMNS
    rows = [["set", *(f"{METHODS[v]}, {amount(s)} updates" for v, s, _ in found), *(c.title for c in printed)]]
    for name in SETS:
        measured = [score(select(mine, set=name)) for _, _, mine in found]
        rows.append([name, *measured, *(printed_as(column, column.scores[name]) for column in printed)])
    nothing = ["-"] * len(printed)
    for name in READINGS:
        rows.append([f"average, {name}", *(average_text(mine, name) for _, _, mine in found), *nothing])
    rows.append(
        ["average, as published", *("-" for _ in found), *(printed_as(column, column.average) for column in printed)]
    )
    rows.append(["interquartile mean, last [95 %]", *(iqm(mine) for _, _, mine in found), *nothing])
    chances = [
        "-" if v == "iql" else better(mine, select(runs, variant="iql", steps=s, set=SETS)) for v, s, mine in found
    ]
    rows.append(["P(better than IQL), last [95 %]", *chances, *nothing])
    rows.append(["seeds", *(seeds(mine) for _, _, mine in found), *nothing])
    origins = [f"{column.data}; {column.physics}" for column in printed]
    rows.append(["data; physics", *("suite; d4rl" for _ in found), *origins])
    return rows


def printed_as(column: published.Column, number: float) -> str:
    return f"{number:.{column.digits}f}"


def seeds(runs: Sequence[Run]) -> str:
    counts = [len(values) for values in scores_by_set(runs).values()]
    failed = sum(run["diverged"] for run in runs)
    text = str(counts[0]) if len(set(counts)) == 1 else f"{min(counts)} to {max(counts)}"
    return text + (f" ({failed} run{'s' if failed > 1 else ''} diverged)" if failed else "")


def statistics_table(runs: Sequence[Run]) -> Rows:
    rows = []
    for variant, steps, mine in series(select(runs, set=SETS), list(METHODS)):
        base = select(runs, variant="iql", steps=steps, set=SETS)
        chances = ["-" if variant == "iql" else better(mine, base, name) for name in READINGS]
        counts = [str(len(scores_by_set(mine))), str(len(mine))]
        rows.append([METHODS[variant], amount(steps), *counts, *(iqm(mine, name) for name in READINGS), *chances])
    head = ["method", "updates", "sets", "runs", *(f"IQM, {name} [95 %]" for name in READINGS)]
    return [[*head, *(f"P(better than IQL), {name} [95 %]" for name in READINGS)], *rows]


def last_calibration(run: Run, field: str) -> float | None:
    return run["calibration"][-1][field] if run["calibration"] else None


def mean_tau(run: Run) -> float | None:
    stored = run["diagnosis"].get("distributions", {}).get("tau")
    if stored is None:
        return None
    config = run["recipe"]["config"]
    edges = [min(max(edge, config["tau_min"]), config["tau_max"]) for edge in stored["edges"]]
    middles = [(low + high) / 2 for low, high in itertools.pairwise(edges)]
    weighted = sum(middle * count for middle, count in zip(middles, stored["counts"], strict=True))
    return weighted / sum(stored["counts"])


def spearman(run: Run) -> float | None:
    return (run["diagnosis"].get("error") or {}).get("rank_correlation")


def two_digits(value: float) -> str:
    text = f"{value:.2f}"
    return "0.00" if text == "-0.00" else minus(text)


def or_dash(value: float | None, text: Callable[[float], str]) -> str:
    return "-" if value is None else text(value)


LABELS = {
    **METHODS,
    "iql at 0.63": "IQL at 0.63",
    "uniq fixed tau": "UNIQ, fixed τ = 0.9",
    "uniq kappa 0": "κ = 0",
    "</script><script>alert(1)</script>": "</script><script>alert(1)</script>",
}


def run_table(runs: Sequence[Run]) -> Rows:
    head = ["variant", "set", "seed", "updates", *READINGS, "ended", "u > 1", "q_hat", "coverage", "mean τ(s)"]
    rows = [[*head, "rank correlation of σ and error"]]
    for run in [run for _, _, mine in series(runs, list(LABELS)) for run in mine]:
        rows.append(
            [
                LABELS[run["variant"]],
                run["set"],
                str(run["seed"]),
                amount(run["steps"]),
                *(minus(f"{reading(run, name):.1f}") for name in READINGS),
                "diverged" if run["diverged"] else "finished",
                or_dash(last_calibration(run, "u_above_1"), lambda value: f"{100 * value:.1f} %"),
                or_dash(last_calibration(run, "q_hat"), lambda value: f"{value:.3g}"),
                or_dash(last_calibration(run, "coverage"), lambda value: f"{100 * value:.1f} %"),
                or_dash(mean_tau(run), lambda value: f"{value:.3f}"),
                or_dash(spearman(run), two_digits),
            ]
        )
    return rows


def mean_of(runs: Sequence[Run], one: Callable[[Run], float | None], text: Callable[[float], str]) -> str:
    known = [value for run in runs if (value := one(run)) is not None]
    return text(sum(known) / len(known)) if known else "-"


def error_table(runs: Sequence[Run], order: Sequence[str], sets: Sequence[str]) -> Rows:
    rows = [["method", "updates", *sets]]
    for variant, steps, mine in series([run for run in runs if spearman(run) is not None], order):
        cells = [mean_of(select(mine, set=name), spearman, two_digits) for name in sets]
        rows.append([LABELS[variant], amount(steps), *cells])
    return rows


def controls_table(runs: Sequence[Run], names: dict[str, str]) -> Rows:
    rows = []
    for variant, name in names.items():
        found = series(select(runs, set=SETS), [variant])
        if not found:
            rows.append([name, *["-"] * 9])
        for _, steps, mine in found:
            ours = select(runs, variant="uniq", steps=steps, set=SETS)
            itself = variant == "uniq"
            rows.append(
                [
                    name,
                    f"{amount(steps)} updates",
                    str(len(scores_by_set(mine))),
                    *(average_text(mine, one) for one in READINGS),
                    "-" if itself or not ours else gain(ours, mine) + fewer(pairs(ours, mine, "last")[0]),
                    "-" if itself else better(ours, mine),
                    mean_of(mine, lambda run: last_calibration(run, "u_above_1"), percent),
                    mean_of(mine, mean_tau, lambda value: f"{value:.2f}"),
                ]
            )
    return rows


def percent(share: float) -> str:
    """One digit from a tenth to ten per cent, none from there on: what made-up shares need."""
    text = f"{100 * share:.1f}" if share < 0.0995 else f"{100 * share:.0f}"
    return f"{text.removesuffix('.0')} %"


def ablation_table(runs: Sequence[Run], names: dict[str, str]) -> Rows:
    rows = []
    for variant, name in names.items():
        found = series(select(runs, set=FOUR), [variant])
        if not found:
            rows.append([name, *["-"] * 7])
        for _, steps, mine in found:
            full = select(runs, variant="uniq", steps=steps, set=FOUR)
            scores = [score(select(mine, set=one)) for one in FOUR]
            gap = "-" if variant == "uniq" else gain(mine, full)
            rows.append([name, f"{amount(steps)} updates", *scores, average_text(mine, sets=4), gap])
    return rows


def regenerated_table(runs: Sequence[Run]) -> Rows:
    found = series(select(runs, set=REGENERATED), list(METHODS))
    beside = [published.PAPER_UNIQ, published.CORL_IQL, published.UNTUNED_IQL]
    rows = [["set", *(f"{METHODS[v]}, {amount(s)} updates" for v, s, _ in found), *(c.title for c in beside)]]
    for name in REGENERATED:
        printed = [printed_as(column, column.scores[name.replace(" (regenerated)", "")]) for column in beside]
        rows.append([name, *(score(select(mine, set=name)) for _, _, mine in found), *printed])
    rows.append(["average, last", *(average_text(mine, sets=3) for _, _, mine in found), "-", "-", "-"])
    origins = [f"{column.data}; {column.physics}" for column in beside]
    rows.append(["data; physics", *("suite; d4rl" for _ in found), *origins])
    return rows


def cost_table(runs: Sequence[Run], costs: Sequence[dict[str, Any]], names: dict[str, str]) -> Rows:
    """`names`: how each timed configuration is written, in order; methods that were not timed stand under their own."""
    lengths = {(row["method"], row["runs"], row["chunk"]): row for row in costs}
    timed = {key[:2]: lengths[key] for key in sorted(lengths, key=lambda key: key[2])}  # the longest calls
    memory = {"IQL": "530", "UNIQ": "250", "SAC-N": "700", "ReBRAC": "1,200", "EDAC": "2,500"}
    time, peak = "microseconds_per_update", "peak_megabytes_beyond_data"
    rows = []
    for configuration, name in names.items():
        method = configuration.partition("-")[0]

        def relative(count: int, field: str, configuration: str = configuration) -> str:
            row = timed.get((configuration, count))
            if row is None:
                return "not measured"
            base = lengths.get(("iql", count, row["chunk"]), timed[("iql", count)])
            return f"{row[field] / base[field]:.2f}"

        row = timed.get((configuration, 1))
        found = series(select(runs, set=SETS), [method])
        most = max(found, key=lambda one: (len(scores_by_set(one[2])), one[1]), default=None)
        total = f"{average_text(most[2])} ({amount(most[1])} updates)" if most else "-"
        rate = f"{row['run_updates_per_second']:,.0f}" if row else "not measured"
        cells = [rate, relative(1, time), relative(9, time), f"{row[peak]:,.0f}" if row else "not measured"]
        rows.append([name, *cells, relative(1, peak), memory.get(METHODS[method], "-"), total])
    return rows


def set_table(runs: Sequence[Run]) -> Rows:
    rows = []
    for name in [*SETS, *REGENERATED, *sorted({run["set"] for run in runs} - {*SETS, *REGENERATED})]:
        mine = select(runs, set=name)
        if mine:
            first = mine[0]
            facts = [f"{first['data'][field]:,}" for field in ("transitions", "episodes")]
            fingerprint = first["data"]["fingerprint"][:12]
            rows.append([name, first["recipe"]["data"]["name"], "d4rl", *facts, fingerprint, str(len(mine))])
    return rows


def published_table() -> Rows:
    return [[column.title, column.reading, column.data, column.physics] for column in published.COLUMNS]
