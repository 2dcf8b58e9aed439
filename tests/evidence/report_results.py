"""Made-up results for the page: everything it can show, with a diagnosis of the finished policies."""

from dataclasses import replace
from typing import Any

import numpy as np

from evidence.made_up import KINDS, TASKS, made_up
from uniq_rl.evidence.results import RunResult

METHODS = {
    "bc": 45.0,
    "td3_bc": 66.0,
    "iql": 68.0,
    "rebrac": 74.0,
    "uniq": 70.0,
    "uniq one configuration": 71.5,
}
SHORTER = {"cql": 61.0, "sac_n": 30.0, "edac": 64.0, "dt": 58.0}
CONTROLS = {"iql at 0.63": 67.0, "iql at 0.66": 67.5, "uniq fixed tau": 66.0, "iql on 80 %": 66.5}
ABLATIONS = {
    "uniq": 62.0,
    "uniq raw sigma": 60.0,
    "uniq kappa 0": 61.0,
    "uniq kappa 1": 59.0,
    "uniq kappa 2": 50.0,
    "uniq 1 member": 60.5,
    "uniq 5 members": 63.0,
    "uniq primary": 52.0,
    "uniq low rank": 61.5,
}


def diagnosed(run: RunResult, states: int = 300) -> RunResult:
    """The same run with what is worked out from a finished policy that knows its uncertainty."""
    if not run.calibration:
        return run
    rng = np.random.default_rng([run.recipe.seed, *run.set.encode(), *run.variant.encode()])
    x, y = rng.normal(size=(2, states))
    sigma = np.hypot(x, y) * 0.6 + 0.1 * rng.random(states)
    tau = 0.5 + 0.4 / (1 + np.exp(5 * (sigma / 2.1 - 1)))
    deciles = np.sort(sigma).reshape(10, -1).mean(axis=1)
    counts, edges = np.histogram(tau, 20)
    shares, bounds = np.histogram(sigma, 20)
    diagnosis: dict[str, Any] = {
        "error": {
            "rank_correlation": round(float(rng.uniform(-0.1, 0.6)), 4),
            "rows": states,
            "sigma": deciles.tolist(),
            "error": (deciles * 3 + rng.normal(0, 0.4, 10)).tolist(),
        },
        "map": {"x": x.tolist(), "y": y.tolist(), "tau": tau.tolist(), "sigma": sigma.tolist()},
        "distributions": {
            "tau": {"edges": edges.tolist(), "counts": counts.tolist()},
            "sigma": {"edges": bounds.tolist(), "counts": shares.tolist()},
        },
    }
    steps = [line["step"] for line in run.calibration]
    above = 0.1 if "one" in run.variant else 0.012
    calibration = [
        {
            "step": step,
            "q_hat": 1.0 + 2.0 * i / len(steps) + 0.1 * float(rng.random()),
            "coverage": 0.9 + 0.02 * float(rng.normal()),
            "u_above_1": above * float(rng.uniform(0.8, 1.2)),
        }
        for i, step in enumerate(steps)
    ]
    config = run.recipe.config | {"delta": 0.1, "tau_min": 0.5, "tau_max": 0.9}
    return replace(run, recipe=replace(run.recipe, config=config), diagnosis=diagnosis, calibration=calibration)


def table_of(variants: dict[str, float], seeds: tuple[int, ...], steps: int) -> list[RunResult]:
    """Every variant on the nine sets, with round steps and a speed of its own."""
    runs = [
        made_up(variant, task, kind, seed, steps, mean, evaluations=20)
        for variant, mean in variants.items()
        for task in TASKS
        for kind in KINDS
        for seed in seeds
    ]
    return [replace(run, cost=run.cost | {"run_updates_per_second": 1e3 * len(run.variant) ** 2.5}) for run in runs]


def whole_grid() -> list[RunResult]:
    """All that the plan of runs asks for, about four hundred of them."""
    runs = table_of(METHODS, (0, 1, 2), 1_000_000)
    runs += table_of(SHORTER, (0, 1), 300_000)
    runs += table_of(CONTROLS | ABLATIONS | {"iql": 64.0}, (0,), 300_000)
    for variant, mean in {"iql": 62.0, "uniq": 64.0}.items():
        runs += [
            made_up(variant, task, "medium (regenerated)", seed, 1_000_000, mean, evaluations=20)
            for task in TASKS
            for seed in (0, 1, 2)
        ]
    keys = [(run.variant, run.task, run.kind, run.recipe.seed) for run in runs]
    failed = keys.index(("sac_n", "hopper", "medium", 0))
    runs[failed] = made_up("sac_n", "hopper", "medium", 0, 300_000, 30.0, evaluations=20, diverged=True)
    return [diagnosed(run) for run in runs]
