"""What a data set's name says about it: the task and the kind of behaviour."""

import re
from pathlib import PurePath

TASKS = ("hopper", "halfcheetah", "walker2d", "antmaze", "ant", "pen", "hammer", "door", "relocate", "kitchen")
MAZE2D_SIZES = ("umaze", "medium", "large")
KINDS = ("medium-replay", "medium-expert", "full-replay", "medium", "expert", "random")  # longer names first


def _components(name: str) -> list[str]:
    return re.split(r"[/\\]", name)


def _words(component: str) -> list[str]:
    """Lower-case words; D4RL's own files write AntMaze as `Ant_maze`."""
    words = [word for word in re.split(r"[-_.\s]+", component.lower()) if word]
    if words[:2] == ["ant", "maze"]:
        words[:2] = ["antmaze"]
    return words


def _task_of_words(words: list[str]) -> str | None:
    if "maze2d" in words:
        sizes = [word for word in words if word in MAZE2D_SIZES]
        return f"maze2d-{sizes[0]}" if sizes else None
    return next((task for task in TASKS if task in words), None)


def task_of(name: str) -> str | None:
    """The task a name speaks of ("hopper_medium-v2.hdf5" -> "hopper"), or None; the last path component counts most."""
    found = (_task_of_words(_words(component)) for component in reversed(_components(name)))
    return next((task for task in found if task is not None), None)


def kind_of(name: str) -> str | None:
    """The behaviour a name speaks of ("walker2d_medium_replay-v2" -> "medium-replay"), or None."""
    task = task_of(name) or ""
    if "maze" in task:  # there "medium" is the size of the maze
        return None
    words = "-".join(["", *_words(_components(name)[-1]), ""])
    return next((kind for kind in KINDS if f"-{kind}-" in words), None)


def name_of_file(path: PurePath) -> str:
    """A file's stem in D4RL's style: hopper_medium-v2.hdf5 -> hopper-medium-v2."""
    return path.stem.replace("_", "-")
