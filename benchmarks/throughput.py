"""Updates per second and peak device memory of UNIQ and IQL, alone and many runs in one program.

    python benchmarks/throughput.py --methods iql uniq --runs 1 3 9 27 54 --out throughput.json
    python benchmarks/throughput.py --methods iql --runs 27 --compiler '{"xla_gpu_triton_gemm_any": true}'

Every configuration has a process of its own, so that peak memory is its own. All of them compile at the same time and
then wait for their turn, so that nothing else runs while one is timed. Sizes are halfcheetah's (17 observations, 6
actions), batch 256, on random data: speed does not depend on what the numbers are.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

TRANSITIONS = 200_000


VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "uniq-low-rank": ("uniq", {"ensemble": "low_rank"}),
    "uniq-rank-32": ("uniq", {"ensemble": "low_rank", "rank": 32}),
    "uniq-rank-64": ("uniq", {"ensemble": "low_rank", "rank": 64}),
    "uniq-independent": ("uniq", {"ensemble": "independent"}),
    "uniq-middle": ("uniq", {"ensemble": "independent", "outer_levels": False}),
    "sac_n-10": ("sac_n", {"critics": 10}),
    "sac_n-500": ("sac_n", {"critics": 500}),
    "edac-10": ("edac", {"critics": 10}),
    "edac-50": ("edac", {"critics": 50}),
    "dt-64": ("dt", {"batch_size": 64, "learning_rate": 1e-4}),
}
"""Names of a method with other options than its defaults."""


def method(name: str) -> Any:
    from uniq_rl.algorithms import algorithm_named

    algorithm, options = VARIANTS.get(name, (name, {}))
    return algorithm_named(algorithm)(**options)


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


def measure(name: str, runs: int, seconds: float, chunk: int, compiler: dict[str, Any]) -> dict[str, Any]:
    """Train for a while, `chunk` updates at a time; diagnoses are included in memory, not in time."""
    import jax

    from uniq_rl.training import cohort as training
    from uniq_rl.training.cohort import Cohort, Run

    training.COMPILER.setdefault(jax.default_backend(), {}).update(compiler)
    algorithm = method(name).budgeted(1_000_000)
    cohort = Cohort([Run(algorithm, synthetic(TRANSITIONS), seed, str(seed)) for seed in range(runs)])
    began = time.perf_counter()
    progress = jax.block_until_ready(cohort.advance(cohort.start(), chunk))
    compiled = time.perf_counter() - began
    cohort.diagnose(progress)
    progress = cohort.calibrate(progress)
    print("ready", flush=True)
    sys.stdin.readline()

    began, updates = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        progress = jax.block_until_ready(cohort.advance(progress, chunk))
        updates += chunk
    elapsed = time.perf_counter() - began
    began = time.perf_counter()
    jax.block_until_ready(cohort.calibrate(progress))
    calibration = time.perf_counter() - began
    memory = jax.devices()[0].memory_stats() or {}
    data = cohort.store.nbytes
    return {
        "method": name,
        "runs": runs,
        "chunk": chunk,
        "run_updates_per_second": round(updates * runs / elapsed, 1),
        "microseconds_per_update": round(1e6 * elapsed / updates, 1),
        "first_call_seconds": round(compiled, 1),
        "calibration_seconds": round(calibration, 4) if cohort.interval else None,
        "peak_megabytes_beyond_data": round((memory["peak_bytes_in_use"] - data) / 1e6, 1) if memory else None,
        "data_megabytes": round(data / 1e6, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=["iql", "uniq"])
    parser.add_argument("--runs", nargs="+", type=int, default=[1, 3, 9, 27, 54])
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--chunk", type=int, default=1000, help="updates in one call; the training loop's on a GPU")
    parser.add_argument("--compiler", type=json.loads, default={}, help="XLA options beside the usual, as JSON")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        name, runs = options.methods[0], options.runs[0]
        print(json.dumps(measure(name, runs, options.seconds, options.chunk, options.compiler)))
        return
    configurations = [(name, runs) for name in options.methods for runs in options.runs]
    rows = together(configurations, options.seconds, options.chunk, options.compiler)
    if options.out:
        from uniq_rl.training.records import commit, hardware, versions

        options.out.parent.mkdir(parents=True, exist_ok=True)
        head = {"commit": commit(), "hardware": hardware(), "versions": versions(), "compiler": options.compiler}
        options.out.write_text(json.dumps({**head, "rows": rows}, indent=1) + "\n")
    print(table(rows))


def together(
    configurations: list[tuple[str, int]], seconds: float, chunk: int, compiler: dict[str, Any] | None = None
) -> list[dict[str, Any]]:
    """Measure all configurations; none starts before the last one has compiled."""
    children = []
    for name, runs in configurations:
        command = [sys.executable, __file__, "--child", "--methods", name, "--runs", str(runs)]
        command += ["--seconds", str(seconds), "--chunk", str(chunk), "--compiler", json.dumps(compiler or {})]
        environment = {"XLA_PYTHON_CLIENT_MEM_FRACTION": f"{0.9 / len(configurations):.3f}", **os.environ}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": environment}
        children.append(subprocess.Popen(command, **pipes))
    for child in children:
        if child.stdout.readline().strip() != "ready":
            for other in children:
                other.kill()
            sys.exit("a configuration failed; its message is above")
    rows = []
    for child in children:
        rows.append(json.loads(child.communicate("go\n")[0].splitlines()[-1]))
        print(rows[-1], flush=True)
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    time_of = {(row["method"], row["runs"]): row["microseconds_per_update"] for row in rows}
    lines = [f"\n{'method':18}{'runs':>5}{'updates/s':>11}{'us/update':>11}{': IQL':>7}{'peak MB':>9}{'first s':>9}"]
    for row in rows:
        memory = row["peak_megabytes_beyond_data"]
        iql = time_of.get(("iql", row["runs"]))
        ratio = f"{row['microseconds_per_update'] / iql:.2f}" if iql else "-"
        lines.append(
            f"{row['method']:18}{row['runs']:>5}{row['run_updates_per_second']:>11,.0f}"
            f"{row['microseconds_per_update']:>11,.1f}{ratio:>7}{memory if memory is not None else '-':>9}"
            f"{row['first_call_seconds']:>9}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
