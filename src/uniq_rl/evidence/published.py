"""Scores that others printed, each column with its source, data and physics; never mixed with measured ones."""

from dataclasses import dataclass

from uniq_rl.evidence.variants import SETS

D4RL_V2 = "D4RL v2"
D4RL_TASKS = "mujoco-py"


@dataclass(frozen=True)
class Column:
    """One method as one project printed it: D4RL normalised scores, x100."""

    method: str
    project: str
    """Who printed it."""
    reading: str
    """Which evaluation the score is of, and over how many seeds."""
    data: str
    physics: str
    scores: dict[str, float]
    average: float
    """As printed; it may differ from the mean of the column by rounding."""

    digits: int = 1
    """Decimals it is printed with."""

    @property
    def title(self) -> str:
        return f"{self.method} (published: {self.project})"

    @property
    def source(self) -> str:
        return f"published by {self.project}: {self.reading}; data: {self.data}; physics: {self.physics}"


def _column(
    method: str, project: str, reading: str, physics: str, scores: tuple[float, ...], average: float, digits: int = 1
) -> Column:
    return Column(method, project, reading, D4RL_V2, physics, dict(zip(SETS, scores, strict=True)), average, digits)


def _corl(method: str, scores: tuple[float, ...], average: float) -> Column:
    return _column(method, "CORL", "last evaluation, 4 seeds, 10 episodes", D4RL_TASKS, scores, average, digits=2)


# In the order of SETS: medium, medium-replay, medium-expert of halfcheetah, hopper, walker2d.
CORL = (
    _corl("BC", (42.40, 35.66, 55.95, 53.51, 29.81, 52.30, 63.23, 21.80, 98.96), 50.40),
    _corl("TD3+BC", (48.10, 44.84, 90.78, 60.37, 64.42, 101.17, 82.71, 85.62, 110.03), 76.45),
    _corl("CQL", (47.04, 45.04, 95.63, 59.08, 95.11, 99.26, 80.75, 73.09, 109.56), 78.28),
    _corl("IQL", (48.31, 44.46, 94.74, 67.53, 97.43, 107.42, 80.91, 82.15, 111.72), 81.63),
    _corl("ReBRAC", (64.04, 51.18, 103.80, 102.29, 94.98, 109.45, 85.82, 84.25, 111.86), 89.74),
    _corl("SAC-N", (68.20, 60.70, 98.96, 40.82, 100.33, 101.31, 87.47, 78.99, 114.93), 83.52),
    _corl("EDAC", (67.70, 62.06, 104.76, 101.70, 99.66, 105.19, 93.36, 87.10, 114.75), 92.92),
    _corl("DT", (42.20, 38.91, 91.55, 65.10, 81.77, 110.44, 67.63, 59.86, 107.11), 73.84),
)
"""CORL's IQL normalises states and is tuned per task on hopper."""
UNTUNED_IQL = _column(
    "IQL untuned",
    "OfflineRL-Kit",
    "expectile 0.7 and beta 3 on every set, official reward normalisation",
    D4RL_TASKS,
    (47.4, 44.2, 88.0, 65.7, 94.8, 106.2, 81.1, 77.3, 108.3),
    79.2,
)
PAPER_UNIQ = _column(
    "UNIQ",
    "the paper",
    "3 seeds, 1M updates; whether last or best is not said",
    "not said",
    (48.9, 46.0, 94.8, 75.6, 101.6, 111.8, 85.5, 89.4, 112.9),
    85.2,
)
CORL_IQL = CORL[3]
COLUMNS = (PAPER_UNIQ, CORL_IQL, UNTUNED_IQL, *(column for column in CORL if column is not CORL_IQL))
"""In the order of the measured columns: UNIQ and IQL first."""

PAPER_MEMORY = {"iql": 530.0, "uniq": 250.0, "sac_n": 700.0, "rebrac": 1200.0, "edac": 2500.0}
"""Peak device memory in MB, by the name of the method here."""
PAPER_MEMORY_SOURCE = "published by the paper (A100 20 GB MIG): UNIQ measured, the others estimated, says its caption"
