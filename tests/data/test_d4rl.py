"""D4RL files: the genuine slices against numbers worked out from their raw arrays, and each oddity on its own."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from logged import chain

from uniq_rl.data import load_d4rl, load_dataset
from uniq_rl.errors import UniqError

SLICES = Path(__file__).resolve().parents[3] / "shared" / "data" / "d4rl"
needs_slices = pytest.mark.skipif(not SLICES.is_dir(), reason="no genuine D4RL slices beside the repository")
Write = Callable[..., Path]


# Plain Python sums over the raw columns; time-out rows count only where next observations are stored.
@needs_slices
@pytest.mark.parametrize(
    ("file", "task", "dims", "terminated", "lengths", "returns", "infos"),
    [
        ("antmaze-umaze-v0", "antmaze", (29, 8), 0, [700, 700], [0.0, 0.0], {"qpos", "qvel"}),
        ("halfcheetah_medium-v2", "halfcheetah", (17, 6), 0, [1000, 1000], [4669.480247, 4880.024722], None),
        ("hopper_medium-v2", "hopper", (11, 3), 2, [470, 441], [1465.184462, 1412.729988], None),
        ("hopper_medium_replay-v1", "hopper", (11, 3), 2, [40, 9], [42.041529, 6.204416], None),
        ("hopper_random-v1", "hopper", (11, 3), 2, [31, 19], [39.157138, 9.309011], None),
        ("pen-human-v1", "pen", (45, 24), 0, [199, 199], [376.346092, 9788.352731], {"qpos", "qvel"}),
        ("walker2d_medium-v2", "walker2d", (17, 6), 0, [1000, 1000], [3499.501747, 3663.081673], None),
    ],
)
def test_genuine_slices(
    file: str,
    task: str,
    dims: tuple[int, int],
    terminated: int,
    lengths: list[int],
    returns: list[float],
    infos: set[str] | None,
) -> None:
    data = load_dataset(SLICES / f"{file}.hdf5")
    assert data.name == file.replace("_", "-")
    assert data.task == task
    assert (data.obs_dim, data.action_dim) == dims
    assert data.episode_lengths.tolist() == lengths
    np.testing.assert_allclose(data.episode_returns, returns, rtol=1e-7, atol=1e-6)
    assert int((data.mask == 0).sum()) == terminated
    assert set(data.infos) == (infos or {"qpos", "qvel", "action_log_prob"})
    # Inside an episode each row leads to the next one, in every file.
    inside = np.flatnonzero(~data.episode_end)
    np.testing.assert_array_equal(data.next_obs[inside], data.obs[inside + 1])


@needs_slices
def test_all_genuine_slices_are_tested() -> None:
    assert len(list(SLICES.glob("*.hdf5"))) == 7


@needs_slices
def test_genuine_time_outs_keep_their_own_successor() -> None:
    data = load_d4rl(SLICES / "halfcheetah_medium-v2.hdf5")
    with h5py.File(SLICES / "halfcheetah_medium-v2.hdf5") as file:
        np.testing.assert_array_equal(data.next_obs[999], file["next_observations"][999])
    assert np.abs(data.next_obs[999] - data.obs[1000]).max() > 1  # not the first state of the next episode
    assert data.mask[999] == 1


def test_stored_next_observations_keep_every_row(columns: dict[str, Any], write: Write) -> None:
    data = load_d4rl(write(columns))
    assert data.size == 9
    assert data.mask.tolist() == [1, 1, 0, 1, 1, 1, 1, 1, 0]  # row 4, the time-out, is bootstrapped through
    assert data.episode_bounds.tolist() == [[0, 3], [3, 5], [5, 9]]
    assert data.next_obs[4].tolist() == [102, 2]


def test_without_next_observations_only_unknown_successors_go(columns: dict[str, Any], write: Write) -> None:
    del columns["next_observations"]
    columns["infos/qpos"] = np.arange(9.0)
    data = load_d4rl(write(columns))
    assert data.reward.tolist() == [0, 1, 2, 3, 5, 6, 7, 8]  # row 4 timed out: nobody recorded what followed
    assert data.infos["qpos"].tolist() == data.reward.tolist()
    assert data.mask.tolist() == [1, 1, 0, 1, 1, 1, 1, 0]
    assert data.episode_bounds.tolist() == [[0, 3], [3, 4], [4, 8]]
    assert data.next_obs[:, 0].tolist() == [1, 2, 2, 101, 201, 202, 203, 203]  # terminal rows keep their own


def test_an_episode_of_one_cut_row_vanishes(write: Write) -> None:
    columns = chain((3, 1, 2), (True, False, True))
    del columns["next_observations"]
    data = load_d4rl(write(columns))
    assert data.reward.tolist() == [0, 1, 2, 4, 5]
    assert data.episode_bounds.tolist() == [[0, 3], [3, 5]]


def test_without_timeouts_episodes_end_where_the_next_observation_does_not_continue(
    columns: dict[str, Any], write: Write
) -> None:
    del columns["timeouts"]
    data = load_d4rl(write(columns))
    assert data.episode_bounds.tolist() == [[0, 3], [3, 5], [5, 9]]
    assert data.mask.tolist() == [1, 1, 0, 1, 1, 1, 1, 1, 0]


@pytest.mark.parametrize(("gap", "episodes"), [(0.9e-6, 3), (1.1e-6, 4)])
def test_the_gap_that_counts_is_official_iqls(columns: dict[str, Any], write: Write, gap: float, episodes: int) -> None:
    del columns["timeouts"]
    columns["next_observations"] = columns["next_observations"].astype(np.float64)
    columns["observations"] = columns["observations"].astype(np.float64)
    columns["next_observations"][6, 1] += gap
    assert load_d4rl(write(columns)).episodes == episodes


def test_a_seam_without_a_mark_still_ends_the_episode(columns: dict[str, Any], write: Write) -> None:
    columns["timeouts"][4] = False  # as where two files were joined
    assert load_d4rl(write(columns)).episode_bounds.tolist() == [[0, 3], [3, 5], [5, 9]]


def test_without_timeouts_and_next_observations_only_terminals_count(columns: dict[str, Any], write: Write) -> None:
    del columns["timeouts"], columns["next_observations"]
    data = load_d4rl(write(columns))
    assert data.episode_bounds.tolist() == [[0, 3], [3, 9]]


def test_a_file_cut_inside_an_episode(columns: dict[str, Any], write: Write) -> None:
    cut = {key: value[:7] for key, value in columns.items()}
    data = load_d4rl(write(cut))
    assert data.episode_bounds.tolist() == [[0, 3], [3, 5], [5, 7]]
    assert data.mask[-1] == 1
    del cut["next_observations"]
    data = load_d4rl(write(cut))
    assert data.reward.tolist() == [0, 1, 2, 3, 5]  # the successor of row 6 is unknown too
    assert data.episode_bounds.tolist() == [[0, 3], [3, 4], [4, 5]]


def test_float64_column_rewards_and_float_flags(columns: dict[str, Any], write: Write) -> None:
    odd = {key: value.astype(np.float64) for key, value in columns.items()}
    for key in ("rewards", "terminals", "timeouts"):
        odd[key] = odd[key][:, None]
    assert load_d4rl(write(odd)).fingerprint == load_d4rl(write(columns, "plain.hdf5")).fingerprint


def test_terminated_wins_over_a_time_out_on_the_same_row(columns: dict[str, Any], write: Write) -> None:
    columns["timeouts"][2] = True
    assert load_d4rl(write(columns)).mask[2] == 0
    del columns["next_observations"]
    data = load_d4rl(write(columns))
    assert data.reward[2] == 2
    assert data.mask[2] == 0


def test_two_episodes_of_1000_rows_are_not_windows_of_1000(write: Write) -> None:
    columns = chain((1000, 1000, 500), (False, False, True))
    del columns["next_observations"]
    assert load_d4rl(write(columns)).episode_bounds.tolist() == [[0, 999], [999, 1998], [1998, 2498]]


def test_more_than_a_million_rows_are_all_kept(write: Write) -> None:
    rows = 1_200_000
    steps = np.arange(rows + 1, dtype=np.float32)[:, None]
    timeouts = np.arange(rows) % 1000 == 999
    zeros = np.zeros(rows, dtype=np.float32)
    columns = {"observations": steps[:-1], "next_observations": steps[1:], "actions": zeros[:, None]}
    data = load_d4rl(write(columns | {"rewards": zeros, "terminals": zeros, "timeouts": timeouts}))
    assert data.size == rows
    assert data.episodes == 1200


def test_never_written_flags_are_zero(columns: dict[str, Any], write: Write) -> None:
    path = write({key: value for key, value in columns.items() if key != "timeouts"})
    with h5py.File(path, "a") as file:
        file.create_dataset("timeouts", shape=(9,), dtype=bool)
    assert load_d4rl(path).size == 9


def test_extras_of_another_length_are_left_out(columns: dict[str, Any], write: Write) -> None:
    columns |= {"infos/qpos": np.zeros((9, 4)), "infos/qvel": np.zeros((8, 4)), "infos/goal": np.zeros((9, 2))}
    assert set(load_d4rl(write(columns)).infos) == {"qpos"}


def test_name_and_task_can_be_given(columns: dict[str, Any], write: Write) -> None:
    data = load_d4rl(write(columns), name="mine", task="walker2d")
    assert (data.name, data.task) == ("mine", "walker2d")


def at_row(values: np.ndarray, row: int, value: float) -> np.ndarray:
    changed = values.astype(np.float64)
    changed[row] = value
    return changed


FAULTS: list[tuple[Callable[[dict[str, Any]], dict[str, Any]], str]] = [
    (lambda c: {k: v for k, v in c.items() if k != "actions"}, r"no column `actions` \(found: next_observations, obs"),
    (lambda c: {k: v for k, v in c.items() if k not in ("terminals", "timeouts")}, "neither a `terminals` nor a `time"),
    (lambda c: {k: v for k, v in c.items() if k != "terminals"}, r"no column `terminals`.*all zero if the task never"),
    (lambda c: {}, "neither a `terminals` nor a `timeouts`"),
    (lambda c: c | {"observations": np.zeros(9)}, r"`observations` has shape \(9,\)"),
    (lambda c: c | {"observations": np.zeros((9, 2, 2))}, r"`observations` has shape \(9, 2, 2\)"),
    (lambda c: c | {"rewards": np.zeros((9, 2))}, r"`rewards` has shape \(9, 2\)"),
    (lambda c: c | {"rewards": np.zeros(8)}, "`rewards` has 8 rows but `observations` has 9"),
    (
        lambda c: c | {"next_observations": np.zeros((9, 3))},
        "`next_observations` has 3 dimensions but `observations` h",
    ),
    (lambda c: c | {"rewards": at_row(c["rewards"], 6, np.nan)}, "`rewards` is nan at row 6"),
    (lambda c: c | {"observations": at_row(c["observations"], 5, np.inf)}, "`observations` is inf at row 5, column 0"),
    (lambda c: c | {"actions": at_row(c["actions"], 7, 4.0)}, r"`actions` reaches 4 at row 7.*divide the actions"),
    (lambda c: c | {"actions": np.zeros((9, 1), dtype=np.int64)}, "int64 values, so the actions look discrete"),
    (lambda c: c | {"terminals": at_row(c["terminals"], 1, 2)}, "`terminals` is 2.0 at row 1 but may only be 0 or 1"),
    (lambda c: c | {"rewards": np.array([b"x"] * 9)}, r"`rewards` holds \|S1 values"),
    (lambda c: c | {"rewards": h5py.Empty("f4")}, "`rewards` is empty"),
    (lambda c: {k: v[:0] for k, v in c.items()}, "holds 0 transitions; at least 2"),
    (lambda c: {k: v[:1] for k, v in c.items()}, "holds 1 transition; at least 2"),
    (
        lambda c: {k: v[5:8] for k, v in c.items()},
        "no episode end is marked anywhere in 3 rows; set `timeouts` to true on the last row",
    ),
    (
        lambda c: {k: v[3:5] for k, v in c.items() if k != "next_observations"},
        "only 1 of 2 rows have a known next observation",
    ),
    (
        lambda c: c | {"rewards/inner": np.zeros(9)} if c.pop("rewards") is not None else c,
        "`rewards` must be an HDF5 d",
    ),
    (lambda c: c | {"infos": np.zeros(9)}, "`infos` must be an HDF5 group"),
]


@pytest.mark.parametrize(("change", "sentence"), FAULTS)
def test_faults_are_one_sentence(
    columns: dict[str, Any], write: Write, change: Callable[[dict[str, Any]], dict[str, Any]], sentence: str
) -> None:
    path = write(change(columns))
    with pytest.raises(UniqError, match=sentence) as caught:
        load_d4rl(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert message.endswith(".")
    assert "\n" not in message


def test_rows_in_messages_are_rows_of_the_file(columns: dict[str, Any], write: Write) -> None:
    del columns["next_observations"]  # row 4 will be dropped, but the user's row 7 is still row 7
    columns["rewards"][7] = np.nan
    with pytest.raises(UniqError, match="`rewards` is nan at row 7"):
        load_d4rl(write(columns))


@pytest.mark.parametrize("keep", [0.3, 0.9])
def test_a_truncated_file(columns: dict[str, Any], write: Write, keep: float) -> None:
    path = write(columns)
    path.write_bytes(path.read_bytes()[: int(keep * path.stat().st_size)])
    with pytest.raises(UniqError, match="cannot be read as HDF5: it is damaged, cut short"):
        load_d4rl(path)


@pytest.mark.parametrize("content", [b"", b"obs,action,reward\n1,2,3\n", b"\x89HDF\r\n\x1a\n"])
def test_another_format_called_hdf5(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "hopper.hdf5"
    path.write_bytes(content)
    with pytest.raises(UniqError, match="cannot be read as HDF5"):
        load_dataset(path)


@pytest.mark.parametrize("label", ["observations", "infos/qpos", "infos"])
def test_external_links_are_not_followed(columns: dict[str, Any], write: Write, label: str) -> None:
    secret = write({"values": columns["observations"], "qpos": columns["observations"]}, "secret.hdf5")
    columns.pop(label, None)
    path = write(columns)
    with h5py.File(path, "a") as file:
        file[label] = h5py.ExternalLink(str(secret), "/values")
    with pytest.raises(UniqError, match=f"`{label}.*` is a link to elsewhere, which is not followed"):
        load_d4rl(path)


@pytest.mark.parametrize("target", ["/elsewhere", "/missing"])
def test_soft_links_are_not_followed(columns: dict[str, Any], write: Write, target: str) -> None:
    path = write(columns | {"elsewhere": columns["rewards"]})
    with h5py.File(path, "a") as file:
        del file["rewards"]
        file["rewards"] = h5py.SoftLink(target)
    with pytest.raises(UniqError, match="`rewards` is a link to elsewhere"):
        load_d4rl(path)


def test_data_kept_in_other_files_are_not_opened(columns: dict[str, Any], write: Write, tmp_path: Path) -> None:
    rewards = columns.pop("rewards")
    (tmp_path / "raw.bin").write_bytes(rewards.tobytes())
    path = write(columns)
    with h5py.File(path, "a") as file:
        file.create_dataset("rewards", (9,), "f4", external=[(str(tmp_path / "raw.bin"), 0, 36)])
    with pytest.raises(UniqError, match="`rewards` keeps its data in other files"):
        load_d4rl(path)

    other = write({"values": rewards}, "other.hdf5")
    path = write(columns, "virtual.hdf5")
    with h5py.File(path, "a") as file:
        layout = h5py.VirtualLayout((9,), "f4")
        layout[:] = h5py.VirtualSource(str(other), "values", (9,))
        file.create_virtual_dataset("rewards", layout)
    with pytest.raises(UniqError, match="`rewards` keeps its data in other files"):
        load_d4rl(path)


@pytest.mark.parametrize(("chunks", "held"), [(None, 0), ((1024, 2), 0), ((1024, 2), 8192)])
def test_a_forged_size_is_not_allocated(
    columns: dict[str, Any], write: Write, chunks: tuple[int, int] | None, held: int
) -> None:
    del columns["observations"]
    path = write(columns)
    with h5py.File(path, "a") as file:  # 8 TiB declared, nothing or one chunk written
        observations = file.create_dataset("observations", (2**40, 2), "f4", chunks=chunks)
        observations[: held // 8] = 1
    with pytest.raises(UniqError, match=f"`observations` declares 8796093022208 bytes but the file holds {held} for"):
        load_d4rl(path)


def test_variable_length_columns_are_refused(columns: dict[str, Any], write: Write) -> None:
    del columns["rewards"]
    path = write(columns)
    with h5py.File(path, "a") as file:
        file.create_dataset("rewards", (9,), h5py.vlen_dtype(np.float32))
    with pytest.raises(UniqError, match="`rewards` holds object values"):
        load_d4rl(path)
