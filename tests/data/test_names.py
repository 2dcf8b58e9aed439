"""What names say."""

from pathlib import Path

import pytest

from uniq_rl.data.names import kind_of, name_of_file, task_of


@pytest.mark.parametrize(
    ("name", "task", "kind"),
    [
        ("hopper_medium-v2.hdf5", "hopper", "medium"),
        ("suite/walker2d-medium-replay", "walker2d", "medium-replay"),
        ("halfcheetah-medium-expert-v2", "halfcheetah", "medium-expert"),
        ("hopper_medium_replay-v1", "hopper", "medium-replay"),
        ("HalfCheetah-full_replay-v2", "halfcheetah", "full-replay"),
        ("ant-random-v2", "ant", "random"),
        ("maze2d-umaze-sparse-v1", "maze2d-umaze", None),
        ("maze2d-medium-dense-v1", "maze2d-medium", None),
        ("maze2d-open-v0", None, None),
        ("antmaze-umaze-v0", "antmaze", None),
        ("antmaze-medium-play-v2", "antmaze", None),
        ("Ant_maze_big-maze_noisy_multistart_True_multigoal_False_sparse_fixed.hdf5", "antmaze", None),
        ("pen-human-v1", "pen", None),
        ("door-expert-v1", "door", "expert"),
        ("hammer-cloned-v1", "hammer", None),
        ("relocate-expert-v1", "relocate", "expert"),
        ("mini_kitchen_microwave_kettle_light_slider-v0.hdf5", "kitchen", None),
        ("mujoco/hopper/expert-v0", "hopper", "expert"),
        ("hopper/walker2d-medium-v2", "walker2d", "medium"),
        ("C:\\data\\walker2d_expert.npz", "walker2d", "expert"),
        ("opening-trades", None, None),  # "pen" and "ant" are words, not parts of words
        ("elephant.npz", None, None),
        ("", None, None),
    ],
)
def test_names(name: str, task: str | None, kind: str | None) -> None:
    assert task_of(name) == task
    assert kind_of(name) == kind


def test_file_names_become_d4rl_names() -> None:
    assert name_of_file(Path("some/folder_x/hopper_medium-v2.hdf5")) == "hopper-medium-v2"
