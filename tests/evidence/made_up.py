"""Made-up results: scores around a known mean for every variant and set, so that tables can be checked by hand."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from uniq_rl.evidence.results import Recipe, RunResult

TASKS, KINDS = ("hopper", "walker2d", "halfcheetah"), ("medium", "medium-replay", "medium-expert")


def made_up(
    variant: str = "iql",
    task: str = "hopper",
    kind: str = "medium",
    seed: int = 0,
    steps: int = 1000,
    mean: float = 60.0,
    evaluations: int = 12,
    diverged: bool = False,
    uncertain: bool | None = None,
) -> RunResult:
    rng = np.random.default_rng([seed, steps, *variant.encode(), *task.encode(), *kind.encode()])
    every = steps // evaluations
    lines = []
    for i in range(1, evaluations + 1):
        returns = rng.normal(mean * i / evaluations, 5, 10) * 32.5
        score = None if diverged and i > evaluations // 2 else float(100 * (returns.mean() + 20) / 3254)
        lines.append({"step": i * every, "score": score})
        if score is not None:
            lines[-1] |= {"returns": [round(float(r), 2) for r in returns], "lengths": [500] * 10}
    method = variant.split()[0]
    uncertain = method == "uniq" if uncertain is None else uncertain
    calibration = [
        {"step": line["step"], "q_hat": 2.0 + 0.01 * i, "coverage": 0.88, "u_above_1": 0.01}
        for i, line in enumerate(lines)
    ]
    return RunResult(
        recipe=Recipe(
            method, {"variant": variant}, {"name": f"suite/{task}-{kind}", "size": 1000}, seed, steps, every, 10, "d4rl"
        ),
        variant=variant,
        task=task,
        kind=kind,
        diverged=diverged,
        evaluations=lines,
        calibration=calibration if uncertain else [],
        diagnosis={},
        data={"fingerprint": f"{task}{kind}", "transitions": 1000, "episodes": 10},
        cost={"seconds": 12.5, "runs": 9, "run_updates_per_second": 70_000.0},
        environment={"versions": {"jax": "0.11"}, "hardware": {"device": "made up"}, "commit": "0" * 40},
    )


def made_up_table(variants: dict[str, float], seeds: Sequence[int] = (0, 1, 2), steps: int = 1000) -> list[RunResult]:
    """Every variant, around its own mean, on the nine sets."""
    return [
        made_up(variant, task, kind, seed, steps, mean)
        for variant, mean in variants.items()
        for task in TASKS
        for kind in KINDS
        for seed in seeds
    ]


def costs(**methods: tuple[float, float]) -> dict[str, Any]:
    """Time and memory of one run of each method."""
    rows = [
        {
            "method": name.replace("__", "-"),
            "runs": 1,
            "chunk": 1000,
            "run_updates_per_second": 1e6 / time,
            "microseconds_per_update": time,
            "peak_megabytes_beyond_data": memory,
        }
        for name, (time, memory) in methods.items()
    ]
    return {"hardware": {"device": "made up"}, "rows": rows}
