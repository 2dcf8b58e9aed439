"""Parquet and CSV, one row per step."""

import builtins
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from logged import Columns as Arrays
from logged import chain

from uniq_rl.data import Columns, from_arrays, load_dataset, load_table
from uniq_rl.errors import UniqError

pyarrow = pytest.importorskip("pyarrow")
from pyarrow import csv, parquet  # noqa: E402

NO_NEXT = ("next_obs_0", "next_obs_1")


def flat(**changes: Any) -> Arrays:
    """The chain under default names, one array per column."""
    columns = chain()
    found = {
        "obs_0": columns["observations"][:, 0],
        "obs_1": columns["observations"][:, 1],
        "action_0": columns["actions"][:, 0],
        "reward": columns["rewards"],
        "terminated": columns["terminals"],
        "truncated": columns["timeouts"],
        "next_obs_0": columns["next_observations"][:, 0],
        "next_obs_1": columns["next_observations"][:, 1],
    } | changes
    return {key: value for key, value in found.items() if value is not None}


def renamed(columns: Arrays, **names: str) -> Arrays:
    return {names.get(key, key): value for key, value in columns.items()}


@pytest.fixture(params=["own.parquet", "own.csv"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / str(request.param)


def write(path: Path, columns: Arrays) -> Path:
    table = pyarrow.table(columns)
    if path.suffix == ".csv":
        csv.write_csv(table, path)
    else:
        parquet.write_table(table, path)
    return path


SAME = from_arrays(chain()).fingerprint


def test_default_names(path: Path) -> None:
    data = load_dataset(write(path, flat()))
    assert data.fingerprint == SAME
    assert (data.name, data.task) == ("own", None)
    assert load_table(path, name="mine", task="hopper").task == "hopper"


def test_columns_toml_beside_the_table(path: Path) -> None:
    names = {"obs_0": "x", "obs_1": "v", "action_0": "force", "reward": "r", "terminated": "done", "truncated": "late"}
    write(path, renamed(flat(), **names, next_obs_0="after x", next_obs_1="after v"))
    (path.parent / "columns.toml").write_text(
        'obs = ["x", "v"]\naction = "force"\nreward = "r"\nterminated = "done"\ntruncated = "late"\n'
        'next_obs = ["after x", "after v"]\n'
    )
    assert load_dataset(path).fingerprint == SAME
    (path.parent / "columns.toml").rename(path.parent / "other.toml")
    assert load_dataset(path, columns=path.parent / "other.toml").fingerprint == SAME
    columns = Columns(("x", "v"), ("force",), "r", "done", "late", next_obs=("after *",))
    assert load_dataset(path, columns=columns).fingerprint == SAME  # in the order of the file
    with pytest.raises(UniqError, match=r"no column `obs_\*` \(found: x, v, force"):
        load_dataset(path)


def test_a_change_of_episode_cuts_it_off(path: Path) -> None:
    ids = np.repeat(["a", "b", "c"], [3, 2, 4])
    write(path, flat(truncated=None, run=ids))
    assert load_table(path, {"episode": "run"}).fingerprint == SAME
    assert load_table(write(path, flat(truncated=None, episode=ids))).fingerprint == SAME  # by its usual name
    # without next_obs too: the last row of the episode that was cut off goes
    columns = {key: value for key, value in chain().items() if key != "next_observations"}
    write(path, flat(truncated=None, episode=ids, next_obs_0=None, next_obs_1=None))
    assert load_table(path).fingerprint == from_arrays(columns).fingerprint


def test_numbered_columns_in_the_order_of_their_numbers(path: Path) -> None:
    rows = len(flat()["reward"])
    wide = {f"obs_{index}": np.full(rows, float(index)) for index in reversed(range(12))}
    data = load_table(write(path, flat(obs_0=None, obs_1=None, next_obs_0=None, next_obs_1=None) | wide))
    assert data.obs[0].tolist() == list(range(12))


def test_action_ranges(path: Path) -> None:
    write(path, flat(action_0=flat()["action_0"] * 5))
    by_argument = load_dataset(path, action_range=(-5, 5))
    np.testing.assert_allclose(by_argument.action, chain()["actions"], atol=1e-7)
    (path.parent / "columns.toml").write_text("action_low = [-5]\naction_high = 5.0\n")
    assert load_dataset(path).fingerprint == by_argument.fingerprint


def test_columns_of_lists_and_other_types(tmp_path: Path) -> None:
    columns = chain()
    table = {
        "obs": pyarrow.array(columns["observations"].tolist(), pyarrow.list_(pyarrow.float32())),
        "next_obs": pyarrow.array(columns["next_observations"].tolist(), pyarrow.list_(pyarrow.float64(), 2)),
        "action": pyarrow.array(columns["actions"].tolist(), pyarrow.large_list(pyarrow.float32())),
        "reward": pyarrow.array(columns["rewards"]).cast(pyarrow.decimal128(10, 2)),
        "terminated": columns["terminals"].astype(np.float64),
        "truncated": columns["timeouts"].astype(np.int8),
    }
    assert load_table(write(tmp_path / "own.parquet", table)).fingerprint == SAME
    table["obs"] = pyarrow.array([[1.0, 2.0]] * 8 + [[1.0]])
    with pytest.raises(UniqError, match="`obs` holds lists of unequal length"):
        load_table(write(tmp_path / "own.parquet", table))
    table["obs"] = pyarrow.array([0] * 9, pyarrow.timestamp("ms"))
    with pytest.raises(UniqError, match=r"`obs` holds timestamp\[ms\] values"):
        load_table(write(tmp_path / "own.parquet", table))


def text(*changes: tuple[str, str]) -> str:
    """A small CSV, with replacements."""
    content = (
        "obs_0,action_0,reward,terminated,truncated\n"
        "1.5,0.5,1,false,false\n"
        "2.5,-0.5,1,false,false\n"
        "3.5,0.25,1,true,false\n"
        "4.5,0.75,0,false,false\n"
        "5.5,0.0,0,true,false\n"
    )
    for old, new in changes:
        assert old in content
        content = content.replace(old, new, 1)
    return content


def test_csv_by_hand(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text(text())
    data = load_table(tmp_path / "own.csv")
    assert data.obs[:, 0].tolist() == [1.5, 2.5, 3.5, 4.5, 5.5]
    assert data.episode_bounds.tolist() == [[0, 3], [3, 5]]
    for delimiter in ";\t":
        (tmp_path / "own.csv").write_text(text().replace(",", delimiter).replace("false", "0"))
        assert load_table(tmp_path / "own.csv").fingerprint == data.fingerprint
    (tmp_path / "own.csv").write_bytes(b"\xef\xbb\xbf" + text().replace("\n", "\r\n").encode())  # as Excel writes it
    assert load_table(tmp_path / "own.csv").fingerprint == data.fingerprint


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "is empty; give a header"),
        ("obs_0,action_0,reward,terminated,truncated\n", "has a header but no rows"),
        (text(("reward", "r")), r"has no column `reward` \(found: obs_0, action_0, r, .*columns.toml"),
        (text(("obs_0", "x")), r"has no column `obs_\*`"),
        (text(("action_0", "obs_1"), ("obs_0", "obs_1")), r"has 2 columns named `obs_1`|no column `action_\*`"),
        (text(("reward", "obs_0")), "has no column `reward`|has 2 columns named"),
        (text(("2.5,-0.5", "2.5,fast")), "column `action_0` is 'fast' at row 1, which is not a number"),
        (text(("3.5,0.25,1", "3.5,0.25,")), "column `reward` is empty at row 2"),
        (text(("3.5,0.25,1", "3.5,0.25,nan")), "column `reward` is nan at row 2"),
        (text(("3.5,0.25,1", "3.5,inf,1")), "column `action_0` is inf at row 2"),
        (text(("3.5,0.25,1,true", "3.5,0.25,1")), "cannot be read as a table.*Row #4: Expected 5 columns, got 4"),
        (text(("3.5,0.25", "3.5,0.25,7")), "Expected 5 columns, got 6"),
        (text(("true", "2"), ("true", "1")).replace("false", "0"), "`terminated` is 2 at row 2 but may only be 0 or 1"),
        (text(("terminated", "done")), "has no column `terminated`"),
        (text(("0.75", "7.5")), r"reaches 7.5 at row 3.*action_range=\(low, high\)"),
        ("\x00\x01\x02", "no column|cannot be read"),
    ],
)
def test_faults(tmp_path: Path, content: str, sentence: str) -> None:
    (tmp_path / "own.csv").write_text(content)
    with pytest.raises(UniqError, match=sentence) as caught:
        load_table(tmp_path / "own.csv")
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".")


def test_more_faults(path: Path) -> None:
    with pytest.raises(UniqError, match="does not exist or is not a file"):
        load_table(path)
    path.write_bytes(b"")
    with pytest.raises(UniqError, match="is empty"):
        load_table(path)
    with pytest.raises(UniqError, match="comes back to an earlier episode at row 5; sort the rows"):
        load_table(write(path, flat(episode=np.repeat([1, 2, 1], [3, 2, 4]))))
    with pytest.raises(UniqError, match="`obs_0` is empty at row 4"):
        load_table(write(path, flat(obs_0=[1.0, 2.0, 3.0, 4.0, None, 6.0, 7.0, 8.0, 9.0])))
    with pytest.raises(UniqError, match="look discrete"):
        load_table(write(path, flat(action_0=np.arange(9) % 2)))


@pytest.mark.parametrize(
    ("toml", "sentence"),
    [
        ("obs = [", "cannot be read as TOML"),
        ('observation = "x"', "`observation` is unknown; the entries are obs, action"),
        ("obs = 3", "`obs` is 3 but must be a column name or a list"),
        ("obs = []", r"`obs` is \[\] but must be"),
        ('reward = ["a", "b"]', "`reward` is .* must be a column name"),
        ("action_low = 3", "only one of `action_low` and `action_high`"),
        ('action_low = "a"\naction_high = "b"', "action_low holds <U1 values"),
    ],
)
def test_faults_of_columns_toml(path: Path, toml: str, sentence: str) -> None:
    write(path, flat())
    (path.parent / "columns.toml").write_text(toml)
    with pytest.raises(UniqError, match=sentence):
        load_table(path)


def test_columns_are_for_tables(tmp_path: Path) -> None:
    np.savez(tmp_path / "own.npz", **chain())
    with pytest.raises(UniqError, match="is no table"):
        load_dataset(tmp_path / "own.npz", columns=Columns())


def test_without_pyarrow(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(path, flat())
    original = builtins.__import__

    def missing(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return original(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(UniqError, match=r"install it with the extra uniq-rl\[tables\]"):
        load_table(path)
