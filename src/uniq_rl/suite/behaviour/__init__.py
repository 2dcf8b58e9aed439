"""The behaviour policies that ship with the library: for each task, snapshots from random to expert in one small file.

They act in plain NumPy: the networks are tiny, and the bits of a result must not depend on the number of threads.
"""

import hashlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import jax
import numpy as np
import numpy.typing as npt

from uniq_rl.errors import UniqError
from uniq_rl.storage import load_header, load_tree, save_tree

Floats = npt.NDArray[np.float32]
Layers = tuple[tuple[Floats, Floats], ...]
"""Weight `[in, out]` and bias `[out]` of each layer; the last gives means, then log-stds."""

PATH = Path(__file__).with_name("actors.safetensors")
FORMAT = "behaviour-1"
LOG_STD = (-5.0, 2.0)
BLOCK = 16
"""Rows per matrix product: BLAS keeps one so small on one thread, so its bits and its speed do not depend on how many
there are."""


class Policy(Protocol):
    def sample(self, obs: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Actions `[n, action_dim]` and their log-densities `[n]`."""
        ...


@dataclass(frozen=True)
class Uniform:
    """Any action is as likely as any other: the policy before training."""

    action_dim: int

    def sample(self, obs: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
        action = 2 * rng.random((len(obs), self.action_dim), np.float32) - 1
        return action, np.full(len(obs), -self.action_dim * np.log(2), np.float32)


@dataclass(frozen=True)
class TanhGaussian:
    """A snapshot of the actor that SAC trained."""

    layers: Layers

    def sample(self, obs: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
        mean, log_std = np.split(self._forward(obs), 2, axis=1)
        log_std = np.clip(log_std, *LOG_STD)
        noise = rng.standard_normal(mean.shape, np.float32)
        unsquashed = mean + np.exp(log_std) * noise
        gaussian = -0.5 * np.square(noise) - log_std - np.float32(0.5 * np.log(2 * np.pi))
        softplus = np.logaddexp(np.float32(0), -2 * unsquashed)
        squash = 2 * (np.float32(np.log(2)) - unsquashed - softplus)
        return np.tanh(unsquashed), (gaussian - squash).sum(axis=1)

    def _forward(self, obs: Floats) -> Floats:
        rows = -(-len(obs) // BLOCK) * BLOCK
        padded = np.zeros((rows, obs.shape[1]), np.float32)
        padded[: len(obs)] = obs
        x = padded.reshape(-1, BLOCK, obs.shape[1])
        for weight, bias in self.layers[:-1]:
            x = np.maximum(x @ weight + bias, 0)
        weight, bias = self.layers[-1]
        return (x @ weight + bias).reshape(rows, -1)[: len(obs)]


@dataclass(frozen=True)
class Behaviour:
    """One task's policies in the order of training; number 0 is the uniform policy."""

    task: str
    seed: int
    steps: tuple[int, ...]  # environment steps at which each was taken; for number 0, until which actions were uniform
    scores: tuple[float, ...]  # mean score of sampled actions, as measured when it was chosen
    medium: int
    expert: int
    policies: tuple[Policy, ...]


def load() -> dict[str, Behaviour]:
    """The shipped policies of every task."""
    if not PATH.is_file():
        raise UniqError(
            "The suite's behaviour policies are not installed; run `python -m uniq_rl.suite.train_behaviour --out DIR` "
            "to train them and `python -m uniq_rl.suite.select DIR` to choose them."
        )
    header = load_header(PATH)
    if header.get("format") != FORMAT:
        raise UniqError(f"{PATH} holds '{header.get('format')}', not behaviour policies of format '{FORMAT}'.")
    facts = header["tasks"]
    arrays = load_tree(PATH, {task: _template(fact) for task, fact in facts.items()})
    return {task: _behaviour(task, fact, arrays[task]) for task, fact in facts.items()}


def save(path: Path, chosen: Mapping[str, tuple[dict[str, Any], Sequence[Layers]]]) -> None:
    """Write, for each task, the facts (seed, steps, scores, medium, expert) and the layers of each trained snapshot."""
    facts, arrays = {}, {}
    for task, (fact, snapshots) in chosen.items():
        widths = [weight.shape[0] for weight, _ in snapshots[0]] + [snapshots[0][-1][0].shape[1]]
        facts[task] = fact | {"widths": widths}
        stacked = [
            [np.stack(leaves).astype(np.float16) for leaves in zip(*layer, strict=True)]
            for layer in zip(*snapshots, strict=True)
        ]
        arrays[task] = stacked
    save_tree(path, arrays, {"format": FORMAT, "tasks": facts})


def file_hash() -> str:
    """Identifies the shipped policies; part of every recipe."""
    load()  # for its complaint, should there be no file
    return hashlib.sha256(PATH.read_bytes()).hexdigest()


def _template(fact: dict[str, Any]) -> list[list[jax.ShapeDtypeStruct]]:
    count, widths, kind = len(fact["steps"]) - 1, fact["widths"], np.dtype(np.float16)
    return [
        [jax.ShapeDtypeStruct((count, fan_in, fan_out), kind), jax.ShapeDtypeStruct((count, fan_out), kind)]
        for fan_in, fan_out in itertools.pairwise(widths)
    ]


def _behaviour(task: str, fact: dict[str, Any], arrays: Any) -> Behaviour:
    def layers(index: int) -> Layers:
        return tuple((weight[index].astype(np.float32), bias[index].astype(np.float32)) for weight, bias in arrays)

    trained = [TanhGaussian(layers(index)) for index in range(len(fact["steps"]) - 1)]
    return Behaviour(
        task=task,
        seed=fact["seed"],
        steps=tuple(fact["steps"]),
        scores=tuple(fact["scores"]),
        medium=fact["medium"],
        expert=fact["expert"],
        policies=(Uniform(fact["widths"][-1] // 2), *trained),
    )
