"""Methods against each other on the nine main sets of the built-in suite: every seed, one table.

    python benchmarks/suite_table.py --methods bc iql uniq --steps 100000 --seeds 0 1 --out suite.json
    python benchmarks/suite_table.py --methods uniq-independent uniq-rank-32 --kinds medium-replay

Sets that are not in the cache yet are made first, a process per task. Runs whose observations have the same width
share a program: hopper's form one cohort, those of walker2d and halfcheetah another.
"""

import argparse
import dataclasses
import json
import multiprocessing
import time
from pathlib import Path
from typing import Any

import numpy as np

from throughput import VARIANTS

TASKS = ("hopper", "walker2d", "halfcheetah")
KINDS = ("medium", "medium-replay", "medium-expert")


def make_all(names: list[str], size: int | None) -> None:
    from uniq_rl import suite

    for name in names:
        suite.make(name, size=size)


def cohort(method: str, tasks: tuple[str, ...], kinds: list[str], size: int | None, seeds: list[int]) -> list[Any]:
    from uniq_rl import Run, suite
    from uniq_rl.algorithms import algorithm_named

    algorithm_name, changes = VARIANTS.get(method, (method, {}))
    runs = []
    for task in tasks:
        for kind in kinds:
            name = f"suite/{task}-{kind}"
            dataset = suite.make(name, size=size)
            preset = algorithm_named(algorithm_name).preset("paper", task, kind)
            algorithm = dataclasses.replace(preset, **changes)
            runs += [Run(algorithm, dataset, seed, f"{task}-{kind}-{seed}") for seed in seeds]
    return runs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=["bc", "iql", "uniq"])
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--episodes", type=int, default=10)
    parser.add_argument("--eval-every", type=int, help="a fifth of the steps when left out")
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=TASKS)
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
    parser.add_argument("--size", type=int, help="transitions per set; D4RL's sizes when left out")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()

    options.cohorts = [
        tasks
        for group in (("hopper",), ("walker2d", "halfcheetah"))
        if (tasks := tuple(t for t in group if t in options.tasks))
    ]

    began = time.perf_counter()
    context = multiprocessing.get_context("spawn")
    makers = []
    for task in options.tasks:
        names = [f"suite/{task}-{kind}" for kind in options.kinds]
        makers.append(context.Process(target=make_all, args=(names, options.size)))
        makers[-1].start()
    for maker in makers:
        maker.join()
        if maker.exitcode:
            raise SystemExit(maker.exitcode)
    print(f"data ready after {time.perf_counter() - began:.0f} s", flush=True)

    from uniq_rl import Monitor, Plan, train_runs

    class Clock(Monitor):
        """When each step was reached, from the first chunk on: without compilation."""

        def __init__(self) -> None:
            self.reached: list[tuple[int, float]] = []

        def advanced(self, step: int) -> None:
            self.reached.append((step, time.perf_counter()))

    rows: list[dict[str, Any]] = []
    times: list[dict[str, Any]] = []
    for method in options.methods:
        for tasks in options.cohorts:
            runs = cohort(method, tasks, options.kinds, options.size, options.seeds)
            clock, began = Clock(), time.perf_counter()
            plan = Plan(options.steps, options.eval_every or max(1, options.steps // 5), options.episodes)
            result = train_runs(runs, plan, monitor=clock)
            seconds = time.perf_counter() - began
            (first, start), (last, end) = clock.reached[0], clock.reached[-1]
            # The last evaluation has no training to hide behind, so it is part of the rest, once per training.
            rest = began + seconds - end
            million = (1_000_000 - first) * (end - start) / (last - first) + rest
            times.append({"method": method, "tasks": tasks, "runs": len(runs), "seconds": round(seconds, 1)})
            times[-1] |= {"steps": options.steps, "seconds_for_a_million": round(million, 1), "rest": round(rest, 1)}
            for run in runs:
                history = [line for line in result.episodes if line["run"] == run.label]
                task, kind, seed = run.label.split("-", 1)[0], run.label.split("-", 1)[1].rsplit("-", 1)[0], run.seed
                scores = [line["score"] for line in history]
                rows.append({"method": method, "task": task, "kind": kind, "seed": seed, "scores": scores})
            print(
                f"{method} on {', '.join(tasks)}: {len(runs)} runs in {seconds:.0f} s, compilation included; "
                f"1M updates of them would take {million:.0f} s without",
                flush=True,
            )
            write(options, rows, times)
    print(table(rows, options.methods))


def write(options: argparse.Namespace, rows: list[dict[str, Any]], times: list[dict[str, Any]]) -> None:
    from uniq_rl.training.records import commit, hardware, versions

    if options.out:
        content = {
            "commit": commit(),
            "steps": options.steps,
            "episodes": options.episodes,
            "size": options.size,
            "physics": "d4rl",
            "hardware": hardware(),
            "versions": versions(),
            "times": times,
            "rows": rows,
        }
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(content, indent=1) + "\n")


def table(rows: list[dict[str, Any]], methods: list[str]) -> str:
    """Last scores of every seed, and the mean of each method."""
    lines = ["| set | " + " | ".join(methods) + " |", "|---|" + "---|" * len(methods)]
    for task in TASKS:
        for kind in KINDS:
            cells = []
            for method in methods:
                found = [r["scores"][-1] for r in rows if (r["method"], r["task"], r["kind"]) == (method, task, kind)]
                cells.append(" / ".join("failed" if score is None else f"{score:.1f}" for score in found))
            if not any(cells):
                continue
            lines.append(f"| {task}-{kind} | " + " | ".join(cells) + " |")
    means = [np.mean([row["scores"][-1] or 0.0 for row in rows if row["method"] == method]) for method in methods]
    return "\n".join([*lines, "| mean | " + " | ".join(f"{mean:.1f}" for mean in means) + " |"])


if __name__ == "__main__":
    main()
