"""The paper's idea, free of any backbone: plain functions on arrays, one per equation."""

from uniq_rl.conservatism.conformal import (
    Calibration,
    bellman_score,
    conformal_quantile,
    conformal_rank,
    coverage,
)
from uniq_rl.conservatism.controller import (
    EPSILON,
    LEVELS,
    adaptive_expectile,
    calibrated_uncertainty,
    disagreement,
    pessimistic_value,
    spread,
)
from uniq_rl.conservatism.expectile import expectile_loss

__all__ = [
    "EPSILON",
    "LEVELS",
    "Calibration",
    "adaptive_expectile",
    "bellman_score",
    "calibrated_uncertainty",
    "conformal_quantile",
    "conformal_rank",
    "coverage",
    "disagreement",
    "expectile_loss",
    "pessimistic_value",
    "spread",
]
