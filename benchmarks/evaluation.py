"""Evaluation in lockstep against a loop over Gymnasium environments, on the same cores.

    python benchmarks/evaluation.py --policies 27 --episodes 10 --out evaluation.json

The loop is the one found in most libraries: a policy at a time, an episode at a time, an action for one observation
from a compiled function, a step of the environment. Both sides play the same policies (an actor that gives the mean
action, untrained, hidden 256 256) in halfcheetah, whose episodes never end early, so that both do exactly the same
number of steps. The loop is measured on a few episodes, since its rate does not depend on their number.
"""

import argparse
import json
import os
import sys
import tempfile
import time
import types
import warnings
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import numpy as np

TASK, ENVIRONMENT = "halfcheetah", "HalfCheetah-v4"


def policies(count: int) -> Any:
    from throughput import method, synthetic
    from uniq_rl.training.cohort import Cohort, Run

    cohort = Cohort([Run(method("iql"), synthetic(1000), seed, str(seed)) for seed in range(count)])
    return cohort.policies(cohort.start())


def lockstep(stack: Any, count: int, episodes: int) -> tuple[int, float]:
    from uniq_rl.training.evaluation import Evaluator

    evaluator = Evaluator([TASK] * count, "gymnasium-v4", episodes)
    evaluator.evaluate(stack, np.ones(count, bool), step=1)  # compiles
    began = time.perf_counter()
    evaluation = evaluator.evaluate(stack, np.ones(count, bool), step=2)
    return int(evaluation.lengths.sum()), time.perf_counter() - began


def loop(stack: Any, episodes: int) -> tuple[int, float]:
    import gymnasium

    sys.modules.setdefault("imageio", types.ModuleType("imageio"))  # Gymnasium asks for it, rendering alone uses it
    act = jax.jit(lambda policy, obs: policy.act(obs[None])[0][0])
    one = jax.tree.map(lambda leaf: jax.numpy.asarray(leaf[0]), stack)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        environment = gymnasium.make(ENVIRONMENT)
    steps, began = 0, 0.0
    for episode in range(episodes + 1):
        obs, _ = environment.reset(seed=episode)
        over = False
        while not over:
            action = np.asarray(act(one, obs.astype(np.float32)))
            obs, _, terminated, truncated, _ = environment.step(action)
            over = terminated or truncated
            steps += 1
        if episode == 0:  # the first compiles
            steps, began = 0, time.perf_counter()
    return steps, time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policies", type=int, default=27)
    parser.add_argument("--episodes", type=int, default=10)
    parser.add_argument("--loop-episodes", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    options.out = options.out and options.out.absolute()
    os.chdir(tempfile.mkdtemp())  # MuJoCo logs to the working directory
    stack = policies(options.policies)
    ours, our_seconds = lockstep(stack, options.policies, options.episodes)
    theirs, their_seconds = loop(stack, options.loop_episodes)
    rates = ours / our_seconds, theirs / their_seconds
    result = {
        "task": TASK,
        "policies": options.policies,
        "episodes": options.episodes,
        "lockstep_steps_per_second": round(rates[0]),
        "lockstep_seconds": round(our_seconds, 2),
        "loop_steps_per_second": round(rates[1]),
        "loop_seconds_for_as_many": round(ours / rates[1], 1),
        "ratio": round(rates[0] / rates[1], 2),
    }
    if options.out:
        from uniq_rl.training.records import commit, hardware, versions

        head = {"commit": commit(), "hardware": hardware(), "versions": versions()}
        options.out.write_text(json.dumps({**head, **result}, indent=1) + "\n")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
