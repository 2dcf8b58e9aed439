"""Masses and contacts as D4RL had them.

D4RL was recorded in a MuJoCo that weighed a capsule as a solid cylinder, half a radius longer at each end. Today's
weighs capsules exactly, so the same XML is another robot; D4RL's own transitions replay to 1e-7 only by the old rules.
"""

import mujoco
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

_DENSITY = 1000.0
_TOTAL_MASS = {"halfcheetah": 14.0}  # in kg; the other tasks keep what their geometry weighs


def apply(model: mujoco.MjModel, task: str) -> None:
    """Turn a Gymnasium locomotion model, in place, into the one D4RL's time made of the same XML."""
    for body in range(1, model.nbody):
        _reweigh(model, body)
    # The compiler's shortcuts hold for its own inertial frames only.
    model.body_sameframe[:] = 0
    model.body_simple[:] = 0
    # Hopper's contacts replay with the margin of one geom, as if the larger of two counted; MuJoCo 4 adds the two up.
    # With none on the floor's side both rules agree. Body on body they do not: no such contact in 10k upright states.
    model.geom_margin[model.geom_bodyid == 0] = 0.0
    rescale(model, task)


def rescale(model: mujoco.MjModel, task: str) -> None:
    """Scale to the total mass a task prescribes, if it does, and renew all constants that follow from the masses."""
    if task in _TOTAL_MASS:
        mujoco.mj_setTotalmass(model, _TOTAL_MASS[task])
    data = mujoco.MjData(model)
    mujoco.mj_setConst(model, data)  # leaves the initial pose in `data`
    # The solver's tolerance is relative to the mean inertia, which `mj_setConst` leaves as compiled.
    model.stat.meaninertia = np.mean([_inertia(model, data, dof) for dof in range(model.nv)])


def cylinder(radius: float, length: float) -> tuple[float, Array]:
    """Mass and principal moments (axis last) of a capsule, weighed as a cylinder one radius longer than its shaft."""
    solid = length + radius
    mass = _DENSITY * np.pi * radius**2 * solid
    across = mass * (3 * radius**2 + solid**2) / 12
    return mass, np.array([across, across, mass * radius**2 / 2])


def _reweigh(model: mujoco.MjModel, body: int) -> None:
    start = model.body_geomadr[body]
    geoms = range(start, start + model.body_geomnum[body])
    assert all(model.geom_type[geom] == mujoco.mjtGeom.mjGEOM_CAPSULE for geom in geoms)

    weighed = [cylinder(model.geom_size[geom, 0], 2 * model.geom_size[geom, 1]) for geom in geoms]
    masses = np.array([mass for mass, _ in weighed])
    centre = masses @ model.geom_pos[geoms] / masses.sum()
    tensor = np.zeros((3, 3))
    for geom, (mass, moments) in zip(geoms, weighed, strict=True):
        axes = _matrix(model.geom_quat[geom])
        arm = model.geom_pos[geom] - centre
        tensor += axes @ np.diag(moments) @ axes.T + mass * (arm @ arm * np.eye(3) - np.outer(arm, arm))

    moments, axes = np.linalg.eigh(tensor)
    axes[:, 2] *= np.linalg.det(axes)  # a rotation, not a reflection
    model.body_mass[body] = masses.sum()
    model.body_ipos[body] = centre
    model.body_inertia[body] = moments
    model.body_iquat[body] = _quaternion(axes)


def _inertia(model: mujoco.MjModel, data: mujoco.MjData, dof: int) -> float:
    """One diagonal element of the inertia matrix."""
    unit, column = np.eye(model.nv)[dof], np.empty(model.nv)
    mujoco.mj_mulM(model, data, column, unit)
    return float(column[dof])


def _matrix(quaternion: Array) -> Array:
    flat = np.empty(9)
    mujoco.mju_quat2Mat(flat, quaternion)
    return flat.reshape(3, 3)


def _quaternion(matrix: Array) -> Array:
    quaternion = np.empty(4)
    mujoco.mju_mat2Quat(quaternion, matrix.ravel())
    return quaternion
