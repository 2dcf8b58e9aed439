"""Choose the behaviour policies to ship from what `train_behaviour` left behind, and measure them again.

    python -m uniq_rl.suite.select DIR

For each task one seed is chosen, with the medium policy nearest to D4RL's score, the expert, and the way between them.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from uniq_rl.algorithms.base import Spec
from uniq_rl.errors import UniqError
from uniq_rl.physics.locomotion import TASKS, Lockstep
from uniq_rl.physics.scores import score
from uniq_rl.storage import load_tree
from uniq_rl.suite import behaviour, command, sac
from uniq_rl.suite.behaviour import Layers, TanhGaussian, Uniform
from uniq_rl.suite.generate import returns_of
from uniq_rl.suite.train_behaviour import FORMAT

MEDIUM = {"hopper": 44.0, "walker2d": 62.0, "halfcheetah": 41.0}
"""Mean scores of D4RL's medium data."""

TOLERANCE = 5.0
CANDIDATES = 5
BEFORE_MEDIUM = 8
AFTER_MEDIUM = 6
MAX_BYTES = 2_000_000

Measure = Callable[[int, int], float]
"""Seed and snapshot to mean score."""


@dataclass(frozen=True)
class Choice:
    seed: int  # number of the run among those of its task
    medium: int
    medium_score: float
    expert: int
    expert_score: float


def choose(recorded: np.ndarray, measure: Measure, target: float) -> Choice:
    """The seed and its medium and expert snapshots, from recorded scores `[seeds, snapshots]`.

    The record, of few episodes, only proposes: the expert and the nearest candidates for medium are measured anew.
    Medium comes before the expert, so that the replay up to it is the way of a policy that still improves.
    """
    found = []
    for seed, scores in enumerate(recorded):
        expert = int(np.argmax(scores))
        nearest = np.argsort(np.abs(scores[:expert] - target), kind="stable")[:CANDIDATES]
        measured = [(measure(seed, int(snapshot)), int(snapshot)) for snapshot in nearest]
        if measured:
            medium_score, medium = min(measured, key=lambda pair: abs(pair[0] - target))
            found.append(Choice(seed, medium, medium_score, expert, measure(seed, expert)))
    fitting = [choice for choice in found if abs(choice.medium_score - target) <= TOLERANCE]
    if not fitting:
        tried = ", ".join(f"{choice.medium_score:.1f}" for choice in found) or "none"
        raise UniqError(f"No snapshot scores within {TOLERANCE:g} points of {target:g} (nearest by seed: {tried}).")
    return max(fitting, key=lambda choice: choice.expert_score)


def spread(steps: Sequence[int], first: int, last: int, count: int) -> list[int]:
    """At most `count` of the snapshots `first` to `last`, evenly spread in steps; `last` is always among them."""
    if first > last:
        return []
    begin = steps[first - 1] if first else 0
    goals = begin + (steps[last] - begin) * np.arange(1, count + 1) / count
    positions = np.array(steps[first : last + 1])
    return sorted({first + int(np.argmin(np.abs(positions - goal))) for goal in goals})


def select(folder: Path, out: Path, episodes: int, say: Callable[[str], None]) -> None:
    try:
        record = json.loads((folder / "snapshots.json").read_bytes())
    except (OSError, ValueError):
        raise UniqError(f"{folder} holds no readable snapshots.json; give the folder that training wrote.") from None
    if record.get("format") != FORMAT:
        raise UniqError(f"{folder / 'snapshots.json'} was written by another version; train again.")
    chosen = {task: _of_task(folder, record, task, episodes, say) for task in record["plan"]["tasks"]}
    out.parent.mkdir(parents=True, exist_ok=True)
    behaviour.save(out, chosen)
    if out.stat().st_size > MAX_BYTES:
        raise UniqError(f"{out} has {out.stat().st_size} bytes, but at most {MAX_BYTES} may ship; choose fewer.")
    say(f"wrote {out}, {out.stat().st_size:,} bytes")


def _of_task(
    folder: Path, record: dict[str, Any], task: str, episodes: int, say: Callable[[str], None]
) -> tuple[dict[str, Any], list[Layers]]:
    runs = [run for run in record["runs"] if run["task"] == task]
    steps = [snapshot["step"] for snapshot in runs[0]["snapshots"]]
    actors = _actors(folder, record, task, len(runs), len(steps))
    spec = _spec(task)

    def measure(seed: int, snapshot: int) -> float:
        policy = TanhGaussian(unpadded(actors, seed, snapshot, spec))
        returns = returns_of(task, policy, episodes, (TASKS.index(task), seed, snapshot))
        say(f"{task} seed {runs[seed]['seed']} step {steps[snapshot]:,}: {score(task, float(returns.mean())):.1f}")
        return score(task, float(returns.mean()))

    recorded = np.array([[_recorded(snapshot) for snapshot in run["snapshots"]] for run in runs])
    random_steps = record["plan"]["random_steps"]
    untrained = sum(
        step <= random_steps for step in steps
    )  # nothing was learnt yet: the uniform policy stands for them
    recorded[:, :untrained] = -np.inf
    choice = choose(recorded, measure, MEDIUM[task])
    taken = spread(steps, untrained, choice.medium, BEFORE_MEDIUM)
    later = spread(steps, choice.medium + 1, len(steps) - 1, AFTER_MEDIUM)
    taken = sorted({*taken, *later, choice.expert})
    known = {choice.medium: choice.medium_score, choice.expert: choice.expert_score}
    scores = [known[snapshot] if snapshot in known else measure(choice.seed, snapshot) for snapshot in taken]
    uniform = score(task, float(returns_of(task, Uniform(spec.action_dim), episodes, (TASKS.index(task),)).mean()))
    facts = {
        "seed": runs[choice.seed]["seed"],
        "steps": [random_steps, *(steps[snapshot] for snapshot in taken)],
        "scores": [round(value, 2) for value in (uniform, *scores)],
        "medium": 1 + taken.index(choice.medium),
        "expert": 1 + taken.index(choice.expert),
    }
    say(f"{task}: {facts}")
    return facts, [unpadded(actors, choice.seed, snapshot, spec) for snapshot in taken]


def _recorded(snapshot: dict[str, Any]) -> float:
    """The score training recorded: of evaluation, or, where time was up, of the training episodes."""
    if "stochastic" in snapshot:
        return float(np.mean(snapshot["stochastic"]))
    return -np.inf if snapshot["training_score"] is None else float(snapshot["training_score"])


def _actors(folder: Path, record: dict[str, Any], task: str, seeds: int, snapshots: int) -> sac.Actor:
    """The stored actors of a task, `[seeds, snapshots, ...]`."""
    hidden = tuple(record["plan"]["learning"]["actor_hidden"])
    one = jax.eval_shape(lambda: sac.Actor.init(jax.random.key(0), sac.WIDEST, hidden))
    kind = np.dtype(np.float16)
    template = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((seeds, snapshots, *leaf.shape), kind), one)
    return load_tree(folder / f"snapshots-{task}.safetensors", template)


def unpadded(actors: sac.Actor, seed: int, snapshot: int, spec: Spec) -> Layers:
    """One actor without the rows and columns that exist for other tasks' sake."""
    layers = [
        (np.asarray(layer.weight[seed, snapshot], np.float32), np.asarray(layer.bias[seed, snapshot], np.float32))
        for layer in actors.net.layers
    ]
    width = layers[-1][0].shape[1] // 2
    head = np.concatenate([np.arange(spec.action_dim), width + np.arange(spec.action_dim)])
    layers[0] = (layers[0][0][: spec.obs_dim], layers[0][1])
    layers[-1] = (layers[-1][0][:, head], layers[-1][1][head])
    return tuple(layers)


def _spec(task: str) -> Spec:
    with Lockstep(task, 1) as env:
        return Spec(env.obs_dim, env.action_dim)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m uniq_rl.suite.select", description=__doc__)
    parser.add_argument("folder", type=Path, help="what train_behaviour wrote")
    parser.add_argument("--episodes", type=int, default=100, help="episodes to measure each candidate by")
    parser.add_argument("--out", type=Path, default=behaviour.PATH)
    given = parser.parse_args(arguments)
    select(given.folder, given.out, given.episodes, lambda text: print(text, flush=True))


if __name__ == "__main__":
    command.run(main)
