"""The rooms of the house: imports go one way, printing happens in one place, JAX stays where arrays are trained."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src" / "uniq_rl"
# From the ground up; rooms on one floor do not know each other.
FLOORS = (
    ("errors",),
    ("storage",),
    ("data", "conservatism", "networks"),
    ("transformer",),
    ("algorithms",),
    ("policy",),
    ("physics",),
    ("training",),
    ("suite",),
    ("evidence",),
    ("api",),
    ("__init__",),
    ("cli",),
    ("__main__",),
)
FLOOR = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
MODULES = sorted(SOURCE.rglob("*.py"))


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).with_suffix("").parts[0]


def imported(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and full name of everything a module imports, wherever in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative imports hide the room they lead to"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def target_room(name: str) -> str | None:
    """The room a name of this package lives in; None for other packages, and for the version, known to all rooms."""
    package, *rest = name.split(".")
    if package != "uniq_rl" or rest == ["__version__"]:
        return None
    return rest[0] if rest and rest[0] in FLOOR else "__init__"


def test_every_module_has_a_room() -> None:
    assert {room_of(path) for path in MODULES} <= set(FLOOR)
    assert len(MODULES) > 20


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_down(path: Path) -> None:
    own = room_of(path)
    for line, name in imported(parsed(path)):
        other = target_room(name)
        if other is not None and other != own:
            assert FLOOR[other] < FLOOR[own], f"line {line}: {own} imports {name}, which is not below it"


def test_an_import_upwards_would_be_seen() -> None:
    tree = ast.parse(
        "def f():\n    from uniq_rl.training.cohort import Cohort\nimport uniq_rl\nfrom uniq_rl import Run"
    )
    assert [target_room(name) for _, name in imported(tree)] == ["__init__", "__init__", "training"]
    assert FLOOR["training"] > FLOOR["algorithms"]


@pytest.mark.parametrize("room", ["data", "physics"])
def test_no_jax_where_arrays_are_only_read(room: str) -> None:
    paths = [path for path in MODULES if room_of(path) == room]
    assert paths
    for path in paths:
        for line, name in imported(parsed(path)):
            assert name.split(".")[0] not in ("jax", "jaxlib", "equinox", "optax"), f"{path.name}:{line} imports {name}"


COMMANDS = {"cli.py", "suite/cards.py", "suite/command.py", "suite/select.py", "suite/train_behaviour.py"}
"""What a person starts: the command line, and the programs that make the suite's policies anew."""


def test_only_commands_print() -> None:
    for path in (path for path in MODULES if path.relative_to(SOURCE).as_posix() not in COMMANDS):
        calls = [node for node in ast.walk(parsed(path)) if isinstance(node, ast.Call)]
        lines = [call.lineno for call in calls if isinstance(call.func, ast.Name) and call.func.id == "print"]
        assert not lines, f"{path.relative_to(SOURCE)} prints in line {lines}"
