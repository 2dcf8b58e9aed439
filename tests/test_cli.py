"""The command as a person types it: what it refuses, how it says so, and what it leaves behind when all is well."""

import dataclasses
import inspect
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import uniq_rl as ur
import uniq_rl.data
from uniq_rl import cli

UNIQ_RL = Path(sys.executable).with_name("uniq-rl")
TINY = ("--hidden", "8", "8", "--batch-size", "16")
LONG = "x" * 300


def columns(rows: int = 60, obs_dim: int = 3, action_dim: int = 2, length: int = 10) -> dict[str, np.ndarray]:
    """Noise in the shape of logged transitions."""
    rng = np.random.default_rng(0)
    step = np.arange(rows) % length
    return {
        "obs": rng.normal(size=(rows, obs_dim)).astype(np.float32),
        "action": rng.uniform(-1, 1, size=(rows, action_dim)).astype(np.float32),
        "reward": rng.normal(size=rows).astype(np.float32),
        "next_obs": rng.normal(size=(rows, obs_dim)).astype(np.float32),
        "terminated": step == length - 1,
        "truncated": np.zeros(rows, bool),
    }


D4RL = {
    "obs": "observations",
    "action": "actions",
    "reward": "rewards",
    "next_obs": "next_observations",
    "terminated": "terminals",
    "truncated": "timeouts",
}


@dataclasses.dataclass(frozen=True)
class Place:
    """An empty working folder to put bad things into."""

    folder: Path
    finished: Path
    """A folder with a training that went well, and its data."""

    def npz(self, without: str = "", rows: int = 60, name: str = "data.npz", **changes: Any) -> Path:
        content = columns(rows) | changes
        content.pop(without, None)
        np.savez(self.folder / name, **content)
        return Path(name)

    def hdf5(self, without: str = "", rows: int = 60, name: str = "data.hdf5", **changes: Any) -> Path:
        content = columns(rows) | changes
        content.pop(without, None)
        with h5py.File(self.folder / name, "w") as file:
            for key, value in content.items():
                file[D4RL[key]] = value
        return Path(name)

    def cut(self, path: Path, share: float = 0.5) -> Path:
        whole = (self.folder / path).read_bytes()
        (self.folder / path).write_bytes(whole[: int(share * len(whole))])
        return path

    def bytes(self, name: str, content: bytes) -> Path:
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_bytes(content)
        return Path(name)

    def hostile_hdf5(self) -> Path:
        self.hdf5(name="elsewhere.hdf5")
        path = self.hdf5(without="reward")
        with h5py.File(self.folder / path, "r+") as file:
            file["rewards"] = h5py.ExternalLink("elsewhere.hdf5", "/rewards")
        return path

    def run(self, damage: Callable[[Path], object] = lambda _: None, **changes: Any) -> Path:
        """A copy of the finished training, damaged; `changes` go into its run.json."""
        shutil.copytree(self.finished, self.folder, dirs_exist_ok=True)
        path = self.folder / "run" / "run.json"
        description = json.loads(path.read_text()) | changes
        for run in description["runs"]:
            run["data"]["origin"]["source"] = str(self.folder / "data.npz")
        path.write_text(json.dumps(description))
        damage(self.folder / "run")
        return Path("run")


def with_value(column: str, value: float, at: tuple[int, ...] = (7,)) -> np.ndarray:
    values = columns()[column]
    values[at] = value
    return values


# What is wrong with a file: `train` and `data inspect` must both say so.
BAD_DATA: dict[str, Callable[[Place], Path]] = {
    "missing column": lambda at: at.npz(without="reward"),
    "missing column, HDF5": lambda at: at.hdf5(without="reward"),
    "misspelt column": lambda at: at.npz(without="reward", rewrad=columns()["reward"]),
    "no terminals": lambda at: at.npz(without="terminated"),
    "no terminals, HDF5": lambda at: at.hdf5(without="terminated"),
    "no end of an episode": lambda at: at.npz(terminated=np.zeros(60, bool)),
    "wrong shape": lambda at: at.npz(obs=columns()["obs"].reshape(60, 3, 1)),
    "wrong shape, HDF5": lambda at: at.hdf5(action=columns()["action"][:, 0]),
    "too few rows in a column": lambda at: at.npz(reward=columns()["reward"][:-1]),
    "other width of next_obs": lambda at: at.npz(next_obs=columns()["next_obs"][:, :2]),
    "wrong type": lambda at: at.npz(reward=np.asarray(["much"] * 60)),
    "wrong type, HDF5": lambda at: at.hdf5(reward=np.asarray([b"much"] * 60)),
    "discrete actions": lambda at: at.npz(action=np.ones((60, 1), np.int64)),
    "complex numbers": lambda at: at.npz(obs=columns()["obs"].astype(np.complex64)),
    "flags that are none": lambda at: at.npz(terminated=np.full(60, 0.5)),
    "NaN": lambda at: at.npz(obs=with_value("obs", np.nan, (7, 1))),
    "infinity": lambda at: at.npz(reward=with_value("reward", np.inf)),
    "infinity, HDF5": lambda at: at.hdf5(next_obs=with_value("next_obs", -np.inf, (7, 1))),
    "action out of range": lambda at: at.npz(action=with_value("action", 1.5, (7, 1))),
    "empty": lambda at: at.npz(rows=0),
    "empty, HDF5": lambda at: at.hdf5(rows=0),
    "no arrays at all": lambda at: at.npz(**dict.fromkeys(columns(), np.zeros(0))),
    "one row": lambda at: at.npz(rows=1),
    "truncated npz": lambda at: at.cut(at.npz()),
    "truncated HDF5": lambda at: at.cut(at.hdf5()),
    "HDF5 cut to a few bytes": lambda at: at.cut(at.hdf5(), 0.01),
    "no bytes": lambda at: at.bytes("data.npz", b""),
    "no bytes, HDF5": lambda at: at.bytes("data.hdf5", b""),
    "text named .hdf5": lambda at: at.bytes("data.hdf5", b"obs,action,reward\n0,0,0\n"),
    "text named .npz": lambda at: at.bytes("data.npz", b"obs,action,reward\n0,0,0\n"),
    "pickled objects in npz": lambda at: at.npz(reward=np.asarray([{"a": 1}] * 60, dtype=object)),
    "pickle named .npz": lambda at: at.bytes("data.npz", pickle.dumps(columns())),
    "pickle": lambda at: at.bytes("data.pkl", pickle.dumps(columns())),
    "link into another file": lambda at: at.hostile_hdf5(),
    "no such file": lambda at: Path("absent.npz"),
    "a folder": lambda at: (at.folder / "data.npz").mkdir() or Path("data.npz"),  # type: ignore[func-returns-value]
    "unknown name": lambda at: Path("no-such-data"),
    "name too long": lambda at: Path(f"{LONG}.npz"),
}


def training(*options: str, data: Callable[[Place], Path] = Place.npz) -> Callable[[Place], list[str]]:
    return lambda at: ["train", str(data(at)), *options]


def resuming(damage: Callable[[Path], object], **changes: Any) -> Callable[[Place], list[str]]:
    return lambda at: ["train", "--resume", str(at.run(damage, **changes))]


def evaluating(damage: Callable[[Path], object], *options: str) -> Callable[[Place], list[str]]:
    return lambda at: ["evaluate", str(at.run(damage)), *options]


def shorten(name: str) -> Callable[[Path], object]:
    return lambda run: (run / name).write_bytes((run / name).read_bytes()[:-100])


def overwrite(name: str, content: bytes) -> Callable[[Path], object]:
    return lambda run: (run / name).write_bytes(content)


def remove(*patterns: str) -> Callable[[Path], object]:
    return lambda run: [path.unlink() for pattern in patterns for path in run.glob(pattern)]


BAD_COMMANDS: dict[str, Callable[[Place], list[str]]] = {
    **{f"train: {name}": training(*TINY, data=data) for name, data in BAD_DATA.items()},
    **{f"inspect: {name}": lambda at, data=data: ["data", "inspect", str(data(at))] for name, data in BAD_DATA.items()},  # type: ignore[misc]
    "no command of that name": lambda at: ["trian", "data.npz"],
    "half a command": lambda at: ["data"],
    "no data named": lambda at: ["train", "--algo", "iql"],
    "home of nobody": lambda at: ["train", "~no-such-user/x.npz"],
    "unknown algorithm": training("--algo", "sarsa"),
    "unknown task": training("--task", "pogo"),
    "unknown task to inspect": lambda at: ["data", "inspect", str(at.npz()), "--task", "pogo"],
    "task of other widths": training("--task", "hopper", *TINY),
    "task of other widths in the name": training(*TINY, data=lambda at: at.npz(name="hopper.npz")),
    "tiny data": training(*TINY, data=lambda at: at.npz(rows=5)),
    "calibration fold too small for delta": training("--delta", "0.01", *TINY),
    "calibration by episode takes all": training("--split", "episode", *TINY, data=lambda at: at.npz(rows=10)),
    "delta 0": training("--delta", "0", *TINY),
    "delta 1": training("--delta", "1", *TINY),
    "negative learning rate": training("--learning-rate", "-1"),
    "learning rate NaN": training("--learning-rate", "nan"),
    "tau_min above tau_max": training("--tau-min", "0.9", "--tau-max", "0.8"),
    "tau_max above 1": training("--tau-max", "1.5"),
    "negative kappa": training("--kappa", "-0.5"),
    "no members": training("--n-members", "0"),
    "all for calibration": training("--calibration-fraction", "1"),
    "expectile 1": training("--algo", "iql", "--expectile", "1"),
    "discount above 1": training("--gamma", "1.1"),
    "hidden layer without units": training("--hidden", "16", "0"),
    "empty batches": training("--batch-size", "0"),
    "no steps": training("--steps", "0"),
    "no steps between evaluations": training("--eval-every", "0"),
    "no episodes": training("--eval-episodes", "0"),
    "no steps between records": training("--log-every", "0"),
    "a seed twice": training("--seeds", "0", "1", "0", *TINY),
    "a negative seed": training("--seeds", "-1", *TINY),
    "a seed too large": training("--seeds", str(2**32), *TINY),
    "no seed": training("--seeds", *TINY),
    "out exists": lambda at: [*training("--out", "run", *TINY)(at), *(at.run() and ())],
    "out is a file": lambda at: [*training(*TINY)(at), "--out", str(at.bytes("out", b"mine"))],
    "out under a file": lambda at: [*training(*TINY)(at), "--out", str(at.bytes("out", b"mine") / "new" / "run")],
    "out with too long a name": training("--out", f"new/{LONG}", *TINY),
    "resume nothing": lambda at: ["train", "--resume", "absent"],
    "resume with another budget": lambda at: ["train", "--resume", str(at.run(lambda _: None)), "--steps", "9"],
    "resume a file": lambda at: ["train", "--resume", str(at.npz())],
    "resume a name too long": lambda at: ["train", "--resume", LONG],
    "resume what is no run": lambda at: ["train", "--resume", str(at.bytes("mine/notes.txt", b"mine").parent)],
    "resume with cut run.json": resuming(shorten("run.json")),
    "resume with binary run.json": resuming(overwrite("run.json", b"\xff\xfe\x00")),
    "resume with a list as run.json": resuming(overwrite("run.json", b"[]")),
    "resume with an empty run.json": resuming(overwrite("run.json", b'{"format": "run-1"}')),
    "resume with words for numbers": resuming(lambda _: None, plan={"steps": "many", "eval_every": 1}),
    "resume another format": resuming(lambda _: None, format="run-99"),
    "resume an unknown algorithm": resuming(lambda _: None, algorithm="sarsa"),
    "resume with no runs": resuming(lambda _: None, runs=[]),
    "resume with cut checkpoint": resuming(shorten("checkpoint/state.safetensors")),
    "resume with empty checkpoint": resuming(overwrite("checkpoint/state.safetensors", b"")),
    "resume with a policy as checkpoint": resuming(
        lambda run: shutil.copy(run / "policy-0.safetensors", run / "checkpoint/state.safetensors")
    ),
    "resume with a pickle as checkpoint": resuming(overwrite("checkpoint/state.safetensors", pickle.dumps([1.0]))),
    "resume with cut records": resuming(shorten("records.jsonl")),
    "resume without records": resuming(remove("records.jsonl")),
    "resume without its data": resuming(remove("../data.npz")),
    "resume with other data": resuming(lambda run: np.savez(run.parent / "data.npz", **columns(rows=50))),
    "evaluate nothing": lambda at: ["evaluate", "absent"],
    "evaluate what is no run": lambda at: ["evaluate", str(at.bytes("mine/notes.txt", b"mine").parent)],
    "evaluate without policies": evaluating(remove("policy-*")),
    "evaluate a cut policy": evaluating(shorten("policy-0.safetensors")),
    "evaluate a pickle": evaluating(overwrite("policy-0.safetensors", pickle.dumps([1.0]))),
    "evaluate a checkpoint": evaluating(
        lambda run: shutil.copy(run / "checkpoint/state.safetensors", run / "policy-0.safetensors")
    ),
    "evaluate without a simulator": evaluating(lambda _: None),
    "evaluate no episodes": evaluating(lambda _: None, "--episodes", "0"),
    "evaluate again what never was": evaluating(lambda _: None, "--repeat"),
    "evaluate with cut run.json": evaluating(shorten("run.json")),
    "evaluate with an empty run.json": evaluating(overwrite("run.json", b"{}")),
}

# What the parser refuses, it explains in a frame of its own.
BAD_USAGE: dict[str, Callable[[Place], list[str]]] = {
    "unknown flag": training("--bogus", "1"),
    "flag of another algorithm": training("--expectile", "0.7"),
    "word for a number": training("--steps", "many"),
    "number cut in two": training("--kappa", "0,5"),
    "unknown physics": training("--physics", "bullet"),
    "unknown preset": training("--preset", "best"),
    "unknown kind of ensemble": training("--ensemble", "huge"),
    "two data sets": training("other.npz"),
    "nothing to evaluate": lambda at: ["evaluate"],
    "nothing to inspect": lambda at: ["data", "inspect"],
}

# A handful goes through the installed command itself, to be sure that it does what `main` does.
THROUGH_THE_COMMAND = (
    "train: missing column",
    "inspect: truncated HDF5",
    "resume with cut checkpoint",
)


@dataclasses.dataclass(frozen=True)
class Finished:
    code: int
    out: str
    err: str


def command(*arguments: str, folder: Path, **environment: str) -> Finished:
    """The installed command, in a process of its own."""
    done = subprocess.run(
        [UNIQ_RL, *arguments], cwd=folder, env=os.environ | environment, capture_output=True, text=True, check=False
    )
    return Finished(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """The command inside this process, which spares the start of JAX."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "unused")  # keeps `main` from setting one for all tests

    def call(*arguments: str) -> Finished:
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            cli.main(arguments)
        return Finished(int(stop.value.code or 0), *capsys.readouterr())

    return call


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment that lets processes share what one of them compiled."""
    return {"JAX_COMPILATION_CACHE_DIR": str(tmp_path_factory.getbasetemp() / "programs")}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`data.npz` and `run/`, the folder of a short training on it."""
    folder = tmp_path_factory.mktemp("finished")
    np.savez(folder / "data.npz", **columns())
    ur.train(ur.IQL(hidden=(8, 8), batch_size=16), folder / "data.npz", steps=2, eval_every=1, out=folder / "run")
    return folder


@pytest.fixture
def place(tmp_path: Path, finished: Path) -> Place:
    return Place(tmp_path, finished)


def tree(folder: Path) -> dict[str, bytes | None]:
    """Everything in a folder, by path."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def assert_one_sentence(done: Finished) -> None:
    assert done.code == 2, done
    assert done.out == ""
    assert re.fullmatch(r"uniq-rl: [^\n]+[.]\n", done.err), done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize("name", BAD_COMMANDS)
def test_bad_input_is_one_sentence_and_touches_nothing(name: str, place: Place, call: Callable[..., Finished]) -> None:
    arguments = BAD_COMMANDS[name](place)
    before = tree(place.folder)
    assert_one_sentence(call(*arguments))
    assert tree(place.folder) == before


@pytest.mark.parametrize("name", THROUGH_THE_COMMAND)
def test_bad_input_through_the_installed_command(name: str, place: Place) -> None:
    arguments = BAD_COMMANDS[name](place)
    before = tree(place.folder)
    assert_one_sentence(command(*arguments, folder=place.folder))
    assert tree(place.folder) == before


@pytest.mark.parametrize("name", BAD_USAGE)
def test_bad_usage_is_explained_and_touches_nothing(name: str, place: Place, call: Callable[..., Finished]) -> None:
    arguments = BAD_USAGE[name](place)
    before = tree(place.folder)
    done = call(*arguments)
    assert done.code == 2
    assert done.err
    assert "Traceback" not in done.out + done.err
    assert tree(place.folder) == before


def test_full_disk_at_the_start(place: Place) -> None:
    """A disk without room even for run.json; the folders made for it go again."""
    data = place.npz()
    before = tree(place.folder)
    script = (
        "import resource, sys; from uniq_rl.cli import main;"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)); main(sys.argv[1:])"
    )
    arguments = ["train", str(data), "--algo", "iql", *TINY, "--out", "new/run"]
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], cwd=place.folder, capture_output=True, text=True, check=False
    )
    assert_one_sentence(Finished(done.returncode, done.stdout, done.stderr))
    assert tree(place.folder) == before


def test_a_sentence_names_what_is_wrong(place: Place, call: Callable[..., Finished]) -> None:
    assert "`reward`" in call("train", str(place.npz(without="reward"))).err
    assert "row 7" in call("train", str(place.npz(reward=with_value("reward", np.nan)))).err
    assert ", ".join(ur.ALGORITHMS) in call("train", "data.npz", "--algo", "sarsa").err
    assert "at least 99" in call("train", str(place.npz()), "--delta", "0.01", *TINY).err
    assert "--resume run" in call("train", "data.npz", *TINY, "--out", str(place.run())).err


# Help


def test_overview_and_version(call: Callable[..., Finished]) -> None:
    for arguments in ((), ("--help",), ("-h",), ("help",)):
        done = call(*arguments)
        assert done.code == 0
        assert "uniq-rl train --resume DIR" in done.out
    assert call("--version").out == f"uniq-rl {ur.__version__}\n"


def test_overview_of_the_data_commands(call: Callable[..., Finished]) -> None:
    for word in ("--help", "-h", "help"):
        done = call("data", word)
        assert done.code == 0
        for words in (words for words in cli.COMMANDS if words[0] == "data"):
            assert f"uniq-rl {' '.join(words)} " in done.out
    assert call("data", "lits").code == 2


@pytest.mark.parametrize("words", cli.COMMANDS, ids=" ".join)
def test_help_has_examples(words: tuple[str, ...], call: Callable[..., Finished]) -> None:
    done = call(*words, "--help")
    assert done.code == 0
    assert "Example" in done.out
    assert not re.search(r"\S.*Example:", done.out)  # each on a line of its own
    assert f"uniq-rl {' '.join(words)} " in done.out


def test_help_lists_the_options_of_the_method(call: Callable[..., Finished]) -> None:
    iql = call("train", "--algo", "iql", "--help").out
    assert "--expectile FLOAT" in iql
    assert "--kappa FLOAT" not in iql
    uniq = call("train", "--help").out
    assert "--kappa FLOAT" in uniq
    assert "--expectile FLOAT" not in uniq


def test_help_shows_the_published_settings_of_the_data(call: Callable[..., Finished]) -> None:
    edac = call("train", "hopper_medium-v2.hdf5", "--algo", "edac", "--help").out
    assert re.search(r"--critics INT[^(]*\(default:\W*50\)", edac)
    assert "--eta FLOAT" in edac


def test_every_flag_is_a_python_argument() -> None:
    flags = {field.name for field in dataclasses.fields(cli.Train)} - {"algo", "preset", "resume"}
    functions = (ur.train, ur.load_dataset, uniq_rl.data.load_dataset)
    assert flags <= {name for function in functions for name in inspect.signature(function).parameters}


# Presets


@pytest.mark.parametrize(
    ("arguments", "kappa", "tau_max"),
    [
        (("hopper_medium_replay-v2.hdf5",), 0.0, 0.95),
        (("halfcheetah-medium-expert-v2.hdf5",), 0.0, 0.95),
        (("hopper_medium-v2.hdf5",), 0.5, 0.9),
        (("mine.npz",), 0.5, 0.9),
        (("hopper_medium_replay-v2.hdf5", "--preset", "none"), 0.5, 0.9),
        (("medium_replay.npz", "--task", "hopper"), 0.0, 0.95),
        (("hopper_medium_replay-v2.hdf5", "--kappa", "0.3"), 0.3, 0.95),
        (("--kappa", "0.3", "hopper_medium_replay-v2.hdf5"), 0.3, 0.95),
        (("--beta-tau", "4", "--algo", "uniq", "hopper_medium_replay-v2.hdf5"), 0.0, 0.95),
        (("hopper_medium-v2.hdf5", "--tau-max", "0.8"), 0.5, 0.8),
    ],
)
def test_preset_follows_the_data_and_options_win(arguments: tuple[str, ...], kappa: float, tau_max: float) -> None:
    options, algorithm = cli.parse_train(list(arguments))
    assert options.data == next(argument for argument in arguments if argument.endswith((".hdf5", ".npz")))
    assert isinstance(algorithm, ur.UNIQ)
    assert (algorithm.kappa, algorithm.tau_max) == (kappa, tau_max)


def test_without_out_every_training_gets_a_folder_of_its_own(tmp_path: Path) -> None:
    assert cli.free_folder(tmp_path, "a-iql") == tmp_path / "a-iql"
    (tmp_path / "a-iql").mkdir()
    assert cli.free_folder(tmp_path, "a-iql") == tmp_path / "a-iql-2"


# The whole job


@dataclasses.dataclass(frozen=True)
class Job:
    algo: str
    done: Finished
    folder: Path

    def lines(self, name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / name).read_text().splitlines()]


SMALL: dict[str, tuple[str, dict[str, Any]]] = {
    "uniq": ("--hidden 16 16", {"hidden": [16, 16], "decay_steps": 300}),
    "iql": ("--hidden 16 16", {"hidden": [16, 16], "decay_steps": 300}),
    "dt": ("--blocks 1 --dim 8 --window 4 --batch-size 16", {"dim": 8, "warmup_steps": 30, "target_return": 3600}),
}
"""How to make a method small, and what its run.json then says."""


@pytest.fixture(scope="module", params=list(SMALL))
def job(
    request: pytest.FixtureRequest, slices: Path, tmp_path_factory: pytest.TempPathFactory, programs: dict[str, str]
) -> Job:
    """`train` on a genuine D4RL file, through the installed command."""
    folder = tmp_path_factory.mktemp("job")
    data = os.path.relpath(slices / "hopper_medium-v2.hdf5", folder)
    options = "--steps 300 --seeds 0 1 --eval-every 100 --log-every 100 --eval-episodes 2 --out out"
    small = SMALL[request.param][0].split()
    done = command("train", data, "--algo", request.param, *small, *options.split(), folder=folder, **programs)
    return Job(request.param, done, folder / "out")


def test_job_succeeds_and_shows_rate_and_time_left(job: Job) -> None:
    assert job.done.code == 0, job.done.err
    assert job.done.err == ""
    assert f"{job.algo} on hopper-medium-v2: " in job.done.out
    assert re.search(r"step 300/300 · [\d,]+ updates/s · 0:00:00 left", job.done.out)
    assert re.search(r"step 100: score +-?\d+[.]\d +-?\d+[.]\d", job.done.out)
    assert "uniq-rl evaluate out" in job.done.out


def test_job_leaves_every_file(job: Job) -> None:
    assert sorted(path.relative_to(job.folder).as_posix() for path in job.folder.rglob("*")) == [
        "checkpoint",
        "checkpoint/state.safetensors",
        "conservatism.png",
        "curves.png",
        "episodes.jsonl",
        "policy-0.safetensors",
        "policy-1.safetensors",
        "records.jsonl",
        "run.json",
    ]
    for name in ("curves.png", "conservatism.png"):
        assert (job.folder / name).read_bytes().startswith(b"\x89PNG")


def test_job_describes_itself(job: Job, slices: Path) -> None:
    description = json.loads((job.folder / "run.json").read_text())
    assert description["algorithm"] == job.algo
    plan = {"steps": 300, "eval_every": 100, "eval_episodes": 2, "log_every": 100, "physics": "d4rl"}
    assert description["plan"].items() >= plan.items()
    assert [run["seed"] for run in description["runs"]] == [0, 1]
    data = ur.load_dataset(slices / "hopper_medium-v2.hdf5")
    for run in description["runs"]:
        assert run["config"].items() >= SMALL[job.algo][1].items()
        assert run["data"]["fingerprint"] == data.fingerprint
        assert run["data"]["task"] == "hopper"
        assert Path(run["data"]["origin"]["source"]).samefile(slices / "hopper_medium-v2.hdf5")
        assert sum(run["folds"].values()) == data.size
    assert {"python", "uniq-rl", "jax", "jaxlib", "numpy", "mujoco"} <= set(description["versions"])
    assert {"backend", "device", "cores", "processor"} <= set(description["hardware"])
    (session,) = description["sessions"]
    assert (session["from_step"], session["to_step"]) == (0, 300)


def test_job_records(job: Job) -> None:
    records = job.lines("records.jsonl")
    for run in ("0", "1"):
        steps = [line["step"] for line in records if line["kind"] == "metrics" and line["run"] == run]
        assert steps == [100, 200, 300]
        calibrations = [line for line in records if line["kind"] == "calibration" and line["run"] == run]
        assert [line["step"] for line in calibrations] == ([0, 100, 200, 300] if job.algo == "uniq" else [])
        for line in calibrations:
            assert line["q_hat"] > 0
            assert set(line["distributions"]) == {"sigma", "u", "tau", "delta"}
    episodes = job.lines("episodes.jsonl")
    assert [(line["step"], line["run"]) for line in episodes] == [(s, r) for s in (100, 200, 300) for r in ("0", "1")]
    assert all(len(line["returns"]) == len(line["lengths"]) == 2 for line in episodes)


def test_evaluate_repeats_the_last_scores_exactly(job: Job, call: Callable[..., Finished]) -> None:
    last = job.lines("episodes.jsonl")[-2:]
    done = call("evaluate", str(job.folder), "--repeat")
    assert done.code == 0, done.err
    for line in last:
        assert re.search(rf"│ +{line['run']} │ +{line['score']:.4f} │", done.out), done.out
    labels, evaluation = ur.evaluate(job.folder, repeat=True)
    assert labels == [line["run"] for line in last]
    assert evaluation.scores.tolist() == [line["score"] for line in last]
    assert evaluation.returns.tolist() == [line["returns"] for line in last]
    assert evaluation.lengths.tolist() == [line["lengths"] for line in last]


def test_evaluate_on_fresh_episodes(job: Job) -> None:
    _, evaluation = ur.evaluate(job.folder, episodes=3)
    assert evaluation.returns.shape == (2, 3)
    used = {value for line in job.lines("episodes.jsonl") for value in line["returns"]}
    assert used.isdisjoint(evaluation.returns.ravel().tolist())


def test_load_policy_gives_what_the_result_gives(job: Job, slices: Path) -> None:
    before = tree(job.folder)
    result = ur.resume(job.folder)  # finished already: nothing is trained and nothing changes
    assert tree(job.folder) == before
    obs = ur.load_dataset(slices / "hopper_medium-v2.hdf5").obs[:50]
    assert result.finished
    assert sorted(result.policies) == [0, 1]
    for seed, policy in result.policies.items():
        loaded = ur.load_policy(job.folder / f"policy-{seed}.safetensors")
        np.testing.assert_array_equal(loaded(obs), policy(obs))
        np.testing.assert_allclose(loaded(obs[0]), policy(obs)[0], rtol=1e-5, atol=1e-6)
        assert np.abs(loaded(obs)).max() <= 1
        if job.algo == "uniq":
            for mine, theirs in zip(loaded.uncertainty(obs), policy.uncertainty(obs), strict=True):
                np.testing.assert_array_equal(mine, theirs)
    assert not np.array_equal(result.policies[0](obs), result.policies[1](obs))


@pytest.mark.parametrize("algo", ["cql", "sac_n", "edac"])
def test_actor_critics_train_from_the_command(algo: str, place: Place, call: Callable[..., Finished]) -> None:
    done = call("train", str(place.npz()), "--algo", algo, "--steps", "2", *TINY, "--out", "out")
    assert done.code == 0, done.err
    lines = [json.loads(line) for line in (place.folder / "out" / "records.jsonl").read_text().splitlines()]
    assert all({"critic_loss", "actor_loss", "alpha", "entropy", "q"} <= set(line) for line in lines)
    assert lines[-1]["step"] == 2
    assert ur.load_policy(place.folder / "out" / "policy-0.safetensors")(columns()["obs"]).shape == (60, 2)


def test_decision_transformer_on_data_of_ones_own(place: Place, call: Callable[..., Finished]) -> None:
    """Nobody knows a return to ask for: it is the best of the data."""
    small = ("--blocks", "1", "--dim", "8", "--window", "4", "--batch-size", "8")
    done = call("train", str(place.npz()), "--algo", "dt", "--steps", "4", *small, "--out", "out")
    assert done.code == 0, done.err
    returns = columns()["reward"].reshape(-1, 10).sum(axis=1)
    policy = ur.load_policy(place.folder / "out" / "policy-0.safetensors")
    assert isinstance(policy.algorithm, ur.DT)
    assert policy.algorithm.target_return == pytest.approx(returns.max(), rel=1e-6)
    assert policy.algorithm.return_scale == pytest.approx(np.abs(returns).max(), rel=1e-6)
    assert policy(columns()["obs"]).shape == (60, 2)


def test_inspect_shows_what_is_in_the_data(slices: Path, call: Callable[..., Finished]) -> None:
    done = call("data", "inspect", str(slices / "hopper_medium-v2.hdf5"))
    assert done.code == 0
    for word in ("transitions", "episodes", "return", "score", "action", "duplicate", "region"):
        assert word in done.out.lower(), word


def test_data_without_a_task_trains_without_scores_and_says_so(place: Place) -> None:
    """Also on a terminal, where progress is a bar; and brackets in a name are not markup."""
    data = place.npz(name="mine[v1].npz")
    done = command(
        *("train", str(data), "--algo", "iql", "--steps", "4", *TINY, "--out", "out[/x]"),
        folder=place.folder,
        FORCE_COLOR="1",
    )
    assert done.code == 0, done.err
    assert "training without scores" in done.out
    assert "updates/s" in done.out
    assert "left" in done.out
    assert "out[/x]" in done.out
    assert (place.folder / "out[/x]" / "episodes.jsonl").read_bytes() == b""
    assert ur.load_policy(place.folder / "out[/x]" / "policy-0.safetensors")(columns()["obs"]).shape == (60, 2)


def test_a_device_that_is_not_there(tmp_path: Path) -> None:
    done = command(
        "train", "suite/hopper-random", "--size", "1000", "--out", "out", folder=tmp_path, JAX_PLATFORMS="gpux"
    )
    assert done.code == 2
    assert done.err.startswith("uniq-rl: JAX finds no device with JAX_PLATFORMS=gpux (")
    assert "unset JAX_PLATFORMS to train on the CPU" in done.err.replace("\n", " ")
    assert "Traceback" not in done.err + done.out
    assert list(tmp_path.iterdir()) == []
