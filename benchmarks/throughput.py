"""Updates per second and peak device memory of UNIQ and IQL, alone and many runs in one program.

    python benchmarks/throughput.py --methods uniq iql uniq-low-rank --runs 1 27 --out throughput.json

Every configuration has a process of its own, so that peak memory is its own. Sizes are halfcheetah's (17 observations,
6 actions), batch 256, on random data: speed does not depend on what the numbers are. Ratios are taken in one run.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

TRANSITIONS = 200_000


def method(name: str) -> Any:
    from uniq_rl.algorithms import IQL, UNIQ

    return {"iql": IQL(), "uniq": UNIQ(), "uniq-low-rank": UNIQ(ensemble="low_rank")}[name]


def synthetic(rows: int) -> Any:
    import numpy as np

    from uniq_rl.data import Dataset

    rng = np.random.default_rng(0)
    obs = rng.standard_normal((rows, 17), dtype=np.float32)
    end = np.arange(1, rows + 1) % 1000 == 0
    return Dataset(
        obs=obs,
        action=rng.uniform(-1, 1, (rows, 6)).astype(np.float32),
        reward=rng.standard_normal(rows, dtype=np.float32),
        next_obs=np.roll(obs, -1, axis=0),
        mask=np.ones(rows, np.float32),
        episode_end=end,
        name="synthetic",
    )


def measure(name: str, runs: int, seconds: float) -> dict[str, Any]:
    import jax

    from uniq_rl.training.cohort import Cohort, Run

    dataset = synthetic(TRANSITIONS)
    algorithm = method(name).budgeted(1_000_000)
    cohort = Cohort([Run(algorithm, dataset, seed, str(seed)) for seed in range(runs)])
    chunk = 1000 if jax.default_backend() != "cpu" else 20
    began = time.perf_counter()
    progress = jax.block_until_ready(cohort.advance(cohort.start(), chunk))
    compiled = time.perf_counter() - began
    began, updates = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        progress = jax.block_until_ready(cohort.advance(progress, chunk))
        updates += chunk
    elapsed = time.perf_counter() - began
    calibration = None
    if cohort.interval:
        jax.block_until_ready(cohort.calibrate(progress))
        progress = cohort.start()
        began = time.perf_counter()
        jax.block_until_ready(cohort.calibrate(progress))
        calibration = round(time.perf_counter() - began, 4)
    memory = jax.devices()[0].memory_stats() or {}
    data = cohort.store.nbytes
    return {
        "method": name,
        "runs": runs,
        "run_updates_per_second": round(updates * runs / elapsed, 1),
        "microseconds_per_update": round(1e6 * elapsed / updates, 1),
        "first_call_seconds": round(compiled, 1),
        "calibration_seconds": calibration,
        "peak_megabytes_beyond_data": round((memory["peak_bytes_in_use"] - data) / 1e6, 1) if memory else None,
        "data_megabytes": round(data / 1e6, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=["iql", "uniq"])
    parser.add_argument("--runs", nargs="+", type=int, default=[1, 27])
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measure(options.methods[0], options.runs[0], options.seconds)))
        return

    from uniq_rl.training.records import commit, hardware, versions

    rows = []
    for name in options.methods:
        for runs in options.runs:
            command = [sys.executable, __file__, "--child", "--methods", name, "--runs", str(runs)]
            done = subprocess.run([*command, "--seconds", str(options.seconds)], capture_output=True, text=True)
            if done.returncode:
                sys.exit(done.stderr)
            rows.append(json.loads(done.stdout.splitlines()[-1]))
            print(rows[-1], flush=True)
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        content = {"commit": commit(), "hardware": hardware(), "versions": versions(), "rows": rows}
        options.out.write_text(json.dumps(content, indent=1) + "\n")
    print(f"\n{'method':16}{'runs':>5}{'updates/s':>12}{'us/update':>11}{'peak MB':>9}{'first s':>9}")
    for row in rows:
        memory = row["peak_megabytes_beyond_data"]
        print(
            f"{row['method']:16}{row['runs']:>5}{row['run_updates_per_second']:>12,.0f}"
            f"{row['microseconds_per_update']:>11,.0f}{memory if memory is not None else '-':>9}"
            f"{row['first_call_seconds']:>9}"
        )


if __name__ == "__main__":
    main()
