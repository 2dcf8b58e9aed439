"""What the training loop costs beside its updates: records, calibration, checkpoints, evaluation.

    python benchmarks/loop.py --methods iql uniq-middle --runs 1 9 --steps 40000 --out loop.json

Each row trains the same updates three times in one process: bare calls of the compiled program, the loop without a
simulator and without files, and the whole of it as `uniq-rl bench` does it, with an evaluation every 20,000 updates.
Sizes are halfcheetah's, on random data, with as many transitions as its medium set.
"""

import argparse
import dataclasses
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import jax

from throughput import method, synthetic
from uniq_rl.training import loop
from uniq_rl.training.cohort import Run
from uniq_rl.training.loop import Monitor, Plan
from uniq_rl.training.records import commit, hardware, versions

TRANSITIONS = 1_000_000


def measure(name: str, runs: int, steps: int, eval_every: int) -> dict[str, Any]:
    data = synthetic(TRANSITIONS)
    scored = dataclasses.replace(data, task="halfcheetah")
    plan = Plan(steps, eval_every)

    def members(dataset: Any) -> list[Run]:
        return [Run(method(name), dataset, seed, str(seed)) for seed in range(runs)]

    def trained(dataset: Any, folder: Path | None) -> float:
        training = loop.begin(members(dataset), plan, folder)
        began = time.perf_counter()
        training.run(Monitor())
        return time.perf_counter() - began

    training = loop.begin(members(data), plan)
    cohort, ends = training.cohort, plan.boundaries(training.cohort.interval, training.chunk)
    for _ in range(2):  # the first compiles
        progress, begin = jax.block_until_ready(cohort.start()), 0
        began = time.perf_counter()
        for end in ends:
            progress, begin = cohort.advance(progress, end - begin, begin), end
        jax.block_until_ready(progress)
        bare = time.perf_counter() - began
    with tempfile.TemporaryDirectory() as folder:
        for repeat in ("first", "second"):
            silent = trained(data, None)
            whole = trained(scored, Path(folder) / repeat)
    rate = steps * runs
    return {
        "method": name,
        "runs": runs,
        "steps": steps,
        "bare_run_updates_per_second": round(rate / bare, 1),
        "loop_run_updates_per_second": round(rate / silent, 1),
        "whole_run_updates_per_second": round(rate / whole, 1),
        "loop_to_bare_time": round(silent / bare, 3),
        "whole_to_bare_time": round(whole / bare, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=["iql", "uniq-middle"])
    parser.add_argument("--runs", nargs="+", type=int, default=[1, 9])
    parser.add_argument("--steps", type=int, default=40_000)
    parser.add_argument("--eval-every", type=int, default=20_000)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows = []
    print(f"{'method':14}{'runs':>5}{'bare/s':>10}{'loop/s':>10}{'whole/s':>10}{'loop : bare':>13}{'whole : bare':>14}")
    for name in options.methods:
        for runs in options.runs:
            row = measure(name, runs, options.steps, options.eval_every)
            rows.append(row)
            rates = [row[f"{part}_run_updates_per_second"] for part in ("bare", "loop", "whole")]
            ratios = f"{row['loop_to_bare_time']:>13.2f}{row['whole_to_bare_time']:>14.2f}"
            print(f"{name:14}{runs:>5}{''.join(f'{rate:>10,.0f}' for rate in rates)}{ratios}", flush=True)
    if options.out:
        head = {"commit": commit(), "hardware": hardware(), "versions": versions()}
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps({**head, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
