"""Synthetic behaviour policies, each recognisable by its mean action, in place of the trained ones."""

from pathlib import Path

import numpy as np

from uniq_rl.physics.locomotion import TASKS
from uniq_rl.suite import behaviour
from uniq_rl.suite.behaviour import Layers

WIDTHS = {"hopper": (11, 3), "walker2d": (17, 6), "halfcheetah": (17, 6)}
MEANS = (-0.5, 0.0, 0.5)  # of the unsquashed actions of the trained snapshots
STEPS = (100, 200, 400, 1000)


def layers(obs_dim: int, action_dim: int, mean: float, hidden: int = 128) -> Layers:
    rng = np.random.default_rng(0)
    first = rng.normal(size=(obs_dim, hidden)).astype(np.float32) / 10
    second = rng.normal(size=(hidden, hidden)).astype(np.float32) / 10
    head = rng.normal(size=(hidden, 2 * action_dim)).astype(np.float32) / 1000
    bias = np.repeat(np.array([mean, -1.0], np.float32), action_dim)
    return (first, np.zeros(hidden, np.float32)), (second, np.zeros(hidden, np.float32)), (head, bias)


def write_policies(path: Path) -> None:
    facts = {"seed": 0, "steps": list(STEPS), "scores": [0.0, 1.0, 2.0, 3.0], "medium": 2, "expert": 3}
    behaviour.save(path, {task: (facts, [layers(*WIDTHS[task], mean) for mean in MEANS]) for task in TASKS})
