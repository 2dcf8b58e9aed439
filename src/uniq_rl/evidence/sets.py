"""The data sets a grid can name: the built-in suite, and D4RL's medium sets played again by D4RL's own policies."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from uniq_rl import suite
from uniq_rl.data import Dataset
from uniq_rl.errors import UniqError
from uniq_rl.physics.locomotion import TASKS
from uniq_rl.suite import behaviour as policies
from uniq_rl.suite.datasets import MIN_SIZE, Progress, default_size
from uniq_rl.suite.regenerate import regenerated

REGENERATED = "regenerated/"
REGENERATED_SIZE = 1_000_000
"""As many transitions as D4RL's medium sets."""
D4RL_VARIABLE = "UNIQ_RL_D4RL"
"""Names the folder of D4RL's files when the command does not."""


@dataclass(frozen=True)
class DataSet:
    """Which data, as every machine would name them."""

    name: str
    size: int
    seed: int = 0

    @classmethod
    def named(cls, name: str, size: int | None = None, seed: int = 0) -> "DataSet":
        """A set that exists, with its usual size unless another is given."""
        if name.startswith(REGENERATED):
            known = [f"{REGENERATED}{task}-medium" for task in TASKS]
            if name not in known:
                raise UniqError(f"There is no data set '{name}' to regenerate; the names are {', '.join(known)}.")
            found = cls(name, REGENERATED_SIZE if size is None else size, seed)
        else:
            usual = default_size(name)  # refuses a name that is none
            found = cls(name, usual if size is None else size, seed)
        if found.size < MIN_SIZE or seed < 0:
            raise UniqError(f"{name} needs at least {MIN_SIZE} transitions and a seed from 0 on.")
        return found

    @property
    def played_again(self) -> bool:
        return self.name.startswith(REGENERATED)

    @property
    def task(self) -> str:
        return self.name.partition("/")[2].partition("-")[0]

    @property
    def behaviour(self) -> str:
        """`medium-replay`; what published settings are chosen by."""
        return self.name.partition("/")[2].partition("-")[2]

    @property
    def kind(self) -> str:
        """`behaviour`, and where the data are from unless they are the suite's."""
        return f"{self.behaviour} (regenerated)" if self.played_again else self.behaviour

    @property
    def identity(self) -> dict[str, Any]:
        """What a recipe says about its data; not their content, which may differ in last bits between machines."""
        source = (
            f"D4RL's policy in {self.slice_name}"
            if self.played_again
            else _suite_recipe(policies.PATH, self.name, self.size, self.seed)
        )
        return {"name": self.name, "size": self.size, "seed": self.seed, "recipe": source}

    @property
    def slice_name(self) -> str:
        """The D4RL file whose policy plays again."""
        return f"{self.task}_{self.behaviour.replace('-', '_')}-v2.hdf5"

    def lacks(self, d4rl: Path | None) -> str | None:
        """Why these data cannot be made here, in a sentence; None when they can."""
        if not self.played_again or (d4rl is not None and (d4rl / self.slice_name).is_file()):
            return None
        if d4rl is None:
            return f"{self.name} needs D4RL's {self.slice_name}: name its folder with --d4rl or {D4RL_VARIABLE}."
        return f"{self.name} needs {d4rl / self.slice_name}, which is not there."

    def load(self, d4rl: Path | None, progress: Progress | None = None) -> Dataset:
        """From the cache, or made now."""
        if not self.played_again:
            return suite.make(self.name, self.size, self.seed, progress)
        reason = self.lacks(d4rl)
        if reason or d4rl is None:
            raise UniqError(str(reason))
        return regenerated(d4rl / self.slice_name, self.size, self.seed, progress)


@cache
def _suite_recipe(file: Path, name: str, size: int, seed: int) -> str:
    """Once per set: a grid asks often, and each time the `file` of policies would be read."""
    return suite.recipe_id(name, size, seed)


def set_of(identity: dict[str, Any]) -> DataSet:
    """The set that a recipe speaks of; refused when this version would make other data under that name."""
    found = DataSet.named(identity["name"], identity["size"], identity["seed"])
    if found.identity != identity:
        raise UniqError(f"This version makes other data under the name {found.name} than the recipe asks for.")
    return found
