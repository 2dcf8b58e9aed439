"""The picture of a data set, drawn from small synthetic ones."""

import struct
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.text import Text

from uniq_rl.data.dataset import Dataset
from uniq_rl.errors import UniqError
from uniq_rl.evidence import dataset_figure
from uniq_rl.evidence.dataset_figure import choose_plane, draw_dataset, terminated
from uniq_rl.evidence.figures import STYLE


def data(
    lengths: list[int],
    obs_dim: int = 4,
    ended: list[bool] | None = None,
    obs: Any = None,
    reward: Any = None,
    name: str = "toy-v0",
    task: str | None = None,
) -> Dataset:
    rng = np.random.default_rng(0)
    size = sum(lengths)
    last = np.cumsum(lengths) - 1
    mask, end = np.ones(size), np.zeros(size, bool)
    mask[last] = [not e for e in ended or [False] * len(lengths)]
    end[last] = True
    observed = rng.normal(size=(size, obs_dim)) if obs is None else np.asarray(obs)
    return Dataset(
        obs=observed,
        action=np.zeros((size, 2)),
        reward=rng.uniform(size=size) if reward is None else np.asarray(reward),
        next_obs=observed + 0.1,
        mask=mask,
        episode_end=end,
        name=name,
        task=task,
    )


def size_of(path: Path) -> tuple[int, int]:
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    assert content.endswith(b"IEND\xaeB`\x82")
    width, height = struct.unpack(">II", content[16:24])
    return width, height


def texts(dataset: Dataset) -> str:
    with mpl.rc_context(STYLE):
        figure = dataset_figure.dataset_figure(dataset)
    return "\n".join(text.get_text() for text in figure.findobj(Text))


def test_draws_one_png_of_1200_pixels(tmp_path: Path) -> None:
    path = draw_dataset(data([30, 50, 20], ended=[True, False, True]), tmp_path / "data.png")
    assert path == tmp_path / "data.png"
    assert size_of(path) == (1200, 1005)
    assert [file.name for file in tmp_path.iterdir()] == ["data.png"]


def test_the_same_data_give_the_same_bytes(tmp_path: Path) -> None:
    first, second = (draw_dataset(data([30, 50]), tmp_path / name) for name in ("a.png", "b.png"))
    assert first.read_bytes() == second.read_bytes()


HUGE = np.random.default_rng(1).normal(size=(20, 3)) * 1e38
LINE = np.arange(20.0)[:, None] * [1.0, -2.0, 0.0]


@pytest.mark.parametrize(
    "dataset",
    [
        pytest.param(data([2]), id="two rows"),
        pytest.param(data([40], task="hopper", obs_dim=11), id="one episode"),
        pytest.param(data([20, 20], reward=np.full(40, 0.1)), id="equal returns"),
        pytest.param(data([10, 10], reward=np.full(20, -1e38)), id="vast returns"),
        pytest.param(data([10, 10], obs=np.full((20, 3), 0.1)), id="constant obs"),
        pytest.param(data([10, 10], obs=np.full((20, 11), 0.1), task="hopper"), id="constant task axes"),
        pytest.param(data([10, 10], obs_dim=1), id="one column"),
        pytest.param(data([10, 10], obs=np.full((20, 1), 7.0)), id="one constant column"),
        pytest.param(data([20], obs=LINE), id="columns on one line"),
        pytest.param(data([20], obs=HUGE), id="vast obs"),
        pytest.param(data([20], obs=HUGE * 1e-81), id="denormal obs"),
        pytest.param(data([1] * 30, ended=[True] * 30), id="episodes of one step"),
        pytest.param(data([9, 9], task="hopper"), id="hopper with other observations"),
        pytest.param(data([9, 9], task="unheard-of"), id="unknown task"),
        pytest.param(data([9], name="$x_{$ " * 40 + "\n"), id="odd name"),
    ],
)
def test_edge_cases_draw_without_a_warning(dataset: Dataset, tmp_path: Path) -> None:
    assert size_of(draw_dataset(dataset, tmp_path / "data.png"))[0] == 1200


def test_the_header_gives_scores_where_there_is_a_reference() -> None:
    # (1607.0138475 - -20.272305) / (3234.3 - -20.272305) = 0.5
    scored = texts(data([1, 1], reward=[1607.0138475, -20.272305], obs_dim=11, task="hopper", ended=[True, False]))
    assert "2 transitions   ·   2 episodes   ·   mean score 25.0, best 50.0" in scored
    assert "D4RL score" in scored
    assert "mean 793" in scored
    assert "best 1,607" in scored
    assert "torso pitch (rad)" in scored
    assert "terminated 1\n" in scored
    plain = texts(data([1, 1], reward=[1, 2]))
    assert "mean return 1.5, best 2" in plain
    assert "score" not in plain


@pytest.mark.parametrize(
    ("task", "obs_dim", "velocity"), [("hopper", 11, 5), ("walker2d", 17, 8), ("halfcheetah", 17, 8)]
)
def test_locomotion_is_seen_by_pitch_and_forward_velocity(task: str, obs_dim: int, velocity: int) -> None:
    dataset = data([5, 7], obs_dim=obs_dim, task=task)
    plane = choose_plane(dataset)
    np.testing.assert_array_equal(plane.states, dataset.obs[:, [1, velocity]].T)
    np.testing.assert_array_equal(plane.ends, dataset.next_obs[[4, 11]][:, [1, velocity]].T)


def test_other_data_are_seen_along_principal_components() -> None:
    rng = np.random.default_rng(0)
    shared, other = rng.normal(size=(2, 1000))
    # On unlike scales, with a constant: the correlated pair leads once columns are standardised.
    obs = np.stack([100 * shared, np.full(1000, 3.0), 0.01 * (shared + 0.1 * rng.normal(size=1000)), 5 * other], axis=1)
    plane = choose_plane(data([1000], obs=obs))
    assert abs(np.corrcoef(plane.states[0], shared)[0, 1]) > 0.99
    assert abs(np.corrcoef(plane.states[1], other)[0, 1]) > 0.99
    assert plane.labels == ("principal component 1 (67 % of variance)", "principal component 2 (33 % of variance)")


def test_many_rows_give_the_same_components_as_few_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = data([300, 200])
    whole = choose_plane(dataset)
    monkeypatch.setattr(dataset_figure, "CHUNK", 7)
    np.testing.assert_allclose(choose_plane(dataset).states, whole.states, rtol=1e-9, atol=1e-9)


def test_a_single_direction_is_seen_against_time() -> None:
    plane = choose_plane(data([2, 3], obs=[[1], [2], [4], [8], [16]]))
    assert plane.labels == ("observation 0", "step of the episode")
    np.testing.assert_array_equal(plane.states, [[1, 2, 4, 8, 16], [0, 1, 0, 1, 2]])
    np.testing.assert_array_equal(plane.ends[1], [2, 3])


def test_the_frame_leaves_out_outliers_and_says_so() -> None:
    obs = np.random.default_rng(0).normal(size=(5000, 11))
    obs[7, 1] = 1e6
    dataset = data([2500, 2500], obs=obs, task="hopper")
    assert choose_plane(dataset).frame()[0][1] < 10
    assert "of states beyond the frame" in texts(dataset)


def test_episodes_end_by_the_task_or_by_the_clock() -> None:
    assert terminated(data([3, 4, 5], ended=[True, False, True])).tolist() == [True, False, True]


def test_of_many_final_states_some_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset_figure, "DRAWN_ENDS", 10)
    with mpl.rc_context(STYLE):
        figure = dataset_figure.dataset_figure(data([2] * 50, ended=[True] * 45 + [False] * 5))
    drawn = [len(line.get_xdata()) for line in figure.axes[3].lines]
    assert drawn[:2] == [10, 5]


def test_a_folder_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UniqError, match=r"data\.png"):
        draw_dataset(data([5]), tmp_path / "none" / "data.png")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1422.4, "1,422"),
        (-0.3541, "−0.354"),
        (2.5e6, "2.5M"),
        (1e-5, "1e-05"),
        (123456, "123,456"),
        (-3e12, "−3e+12"),
    ],
)
def test_numbers_as_one_would_say_them(value: float, text: str) -> None:
    assert dataset_figure._number(value) == text
