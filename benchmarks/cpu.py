"""What an update costs on a CPU: UNIQ against IQL, and IQL against a minimal one in Flax and Optax.

    pip install flax
    python benchmarks/cpu.py --out cpu.json

All of them take turns in one process, in an order drawn anew for every round, so that a busy machine slows them alike;
a ratio is the median over the rounds. Sizes are halfcheetah's, batch 256.
"""

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from throughput import method, synthetic

UPDATES = 100


def ours(name: str) -> Callable[[], None]:
    from uniq_rl.training.cohort import Cohort, Run

    cohort = Cohort([Run(method(name).budgeted(1_000_000), synthetic(50_000), 0, "0")])
    progress = cohort.start()

    def advance() -> None:
        nonlocal progress
        progress = jax.block_until_ready(cohort.advance(progress, UPDATES))

    return advance


def reference() -> Callable[[], None]:
    from reference_iql import trainer

    dataset = synthetic(50_000)
    columns = {name: getattr(dataset, name) for name in ("obs", "action", "reward", "next_obs", "mask")}
    agent, train = trainer(columns, UPDATES)

    def advance() -> None:
        nonlocal agent
        agent = jax.block_until_ready(train(agent, jax.random.key(1)))

    return advance


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    names = ["iql", "uniq-low-rank", "uniq-middle", "uniq-independent"]
    racers = {"flax": reference(), **{name: ours(name) for name in names}}
    times: dict[str, list[float]] = {name: [] for name in racers}
    rng = random.Random(0)
    for turn in range(options.rounds + 2):
        for name, advance in rng.sample(list(racers.items()), len(racers)):
            began = time.perf_counter()
            advance()
            if turn > 1:
                times[name].append((time.perf_counter() - began) / UPDATES)
    rows: list[dict[str, Any]] = []
    for name, taken in times.items():
        against = {
            other: round(statistics.median(a / b for a, b in zip(taken, times[other], strict=True)), 3)
            for other in ("iql", "flax")
        }
        row = {
            "method": name,
            "updates_per_second": round(1 / statistics.median(taken), 1),
            "time_relative_to": against,
        }
        rows.append(row)
    if options.out:
        from uniq_rl.training.records import commit, hardware, versions

        content = {"commit": commit(), "hardware": hardware(), "versions": versions(), "rows": rows}
        options.out.write_text(json.dumps(content, indent=1) + "\n")
    print(f"{'method':18}{'updates/s':>10}{'time : IQL':>12}{'time : Flax IQL':>17}")
    for row in rows:
        relative = row["time_relative_to"]
        print(f"{row['method']:18}{row['updates_per_second']:>10}{relative['iql']:>12}{relative['flax']:>17}")


if __name__ == "__main__":
    main()
