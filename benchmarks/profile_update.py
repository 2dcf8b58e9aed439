"""Where the time of one update goes: every kernel of the training program, how long it runs and how often.

    python benchmarks/profile_update.py --method uniq --runs 27 --out profile.txt

Needs a GPU. Kernels are launched one by one here, since a graph of them shows as a single event; their own durations
are the same. Their sum is what an update would take if nothing overlapped and launching were free.
"""

import argparse
import collections
import os
import tempfile
from pathlib import Path

UPDATES = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", default="uniq")
    parser.add_argument("--runs", type=int, default=27)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()

    import jax

    from throughput import method, synthetic
    from uniq_rl.training import cohort as module

    module.COMPILER["gpu"] = {"xla_gpu_enable_command_buffer": ""}
    algorithm = method(options.method).budgeted(1_000_000)
    runs = [module.Run(algorithm, synthetic(200_000), seed, str(seed)) for seed in range(options.runs)]
    cohort = module.Cohort(runs)
    progress = jax.block_until_ready(cohort.advance(cohort.start(), UPDATES))
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            jax.block_until_ready(cohort.advance(progress, UPDATES))
        (trace,) = Path(folder).rglob("*.xplane.pb")
        time, count = collections.Counter[str](), collections.Counter[str]()
        for plane in jax.profiler.ProfileData.from_file(os.fspath(trace)).planes:
            for line in plane.lines if "GPU" in plane.name else ():
                for event in line.events if "Stream" in line.name else ():
                    time[event.name] += event.duration_ns
                    count[event.name] += 1
    scale = 1e-3 / UPDATES
    lines = [
        f"{options.method}, {options.runs} runs: {time.total() * scale:.1f} us of kernels in an update, "
        f"{count.total() / UPDATES:.1f} kernels"
    ]
    lines += [f"{ns * scale:8.2f} us x{count[name] / UPDATES:5.1f}  {name[:120]}" for name, ns in time.most_common()]
    if options.out:
        options.out.write_text("\n".join(lines) + "\n")
    print("\n".join(lines[:25]))


if __name__ == "__main__":
    main()
