"""The variants that tables and figures are about: their names in the results, how they are written, and their order."""

import functools
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path

from uniq_rl.evidence.results import RunResult

TASKS = ("halfcheetah", "hopper", "walker2d")
KINDS = ("medium", "medium-replay", "medium-expert")
SETS = tuple(f"{task}-{kind}" for task in TASKS for kind in KINDS)
"""The nine sets of the paper's Table 1, in its order."""
ABLATION_SETS = ("halfcheetah-medium", "hopper-medium", "hopper-medium-replay", "walker2d-medium")
REGENERATED = "medium (regenerated)"
REGENERATED_SETS = tuple(f"{task}-{REGENERATED}" for task in TASKS)

IQL, UNIQ, ONE = "iql", "uniq", "uniq one configuration"
METHODS = {
    UNIQ: "UNIQ",
    IQL: "IQL",
    ONE: "UNIQ one configuration",
    "bc": "BC",
    "td3_bc": "TD3+BC",
    "cql": "CQL",
    "rebrac": "ReBRAC",
    "sac_n": "SAC-N",
    "edac": "EDAC",
    "dt": "DT",
}
"""Columns of the main table: the comparison that a reader came for, then the others in the paper's order.

`uniq` is the paper's preset; "one configuration" calibrates by disagreement.
"""
LEADING = (UNIQ, IQL, ONE)
CONTROLS = {
    UNIQ: "UNIQ",
    IQL: "IQL (0.7)",
    ONE: "UNIQ one configuration",
    "iql at 0.63": "IQL at 0.63",
    "iql at 0.66": "IQL at 0.66",
    "uniq fixed tau": "UNIQ, fixed τ = 0.9",
    "iql on 80 %": "IQL on 80 % of the data",
}
ABLATIONS = {
    UNIQ: "full UNIQ",
    "uniq fixed tau": "fixed τ = 0.9",
    "uniq raw sigma": "raw σ (no conformal)",
    "uniq kappa 0": "κ = 0",
    "uniq kappa 1": "κ = 1",
    "uniq kappa 2": "κ = 2",
    "uniq 1 member": "N_v = 1",
    "uniq 5 members": "N_v = 5",
    "uniq primary": "reading = primary",
    "uniq disagreement": "calibrate = disagreement",
    "uniq low rank": "ensemble = low-rank",
    "uniq independent": "ensemble = independent",
}


def label(variant: str) -> str:
    for names in (METHODS, CONTROLS, ABLATIONS):
        if variant in names:
            return names[variant]
    return variant


def in_order(keys: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    """Variants at budgets, in the one order that every table and chart has.

    UNIQ and IQL first, side by side at each budget, the largest first; then method by method, controls and ablations.
    """
    known = list(dict.fromkeys([*METHODS, *CONTROLS, *ABLATIONS]))

    def rank(key: tuple[str, int]) -> tuple[int, int, int, str, int]:
        variant, steps = key
        place = known.index(variant) if variant in known else len(known)
        return (0, -steps, place, "", 0) if variant in LEADING else (1, 0, place, variant, -steps)

    return sorted(keys, key=rank)


def place_of(name: str) -> tuple[int, str]:
    """Where a set stands among others: first the paper's, then the regenerated ones, then the rest by name."""
    known = (*SETS, *REGENERATED_SETS)
    return (known.index(name) if name in known else len(known), name)


def ordered_sets(names: Iterable[str]) -> list[str]:
    return sorted(set(names), key=place_of)


def on_sets(results: Iterable[RunResult], sets: Sequence[str]) -> list[RunResult]:
    return [run for run in results if run.set in sets]


GRIDS = Path("results") / "grids"
USUAL_GRIDS = {
    IQL: "main",
    UNIQ: "main",
    ONE: "main",
    "bc": "baselines",
    "td3_bc": "baselines",
    "rebrac": "baselines",
    "cql": "baselines",
    "sac_n": "baselines",
    "edac": "baselines",
    "dt": "baselines",
    "iql at 0.63": "controls",
    "iql at 0.66": "controls",
    "uniq fixed tau": "controls",
    "iql on 80 %": "controls",
}
"""Where a variant is described when no grid file is at hand; Table 3's other rows are in `ablations`."""


def command(run: RunResult, folder: Path | None = None) -> str:
    """What a person types to make this run, and the others of its row, again."""
    usual = "regenerated" if run.kind == REGENERATED else USUAL_GRIDS.get(run.variant, "ablations")
    grid = _described(folder).get((run.variant, run.recipe.steps, str(run.recipe.data["name"])), usual)
    return f'uniq-rl bench {GRIDS.as_posix()}/{grid}.toml --only "{run.variant}"'


@functools.cache
def _described(folder: Path | None) -> dict[tuple[str, int, str], str]:
    """Variant, budget and data of every run that the grids of the working folder or the checkout ask for."""
    here = GRIDS if GRIDS.is_dir() else Path(__file__).resolve().parents[3] / GRIDS
    found: dict[tuple[str, int, str], str] = {}
    for path in sorted((folder or here).glob("*.toml")):
        try:
            content = tomllib.loads(path.read_text(encoding="utf-8"))
            for entry in content["entry"]:
                for data in entry.get("sets", content["sets"]):
                    name = data if isinstance(data, str) else data["name"]
                    found.setdefault((entry["variant"], entry.get("steps", content["steps"]), name), path.stem)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue  # `bench` says what is wrong with a grid; a table only misses its name
    return found
