"""Offline reinforcement learning that knows where it is uncertain.

import uniq_rl as ur

data = ur.load_dataset("hopper_medium-v2.hdf5")
result = ur.train(ur.UNIQ(kappa=0.5), data, steps=100_000, seeds=(0, 1, 2), out="runs/hopper")
result.scores                                # D4RL score by seed
result.policies[0](obs)                      # actions
result.policies[0].uncertainty(obs)          # sigma, u, tau(s), Delta per state
ur.load_policy("runs/hopper/policy-0.safetensors")
"""

from uniq_rl.algorithms import (
    ALGORITHMS,
    BC,
    CQL,
    DT,
    EDAC,
    IQL,
    SACN,
    TD3BC,
    UNIQ,
    Algorithm,
    ReBRAC,
    Uncertainty,
)
from uniq_rl.api import evaluate, load_dataset, resume, train, train_runs
from uniq_rl.data import Dataset, from_arrays, from_episodes
from uniq_rl.errors import UniqError
from uniq_rl.policy import Policy, load_policy
from uniq_rl.training.cohort import Run
from uniq_rl.training.loop import Monitor, Plan, Result

__version__ = "0.1.0"

__all__ = [
    "ALGORITHMS",
    "BC",
    "CQL",
    "DT",
    "EDAC",
    "IQL",
    "SACN",
    "TD3BC",
    "UNIQ",
    "Algorithm",
    "Dataset",
    "Monitor",
    "Plan",
    "Policy",
    "ReBRAC",
    "Result",
    "Run",
    "Uncertainty",
    "UniqError",
    "evaluate",
    "from_arrays",
    "from_episodes",
    "load_dataset",
    "load_policy",
    "resume",
    "train",
    "train_runs",
]
