"""Does sigma grow off the data? Independent value networks against low-rank heads, on states of known origin.

    python benchmarks/disagreement.py --steps 50000 --out disagreement.json

Trains UNIQ on a medium set and looks at sigma on four sets of states: fresh ones of the same policy, those of a random
and of an expert policy, and fresh ones whose columns were shuffled independently, which no policy visits. For each:
the median of sigma relative to the fresh states', and how often a state from there has a larger sigma than a fresh one
(AUROC: 0.5 is blind, 1 is perfect).
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

COHORTS = (("hopper",), ("walker2d", "halfcheetah"))
TRAINED, LOOKED_AT = 200_000, 5_000


def states(task: str) -> dict[str, np.ndarray]:
    from uniq_rl import suite

    rng = np.random.default_rng(0)

    def some(kind: str, seed: int) -> np.ndarray:
        obs = suite.make(f"suite/{task}-{kind}", size=20_000, seed=seed).obs
        return obs[rng.choice(len(obs), LOOKED_AT, replace=False)]

    fresh = some("medium", seed=1)
    shuffled = np.stack([rng.permutation(column) for column in fresh.T], axis=1)
    return {"fresh": fresh, "random": some("random", 0), "expert": some("expert", 0), "shuffled": shuffled}


def area(fresh: np.ndarray, other: np.ndarray) -> float:
    """Probability that sigma is larger on one of `other` than on one of `fresh`."""
    ordered = np.sort(fresh)
    below, not_above = np.searchsorted(ordered, other, "left"), np.searchsorted(ordered, other, "right")
    return float((below + not_above).mean() / (2 * len(fresh)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=50_000)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--tasks", nargs="+", default=["hopper", "walker2d", "halfcheetah"])
    parser.add_argument("--ranks", nargs="+", type=int, default=[64])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()

    from uniq_rl import UNIQ, Plan, Run, suite, train_runs
    from uniq_rl.training.records import commit, hardware, versions

    methods = {"independent": UNIQ(ensemble="independent")}
    methods |= {f"low-rank {rank}": UNIQ(ensemble="low_rank", rank=rank) for rank in options.ranks}
    rows: list[dict[str, Any]] = []
    for group in COHORTS:
        tasks = [task for task in group if task in options.tasks]
        if not tasks:
            continue
        sets = {task: suite.make(f"suite/{task}-medium", size=TRAINED) for task in tasks}
        looked_at = {task: states(task) for task in tasks}
        for name, method in methods.items():
            runs = [Run(method, sets[task], seed, f"{task} {seed}") for task in tasks for seed in options.seeds]
            result = train_runs(runs, Plan(options.steps, options.steps, eval_episodes=10))
            last = {line["run"]: line["score"] for line in result.episodes}
            for run in runs:
                task = str(run.dataset.task)
                policy = result.policies[run.label if run.label in result.policies else run.seed]
                sigma = {kind: np.asarray(policy.uncertainty(obs).sigma) for kind, obs in looked_at[task].items()}
                fresh = sigma.pop("fresh")
                row = {"heads": name, "task": task, "seed": run.seed, "score": last[run.label]}
                row["sigma_fresh"] = float(np.median(fresh))
                row["relative"] = {kind: float(np.median(s) / np.median(fresh)) for kind, s in sigma.items()}
                row["auroc"] = {kind: area(fresh, s) for kind, s in sigma.items()}
                rows.append(row)
    if options.out:
        head = {"commit": commit(), "hardware": hardware(), "versions": versions()}
        options.out.write_text(json.dumps({**head, "steps": options.steps, "rows": rows}, indent=1) + "\n")
    print("| heads | task | sigma, fresh | random: times, AUROC | expert | shuffled | score |")
    print("|---|---|---|---|---|---|---|")
    for row in rows:
        cells = [f"{row['relative'][k]:.1f}, {row['auroc'][k]:.2f}" for k in ("random", "expert", "shuffled")]
        cells = [
            row["heads"],
            f"{row['task']} {row['seed']}",
            f"{row['sigma_fresh']:.3g}",
            *cells,
            f"{row['score']:.1f}",
        ]
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
