"""How well a physics reproduces logged transitions: each stored state is set, its action applied for one step."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from uniq_rl.errors import UniqError
from uniq_rl.physics.locomotion import Lockstep

Array = npt.NDArray[np.float64]

_CLIP = 10.0  # Hopper's and Walker2d's velocities were stored after the observation's clip; what lay beyond is lost
_BATCH = 1024


@dataclass(frozen=True)
class ReplayErrors:
    """Largest absolute error over the coordinates of position and velocity, one number per replayed row."""

    qpos: Array
    qvel: Array

    @property
    def rows(self) -> int:
        return len(self.qpos)

    @property
    def median_qpos(self) -> float:
        return float(np.median(self.qpos))

    @property
    def p99_qpos(self) -> float:
        return float(np.percentile(self.qpos, 99))

    @property
    def median_qvel(self) -> float:
        return float(np.median(self.qvel))

    @property
    def p99_qvel(self) -> float:
        return float(np.percentile(self.qvel, 99))


def one_step_errors(
    task: str,
    qpos: npt.ArrayLike,
    qvel: npt.ArrayLike,
    action: npt.ArrayLike,
    episode_end: npt.ArrayLike,
    physics: str = "d4rl",
) -> ReplayErrors:
    """Replay logged rows (state before the action, action) one step each and compare with the row that follows.

    Left out: rows that end an episode, and rows where a velocity, before or after, sits at the +-10 clip.
    """
    qpos, qvel, action = (np.asarray(column, dtype=np.float64) for column in (qpos, qvel, action))
    rows = replayable(qvel, np.asarray(episode_end, dtype=np.bool_))
    if not len(rows):
        raise UniqError(f"None of the {len(qvel)} rows can be replayed; give consecutive rows of at least one episode.")
    after_qpos, after_qvel = _step_once(task, qpos[rows], qvel[rows], action[rows], physics)
    return ReplayErrors(
        qpos=np.abs(after_qpos - qpos[rows + 1]).max(axis=1),
        qvel=np.abs(after_qvel - qvel[rows + 1]).max(axis=1),
    )


def replayable(qvel: Array, episode_end: npt.NDArray[np.bool_]) -> npt.NDArray[np.intp]:
    """Indices of the rows whose successor is stored next and whose velocities are whole."""
    # Equal, not beyond: HalfCheetah's velocities are stored unclipped.
    whole: npt.NDArray[np.bool_] = (np.abs(qvel) != _CLIP).all(axis=1)
    return np.flatnonzero(~episode_end[:-1] & whole[:-1] & whole[1:])


def _step_once(task: str, qpos: Array, qvel: Array, action: Array, physics: str) -> tuple[Array, Array]:
    """The state one step after each given one."""
    batch = min(_BATCH, len(qpos))
    after_qpos, after_qvel = np.empty_like(qpos), np.empty_like(qvel)
    with Lockstep(task, batch, physics) as env:
        for start in range(0, len(qpos), batch):
            # The last batch is drawn back to full size; a few rows are stepped twice, to the same result.
            rows = slice(min(start, len(qpos) - batch), min(start, len(qpos) - batch) + batch)
            env.set_state(qpos[rows], qvel[rows])
            env.step(action[rows])
            after_qpos[rows], after_qvel[rows] = env.get_state()
    return after_qpos, after_qvel
