"""All nine methods side by side: updates per second and peak device memory, alone and nine runs in one program.

    python benchmarks/methods.py --out methods.json

The paper's Table 2, measured: same sizes (halfcheetah's), every method at its published settings, ratios to IQL with as
many runs. Light methods are measured together, heavy ones in rounds of their own, so that all fit the device. An update
of the Decision Transformer reads windows of 20 steps: 64 of them as in its paper, and 4096 as in the better settings.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from throughput import together
from uniq_rl.evidence.tables import iql_beside

ROUNDS: list[tuple[int, list[tuple[str, int]]]] = [
    (1000, [(name, runs) for name in ("iql", "bc", "td3_bc", "rebrac", "cql", "uniq") for runs in (1, 9)]),
    (500, [("iql", 1), ("sac_n-10", 1), ("sac_n-10", 9), ("edac-10", 1), ("edac-10", 9), ("edac-50", 1), ("dt-64", 1)]),
    (50, [("edac-50", 9), ("sac_n-500", 1), ("dt-64", 9), ("dt", 1)]),
]
"""Updates in one call, and what is measured side by side with them. A call costs about 2 ms beside its updates, so IQL
is measured again in shorter ones, and ratios are to IQL in calls of the same length where there is one."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", nargs="+", type=int, default=[0, 1, 2], choices=[0, 1, 2])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for number in options.rounds:
        chunk, configurations = ROUNDS[number]
        rows += together(configurations, options.seconds, chunk)
        if options.out:
            from uniq_rl.training.records import commit, hardware, versions

            head = {"commit": commit(), "hardware": hardware(), "versions": versions()}
            options.out.write_text(json.dumps({**head, "rows": rows}, indent=1) + "\n")
    print(f"\n{'method':12}{'runs':>5}{'updates/s':>11}{'time : IQL':>12}{'peak MB':>10}{'memory : IQL':>14}")
    for row in rows:
        base = iql_beside(row, rows)
        time = row["microseconds_per_update"] / base["microseconds_per_update"]
        peaks = row["peak_megabytes_beyond_data"], base["peak_megabytes_beyond_data"]
        memory = f"{peaks[0]:>10,.0f}{peaks[0] / peaks[1]:>14.2f}" if None not in peaks else f"{'-':>10}{'-':>14}"
        print(f"{row['method']:12}{row['runs']:>5}{row['run_updates_per_second']:>11,.0f}{time:>12.2f}{memory}")


if __name__ == "__main__":
    main()
