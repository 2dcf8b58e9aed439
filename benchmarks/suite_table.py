"""Methods against each other on the nine main sets of the built-in suite: every seed, one table.

    python benchmarks/suite_table.py --methods bc iql uniq --steps 100000 --seeds 0 1 --out suite.json

Sets that are not in the cache yet are made first, a process per task. Runs whose observations have the same width
share a program: hopper's form one cohort, those of walker2d and halfcheetah another.
"""

import argparse
import json
import multiprocessing
import time
from pathlib import Path
from typing import Any

import numpy as np

TASKS = ("hopper", "walker2d", "halfcheetah")
KINDS = ("medium", "medium-replay", "medium-expert")


def make_all(names: list[str], size: int | None) -> None:
    from uniq_rl import suite

    for name in names:
        suite.make(name, size=size)


def cohort(method: str, tasks: tuple[str, ...], size: int | None, seeds: list[int]) -> list[Any]:
    from uniq_rl import Run, suite
    from uniq_rl.algorithms import algorithm_named

    runs = []
    for task in tasks:
        for kind in KINDS:
            name = f"suite/{task}-{kind}"
            dataset = suite.make(name, size=size)
            algorithm = algorithm_named(method).preset("paper", task, kind)
            runs += [Run(algorithm, dataset, seed, f"{task}-{kind}-{seed}") for seed in seeds]
    return runs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=["bc", "iql", "uniq"])
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--episodes", type=int, default=10)
    parser.add_argument("--size", type=int, help="transitions per set; D4RL's sizes when left out")
    parser.add_argument("--commit", help="recorded beside the results")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()

    began = time.perf_counter()
    context = multiprocessing.get_context("spawn")
    makers = []
    for task in TASKS:
        names = [f"suite/{task}-{kind}" for kind in KINDS]
        makers.append(context.Process(target=make_all, args=(names, options.size)))
        makers[-1].start()
    for maker in makers:
        maker.join()
        if maker.exitcode:
            raise SystemExit(maker.exitcode)
    print(f"data ready after {time.perf_counter() - began:.0f} s", flush=True)

    from uniq_rl import Plan, train_runs
    from uniq_rl.training.records import commit, hardware, versions

    rows: list[dict[str, Any]] = []
    for method in options.methods:
        for tasks in (("hopper",), ("walker2d", "halfcheetah")):
            runs = cohort(method, tasks, options.size, options.seeds)
            began = time.perf_counter()
            plan = Plan(options.steps, max(1, options.steps // 5), options.episodes)
            result = train_runs(runs, plan)
            seconds = time.perf_counter() - began
            for run in runs:
                history = [line for line in result.episodes if line["run"] == run.label]
                task, kind, seed = run.label.split("-", 1)[0], run.label.split("-", 1)[1].rsplit("-", 1)[0], run.seed
                scores = [line["score"] for line in history]
                rows.append({"method": method, "task": task, "kind": kind, "seed": seed, "scores": scores})
            print(f"{method} on {', '.join(tasks)}: {len(runs)} runs in {seconds:.0f} s", flush=True)
    if options.out:
        content = {
            "commit": options.commit or commit(),
            "steps": options.steps,
            "episodes": options.episodes,
            "size": options.size,
            "physics": "d4rl",
            "hardware": hardware(),
            "versions": versions(),
            "rows": rows,
        }
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(content, indent=1) + "\n")
    print(table(rows, options.methods))


def table(rows: list[dict[str, Any]], methods: list[str]) -> str:
    """Last scores of every seed, and the mean of each method."""
    lines = ["| set | " + " | ".join(methods) + " |", "|---|" + "---|" * len(methods)]
    for task in TASKS:
        for kind in KINDS:
            cells = []
            for method in methods:
                found = [r["scores"][-1] for r in rows if (r["method"], r["task"], r["kind"]) == (method, task, kind)]
                cells.append(" / ".join("failed" if score is None else f"{score:.1f}" for score in found))
            lines.append(f"| {task}-{kind} | " + " | ".join(cells) + " |")
    means = [np.mean([row["scores"][-1] or 0.0 for row in rows if row["method"] == method]) for method in methods]
    return "\n".join([*lines, "| mean | " + " | ".join(f"{mean:.1f}" for mean in means) + " |"])


if __name__ == "__main__":
    main()
