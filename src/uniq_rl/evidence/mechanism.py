"""What one finished run says about the mechanism: is it active, does sigma mean anything, is the promise kept.

Each function reads one number from the calibration lines or the diagnosis of a run, and is None where the run has none.
"""

from typing import Any

import numpy as np

from uniq_rl.evidence.figures import NEAR, Histogram, mean_within, share_below
from uniq_rl.evidence.results import RunResult
from uniq_rl.evidence.statistics import rank_correlation

NEIGHBOURS = 10
"""A state's surroundings are thin where the tenth nearest of the mapped states is far."""


def last_of(run: RunResult, name: str) -> float | None:
    """The last known value of a calibration quantity: `q_hat`, `coverage` or `u_above_1`."""
    known = [line[name] for line in run.calibration if line.get(name) is not None]
    return float(known[-1]) if known else None


def share_above(run: RunResult) -> float | None:
    """Share of states with u > 1 at the end of training."""
    return last_of(run, "u_above_1")


def promised(run: RunResult) -> float:
    """The coverage that calibration promises: 1 - delta."""
    return 1 - float(run.recipe.config.get("delta", 0.1))


def mean_tau(run: RunResult) -> float | None:
    """Mean of tau(s) over states at the end of training."""
    tau = histogram(run, "tau")
    if tau is not None:
        return mean_within(tau, *_bounds(run, tau))
    taus = mapped(run)["tau"]
    return float(taus.mean()) if len(taus) else None


def share_lowered(run: RunResult) -> float | None:
    """Share of states whose tau(s) lies more than `NEAR` below tau_max: those the mechanism acts on."""
    tau = histogram(run, "tau")
    if tau is not None:
        low, high = _bounds(run, tau)
        return float(share_below(tau, np.asarray([high - NEAR]))[0]) if high > low else 0.0
    taus = mapped(run)["tau"]
    if not len(taus):
        return None
    highest = float(run.recipe.config.get("tau_max", taus.max()))
    return float((taus < highest - NEAR).mean())


def _bounds(run: RunResult, tau: Histogram) -> tuple[float, float]:
    """tau_min and tau_max, or the ends of the histogram where the recipe does not say."""
    config = run.recipe.config
    return float(config.get("tau_min", tau.edges[0])), float(config.get("tau_max", tau.edges[-1]))


def histogram(run: RunResult, name: str) -> Histogram | None:
    stored = (run.diagnosis.get("distributions") or {}).get(name) or {}
    counts = np.asarray(stored.get("counts") or [], np.float64)
    if not counts.sum():
        return None
    return Histogram(np.asarray(stored["edges"], np.float64), counts)


def error_curve(run: RunResult) -> dict[str, np.ndarray]:
    """Mean sigma and mean error of ten groups of states, in the order of sigma; empty where unknown."""
    return _columns(run.diagnosis.get("error"), ("sigma", "error"))


def error_correlation(run: RunResult) -> float | None:
    """Rank correlation of sigma with the true error on unseen episodes."""
    found = (run.diagnosis.get("error") or {}).get("rank_correlation")
    return None if found is None else float(found)


def mapped(run: RunResult) -> dict[str, np.ndarray]:
    """Some states on a plane, `x` and `y`, and their `tau` and `sigma`; empty where unknown."""
    return _columns(run.diagnosis.get("map"), ("x", "y", "tau", "sigma"))


def _columns(stored: dict[str, Any] | None, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Columns of numbers without the rows in which one is missing."""
    columns = [np.asarray((stored or {}).get(name) or [], np.float64) for name in names]
    if len({len(column) for column in columns}) != 1:
        columns = [np.empty(0) for _ in names]
    finite = np.isfinite(columns).all(axis=0)
    return {name: column[finite] for name, column in zip(names, columns, strict=True)}


def thinness_correlation(run: RunResult) -> float | None:
    """Rank correlation of sigma with the distance to the tenth nearest state, on the plane of the map."""
    states = mapped(run)
    place = np.stack([states["x"], states["y"]], axis=1)
    if len(place) <= NEIGHBOURS:
        return None
    spread = place.std(axis=0)
    place = place / np.where(spread > 0, spread, 1.0)
    distances = np.linalg.norm(place[:, None] - place[None], axis=-1)
    return rank_correlation(states["sigma"], np.sort(distances, axis=1)[:, NEIGHBOURS])
