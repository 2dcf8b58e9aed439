"""How long a data set takes to write and to read, as it is kept and as it would be compressed.

    python benchmarks/storage.py --data suite/halfcheetah-medium --size 200000 --out storage.json

Both files hold the same columns; they are written in turns and then read in turns, and the best of five times counts.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import uniq_rl as ur
from uniq_rl.data import load_npz, save_npz
from uniq_rl.training.records import commit, hardware, versions

TURNS = 5


def seconds(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def in_turns(**jobs: Callable[[], Any]) -> dict[str, float]:
    """The best time of each; the first turn is not counted, for it pays for memory that later ones find."""
    turns = [[seconds(job) for job in jobs.values()] for _ in range(1 + TURNS)]
    return dict(zip(jobs, np.min(turns[1:], axis=0).tolist(), strict=True))


def measure(data: ur.Dataset) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        plain, deflated = Path(folder) / "plain.npz", Path(folder) / "deflated.npz"
        save_npz(data, plain)
        with np.load(plain) as columns:
            kept = dict(columns)
        times = in_turns(
            write=lambda: save_npz(data, plain), write_deflated=lambda: np.savez_compressed(deflated, **kept)
        )
        times |= in_turns(read=lambda: load_npz(plain), read_deflated=lambda: load_npz(deflated))
        sizes = {"megabytes": plain.stat().st_size / 1e6, "megabytes_deflated": deflated.stat().st_size / 1e6}
    return {
        "transitions": data.size,
        **{f"{name}_seconds": round(value, 3) for name, value in times.items()},
        **{name: round(value, 1) for name, value in sizes.items()},
        "write_ratio": round(times["write_deflated"] / times["write"], 1),
        "read_ratio": round(times["read_deflated"] / times["read"], 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="suite/halfcheetah-medium")
    parser.add_argument("--size", type=int, default=200_000)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    data = ur.load_dataset(options.data, size=options.size)
    found = {"commit": commit(), "hardware": hardware(), "versions": versions(), "data": options.data, **measure(data)}
    text = json.dumps(found, indent=1)
    print(text)
    if options.out:
        options.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
