"""D4RL's masses, by hand, and D4RL's own transitions replayed."""

from pathlib import Path

import h5py
import numpy as np
import pytest

from uniq_rl.errors import UniqError
from uniq_rl.physics.d4rl_era import cylinder
from uniq_rl.physics.locomotion import TASKS, Lockstep, load_model
from uniq_rl.physics.replay import ReplayErrors, one_step_errors, replayable

SLICES = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "d4rl"


def test_cylinder_by_hand() -> None:
    mass, moments = cylinder(radius=0.1, length=0.3)
    assert mass == pytest.approx(1000 * np.pi * 0.01 * 0.4)
    np.testing.assert_allclose(moments, mass * np.array([0.19 / 12, 0.19 / 12, 0.005]))


def test_hopper_torso_by_hand() -> None:
    model = load_model("hopper", "d4rl")
    torso = model.body("torso").id
    mass = 1000 * np.pi * 0.05**2 * 0.45
    assert model.body_mass[torso] == pytest.approx(mass)
    across = mass * (3 * 0.05**2 + 0.45**2) / 12
    np.testing.assert_allclose(np.sort(model.body_inertia[torso]), np.sort([across, across, mass * 0.05**2 / 2]))


def test_foot_lies_along_x() -> None:
    """The long axis of Hopper's foot has the small moment, whichever way the principal axes are named."""
    model = load_model("hopper", "d4rl")
    foot = model.body("foot").id
    np.testing.assert_allclose(model.body_ipos[foot], [-0.065, 0, 0.1], atol=1e-12)
    w, x, y, z = model.body_iquat[foot]
    axes = np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )
    inertia = axes @ np.diag(model.body_inertia[foot]) @ axes.T
    mass, moments = cylinder(0.06, 0.39)
    assert model.body_mass[foot] == pytest.approx(mass)
    np.testing.assert_allclose(inertia, np.diag(moments[[2, 0, 1]]), atol=1e-12)


@pytest.mark.parametrize("physics", ["d4rl", "gymnasium-v4", "gymnasium-v5"])
def test_halfcheetah_weighs_14(physics: str) -> None:
    assert load_model("halfcheetah", physics).body_mass.sum() == pytest.approx(14.0)


def read_slice(task: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    path = SLICES / f"{task}_medium-v2.hdf5"
    if not path.exists():
        pytest.skip("no D4RL slices here")
    with h5py.File(path) as file:
        end = file["terminals"][:] | file["timeouts"][:]
        return file["infos/qpos"][:], file["infos/qvel"][:], file["actions"][:], end


@pytest.mark.parametrize("task", TASKS)
def test_d4rl_replays_under_its_own_physics_only(task: str) -> None:
    logged = read_slice(task)
    ours = one_step_errors(task, *logged, physics="d4rl")
    today = one_step_errors(task, *logged, physics="gymnasium")
    assert ours.rows == today.rows > 700
    assert ours.median_qpos < 1e-7
    assert ours.p99_qpos < 1e-6
    assert ours.median_qvel < 1e-6
    assert ours.p99_qvel < 1e-4
    assert today.median_qpos > 100 * ours.median_qpos


def test_replayable_leaves_out_ends_and_clipped_rows() -> None:
    qvel = np.zeros((6, 2))
    qvel[3, 1] = -10.0
    end = np.array([False, True, False, False, False, False])
    # 1 ends an episode, 2 leads to the clipped row 3, 5 has no successor.
    np.testing.assert_array_equal(replayable(qvel, end), [0, 4])


def test_replay_of_own_simulation_is_exact_and_in_order() -> None:
    """More rows than one batch, the last batch partly filled."""
    rng = np.random.default_rng(0)
    steps = 1500
    action = rng.uniform(-1, 1, (steps, 6))
    qpos, qvel = np.empty((steps, 9)), np.empty((steps, 9))
    with Lockstep("halfcheetah", 1) as env:
        env.reset([0])
        for step in range(steps):
            (qpos[step],), (qvel[step],) = env.get_state()
            env.step(action[step : step + 1])
    errors = one_step_errors("halfcheetah", qpos, qvel, action, np.zeros(steps, dtype=bool))
    assert errors.rows == steps - 1
    assert errors.qpos.max() == errors.qvel.max() == 0.0


def test_statistics() -> None:
    errors = ReplayErrors(qpos=np.arange(101.0), qvel=np.arange(101.0) * 2)
    assert (errors.median_qpos, errors.p99_qpos, errors.median_qvel, errors.p99_qvel) == (50.0, 99.0, 100.0, 198.0)


def test_nothing_to_replay() -> None:
    with pytest.raises(UniqError, match="None of the 3 rows"):
        one_step_errors("hopper", np.zeros((3, 6)), np.zeros((3, 6)), np.zeros((3, 3)), np.ones(3))
