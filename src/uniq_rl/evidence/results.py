"""Raw results: one small file per run, and everything published is worked out from these files alone.

A run is known by its recipe: method and every option, data set, seed, budget, evaluation, physics. Two machines that
follow the same recipe write a file of the same name, so a result that is there need not be made again.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from uniq_rl.errors import UniqError
from uniq_rl.storage import write_atomically
from uniq_rl.training.records import read_json

FORMAT = "result-1"
RUNS = "runs"
"""Folder of the run files inside a results folder."""
LAST = 10
"""Evaluations that the mean at the end of training is taken over."""


@dataclass(frozen=True)
class Recipe:
    """What identifies a run."""

    method: str
    config: dict[str, Any]
    data: dict[str, Any]
    """`name`, and whatever else says which data these are: `size`, `seed`, `recipe`."""
    seed: int
    steps: int
    eval_every: int
    eval_episodes: int
    physics: str

    @property
    def id(self) -> str:
        text = json.dumps(vars(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class RunResult:
    """One finished run, as its file has it."""

    recipe: Recipe
    variant: str
    """Row of a table this run belongs to: `iql`, or a name for a method with other options, `iql at 0.63`."""
    task: str
    kind: str
    """`medium-replay`; with the task, the data set."""
    diverged: bool
    evaluations: list[dict[str, Any]]
    """`step`, `score` (None once it diverged), and `returns` and `lengths` of every episode."""
    calibration: list[dict[str, Any]]
    """`step`, `q_hat`, `coverage`, `u_above_1`; empty for methods without uncertainty."""
    diagnosis: dict[str, Any]
    """What was worked out from the last policy, for methods with uncertainty: see `evidence/diagnosis.py`."""
    data: dict[str, Any]
    """`fingerprint`, `transitions`, `episodes`."""
    cost: dict[str, Any]
    """`seconds` of the cohort, `runs` in it, `run_updates_per_second`; None where a killed session took them along."""
    environment: dict[str, Any]
    """`versions`, `hardware`, `commit`."""
    also: list[str] = field(default_factory=list)
    """Further rows that the same recipe belongs to: trained once, it stands in each of them."""

    @property
    def set(self) -> str:
        return f"{self.task}-{self.kind}"

    @property
    def scores(self) -> np.ndarray:
        """The score at each evaluation, NaN where the run had diverged."""
        return np.array([np.nan if line["score"] is None else line["score"] for line in self.evaluations])

    @property
    def last(self) -> float:
        """The score of the last evaluation; 0 for a run that diverged, so that failing never pays."""
        return 0.0 if self.diverged else float(self.scores[-1])

    @property
    def mean_of_last(self) -> float:
        """Mean of the last ten evaluations, or of as many as there are."""
        return 0.0 if self.diverged else float(self.scores[-LAST:].mean())

    @property
    def mean_of_all(self) -> float:
        """Mean of all evaluations, the area under the learning curve: how soon and how steadily a run learned."""
        return 0.0 if self.diverged else float(self.scores.mean())

    @property
    def best(self) -> float:
        """The best evaluation: an oracle, since nobody without a simulator could have picked it."""
        return 0.0 if self.diverged else float(np.nanmax(self.scores))


def path_of(folder: str | Path, recipe: Recipe) -> Path:
    return Path(folder) / RUNS / f"{recipe.id}.json"


def write_result(folder: str | Path, result: RunResult) -> Path:
    path = path_of(folder, result.recipe)
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"format": FORMAT, **vars(result), "recipe": vars(result.recipe)}
    write_atomically(path, _text(content).encode())
    return path


def _text(content: dict[str, Any]) -> str:
    """JSON with a line for each key, and for each evaluation: small, and a difference can be read."""
    lines = []
    for key, value in content.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            inside = ",\n".join(f"  {json.dumps(item, allow_nan=False)}" for item in value)
            lines.append(f"{json.dumps(key)}: [\n{inside}\n ]")
        else:
            lines.append(f"{json.dumps(key)}: {json.dumps(value, allow_nan=False)}")
    return "{\n " + ",\n ".join(lines) + "\n}\n"


def read_result(path: Path) -> RunResult:
    content = read_json(path)
    if content.pop("format", None) != FORMAT:
        raise UniqError(f"{path} is not a result this version reads ('{FORMAT}').")
    try:
        result = RunResult(**{**content, "recipe": Recipe(**content["recipe"])})
        if not result.evaluations:
            raise UniqError(f"{path} holds no evaluation; it is damaged.")
    except (KeyError, TypeError) as error:
        raise UniqError(f"{path} is damaged ({error!r}).") from None
    if path.stem != result.recipe.id:
        raise UniqError(f"{path} does not hold the run its name says; it was renamed or edited.")
    return result


def read_results(folder: str | Path) -> list[RunResult]:
    """All runs of a results folder, in a fixed order; one that belongs to several rows appears in each."""
    paths = sorted((Path(folder) / RUNS).glob("*.json"))
    if not paths:
        raise UniqError(f"{folder} holds no results: there is no file in {Path(folder) / RUNS}.")
    results = [result for path in paths for result in _rows(read_result(path))]
    return sorted(results, key=lambda r: (r.variant, r.task, r.kind, r.recipe.steps, r.recipe.seed))


def _rows(result: RunResult) -> list[RunResult]:
    return [replace(result, variant=name, also=[]) for name in (result.variant, *result.also)]


def chosen(results: Iterable[RunResult], variants: Sequence[str], steps: int | None = None) -> list[RunResult]:
    """Those of the given variants, and of one budget where one is given."""
    return [r for r in results if r.variant in variants and (steps is None or r.recipe.steps == steps)]
