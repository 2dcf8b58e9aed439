"""A grid: methods x data sets x seeds, written down in TOML and checked as a whole before anything runs.

    name = "main"
    steps = 1_000_000
    eval_every = 20_000
    seeds = [0, 1, 2]
    sets = ["suite/hopper-medium", { name = "suite/walker2d-medium", size = 100_000 }]

    [[entry]]
    variant = "iql at 0.63"
    algo = "iql"
    options = { expectile = 0.63 }

An entry may have its own `steps`, `eval_every`, `seeds` and `sets`. Recipes follow from the file alone: they need
neither the data nor the machine.
"""

import json
import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, get_type_hints

from uniq_rl.algorithms import Algorithm, algorithm_named
from uniq_rl.errors import UniqError
from uniq_rl.evidence.results import Recipe
from uniq_rl.evidence.sets import DataSet, set_of
from uniq_rl.physics.locomotion import resolve_physics
from uniq_rl.policy import algorithm_from, config_of
from uniq_rl.training.loop import Plan

REQUIRED = {"name", "steps", "eval_every", "seeds", "sets", "entry"}
DEFAULTS: dict[str, Any] = {"eval_episodes": 10, "physics": "d4rl"}
ENTRY_REQUIRED = {"variant", "algo"}
ENTRY_DEFAULTS: dict[str, Any] = {"preset": "paper", "options": {}}
OVERRIDES = {"steps", "eval_every", "seeds", "sets"}
"""What an entry may say differently from its grid."""
SET_KEYS = {"name", "size", "seed"}
PRESETS = ("paper", "none")


@dataclass(frozen=True)
class Job:
    """One run of a grid: its recipe, and the rows of tables it belongs to."""

    recipe: Recipe
    variants: tuple[str, ...]
    """Mostly one; several when entries agree on this data set."""

    @cached_property
    def data(self) -> DataSet:
        return set_of(self.recipe.data)

    @cached_property
    def algorithm(self) -> Algorithm:
        return algorithm_from(self.recipe.method, self.recipe.config)

    @property
    def plan(self) -> Plan:
        recipe = self.recipe
        return Plan(recipe.steps, recipe.eval_every, recipe.eval_episodes, physics=recipe.physics)

    @property
    def label(self) -> str:
        """Short, readable, fit for a file name, and different for different recipes."""
        words = (self.variants[0], self.data.task, self.data.kind, str(self.recipe.seed), self.recipe.id[:8])
        return re.sub(r"[^A-Za-z0-9.]+", "-", "-".join(words))

    def to_json(self) -> dict[str, Any]:
        return {"recipe": vars(self.recipe), "variants": list(self.variants)}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "Job":
        return cls(Recipe(**content["recipe"]), tuple(content["variants"]))


@dataclass(frozen=True)
class Grid:
    name: str
    jobs: tuple[Job, ...]

    @property
    def variants(self) -> list[str]:
        return list(dict.fromkeys(name for job in self.jobs for name in job.variants))

    def only(self, variants: Sequence[str]) -> "Grid":
        """The runs of the given variants; all of them when none is given."""
        unknown = [name for name in variants if name not in self.variants]
        if unknown:
            raise UniqError(f"Grid {self.name} has no variant '{unknown[0]}'; it has {', '.join(self.variants)}.")
        if not variants:
            return self
        return Grid(self.name, tuple(job for job in self.jobs if set(job.variants) & set(variants)))


def read_grid(path: str | Path) -> Grid:
    """The grid of a TOML file; one sentence about the first thing that is wrong with it."""
    path = Path(path)
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UniqError(f"The grid {path} cannot be read: {error.strerror or error}.") from None
    except ValueError as error:  # not TOML, or not even text
        raise UniqError(f"{path} is not a TOML file ({error}).") from None
    try:
        return expand(content)
    except UniqError as error:
        raise UniqError(f"{path}: {error}") from None


def expand(content: dict[str, Any]) -> Grid:
    """Every run that a grid asks for, in its order."""
    _check_keys("The grid", content, REQUIRED, set(DEFAULTS))
    grid = {**DEFAULTS, **content}
    name = _typed("The grid", "name", grid["name"], str)
    if not isinstance(grid["entry"], list) or not all(isinstance(entry, dict) for entry in grid["entry"]):
        raise UniqError("Entries are tables: write [[entry]] above each of them.")
    if not grid["entry"]:
        raise UniqError("The grid has no [[entry]].")
    return Grid(name, _merged(job for entry in grid["entry"] for job in _entry_jobs(grid, entry)))


def together(grids: Sequence[Grid]) -> Grid:
    """Several grids as one: a run that more of them ask for is one run."""
    return Grid(", ".join(grid.name for grid in grids), _merged(job for grid in grids for job in grid.jobs))


def _merged(jobs: Iterable[Job]) -> tuple[Job, ...]:
    """Every recipe once, with all its rows; refused where two recipes would stand in one cell of a table."""
    merged: dict[str, Job] = {}
    cells: dict[tuple[Any, ...], str] = {}
    for job in jobs:
        identity = job.recipe.id
        for variant in job.variants:
            cell = (variant, job.data.task, job.data.kind, job.recipe.seed, job.recipe.steps)
            if cells.setdefault(cell, identity) != identity:
                raise UniqError(f"Two entries named '{variant}' differ on {job.data.name}; give one another name.")
        known = merged.setdefault(identity, job)
        merged[identity] = replace(known, variants=tuple(dict.fromkeys((*known.variants, *job.variants))))
    return tuple(merged.values())


def _entry_jobs(grid: dict[str, Any], entry: dict[str, Any]) -> list[Job]:
    where = f"Entry '{entry.get('variant', entry.get('algo', '?'))}'"
    _check_keys(where, entry, ENTRY_REQUIRED, set(ENTRY_DEFAULTS) | OVERRIDES)
    entry = {**ENTRY_DEFAULTS, **{key: grid[key] for key in OVERRIDES}, **entry}
    variant = _typed(where, "variant", entry["variant"], str).strip()
    if not variant:
        raise UniqError("An entry's `variant` is empty; it is the name of its row.")
    counts = {
        key: _typed(where, key, source[key], int)
        for source, keys in ((entry, ("steps", "eval_every")), (grid, ("eval_episodes",)))
        for key in keys
    }
    plan = Plan(**counts, physics=_typed(where, "physics", grid["physics"], str))
    sets = [_set(where, named) for named in _several(where, "sets", entry["sets"])]
    seeds = [_typed(where, "seeds", seed, int) for seed in _several(where, "seeds", entry["seeds"])]
    if any(not 0 <= seed < 2**32 for seed in seeds):
        raise UniqError(f"{where}: seeds are whole numbers from 0 to 2^32 - 1.")
    jobs = []
    for data in sets:
        config = _config(where, entry, data, plan.steps)
        for seed in seeds:
            recipe = Recipe(
                method=entry["algo"],
                config=config,
                data=data.identity,
                seed=seed,
                steps=plan.steps,
                eval_every=plan.eval_every,
                eval_episodes=plan.eval_episodes,
                physics=resolve_physics(plan.physics),
            )
            jobs.append(Job(recipe, (variant,)))
    return jobs


def _set(where: str, named: Any) -> DataSet:
    if isinstance(named, str):
        return DataSet.named(named)
    if not isinstance(named, dict):
        raise UniqError(f"{where}: a data set is a name or a table {{ name = ..., size = ... }}, not {named!r}.")
    _check_keys(f"{where}: a data set", named, {"name"}, SET_KEYS)
    numbers = {key: _typed(where, key, value, int) for key, value in named.items() if key != "name"}
    return DataSet.named(_typed(where, "name", named["name"], str), **numbers)


def _config(where: str, entry: dict[str, Any], data: DataSet, steps: int) -> dict[str, Any]:
    """Every hyper-parameter of a run, as JSON holds it, so that the recipe says all and says it in one way."""
    method = algorithm_named(_typed(where, "algo", entry["algo"], str))
    if entry["preset"] not in PRESETS:
        raise UniqError(f"{where}: `preset` is {entry['preset']!r}, but it must be one of {', '.join(PRESETS)}.")
    if not isinstance(entry["options"], dict):
        raise UniqError(f"{where}: `options` is a table of hyper-parameters, not {entry['options']!r}.")
    base = method.preset("paper", data.task, data.behaviour) if entry["preset"] == "paper" else method()
    known = {field.name for field in fields(base)}
    unknown = [name for name in entry["options"] if name not in known]
    if unknown:
        raise UniqError(f"{where}: {method.name} has no option '{unknown[0]}'; it has {', '.join(sorted(known))}.")
    kinds = get_type_hints(method)
    try:
        options = {name: _as_kind(value, kinds[name]) for name, value in entry["options"].items()}
        algorithm = replace(base, **options).budgeted(steps)
    except (TypeError, ValueError) as error:
        raise UniqError(f"{where}: the options do not fit {method.name} ({error}).") from None
    except UniqError as error:
        raise UniqError(f"{where}: {error}") from None
    config: dict[str, Any] = json.loads(json.dumps(config_of(algorithm)))
    return config


def _as_kind(value: Any, kind: Any) -> Any:
    """1 where a number like 1.0 is wanted is 1.0: the same setting must not have two recipes."""
    if kind is bool and not isinstance(value, bool):
        raise TypeError(f"{value!r} is neither true nor false")
    if kind in (float, float | None) and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return value


def _check_keys(where: str, table: dict[str, Any], required: set[str], optional: set[str]) -> None:
    unknown = [key for key in table if key not in required | optional]
    if unknown:
        raise UniqError(
            f"{where} has an unknown key '{unknown[0]}'; known are {', '.join(sorted(required | optional))}."
        )
    missing = sorted(required - set(table))
    if missing:
        raise UniqError(f"{where} has no `{missing[0]}`.")


def _typed(where: str, key: str, value: Any, kind: type) -> Any:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise UniqError(f"{where}: `{key}` is {value!r}, but it must be {'text' if kind is str else 'a whole number'}.")
    return value


def _several(where: str, key: str, values: Any) -> list[Any]:
    if not isinstance(values, list) or not values:
        raise UniqError(f"{where}: `{key}` must be a list with at least one item.")
    if any(value in values[:i] for i, value in enumerate(values)):
        raise UniqError(f"{where}: `{key}` names something twice.")
    return values
