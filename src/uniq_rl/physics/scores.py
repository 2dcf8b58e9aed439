"""D4RL's normalised score: 0 is a random policy, 100 an expert, by the raw returns D4RL published for each task."""

from typing import overload

import numpy as np
import numpy.typing as npt

from uniq_rl.errors import UniqError

REFERENCE: dict[str, tuple[float, float]] = {
    "hopper": (-20.272305, 3234.3),
    "halfcheetah": (-280.178953, 12135.0),
    "walker2d": (1.629008, 4592.3),
    "ant": (-325.6, 3879.7),
    "antmaze": (0.0, 1.0),
    "kitchen": (0.0, 4.0),
    "pen": (96.262799, 3076.8331017826877),
    "hammer": (-274.856578, 12794.134825156867),
    "door": (-56.512833, 2880.5693087298737),
    "relocate": (-6.425911, 4233.877797728884),
    "maze2d-umaze": (23.85, 161.86),
    "maze2d-medium": (13.13, 277.39),
    "maze2d-large": (6.7, 273.99),
}
"""Raw return of the random and of the expert policy, by task."""


@overload
def score(task: str, returns: float) -> float: ...
@overload
def score(task: str, returns: npt.ArrayLike) -> float | npt.NDArray[np.float64]: ...
def score(task: str, returns: npt.ArrayLike) -> float | npt.NDArray[np.float64]:
    """D4RL normalised score x100 of raw undiscounted returns; a scalar gives a float, an array an array."""
    if task not in REFERENCE:
        raise UniqError(f"No reference score for task {task!r}; the known tasks are {', '.join(REFERENCE)}.")
    low, high = REFERENCE[task]
    scores = 100.0 * (np.asarray(returns, dtype=np.float64) - low) / (high - low)
    return float(scores) if scores.ndim == 0 else scores
