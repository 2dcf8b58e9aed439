"""What a finished policy knows about its own errors, worked out once and kept in a few small arrays.

Does disagreement predict error? On episodes that neither trained nor calibrated, the error is `|V(s) - G|` with `G`
the discounted return that the log really earned from there on, in the method's own reward scale. `V` is a value of the
learned policy and `G` one of the behaviour's, so part of the error is improvement; ranks say whether `sigma` is larger
where the error is.

An episode that terminated has its whole return in the log. Where the clock or the end of the data cut it, the tail is
unknown: `V` of the state after the last one stands in for it, and rows where that guess would weigh more than
`TAIL` are left out.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from uniq_rl.data import Dataset
from uniq_rl.data.preprocessing import Fitted
from uniq_rl.data.split import Folds
from uniq_rl.evidence.dataset_figure import FITTED_ROWS, _Components
from uniq_rl.evidence.statistics import rank_correlation
from uniq_rl.policy import Policy

TAIL = 0.05
"""Largest weight that a guess about what came after the log may have in a return."""
BINS = 10
MIN_ROWS = 50
"""With fewer rows a rank correlation says nothing."""
STATES = 400
SLICE = 4096
DIGITS = 4

Array = np.ndarray


def diagnose(policy: Policy, dataset: Dataset, folds: Folds, fitted: Fitted) -> dict[str, Any]:
    """`error` and `map` of a policy with uncertainty; nothing for one without."""
    if not policy.algorithm.knows_uncertainty:
        return {}
    return {
        "error": predicted_error(policy, dataset, folds.heldout, fitted),
        "map": state_map(policy, dataset, folds),
    }


def predicted_error(policy: Policy, dataset: Dataset, rows: Array, fitted: Fitted) -> dict[str, Any]:
    """How `sigma` relates to the true error on whole episodes: `rows` are those of the held-out fold.

    `rank_correlation` is Spearman's, None where it has no meaning (too few rows, or all sigma equal). `sigma` and
    `error` are means over ten groups of rows, of equal size, in the order of sigma.
    """
    result: dict[str, Any] = {"rows": 0, "left_out": len(rows), "rank_correlation": None, "sigma": [], "error": []}
    if not len(rows):
        return result
    gamma = float(policy.algorithm.gamma)  # type: ignore[attr-defined]
    reward = dataset.reward[rows].astype(np.float64) * fitted.reward_scale + fitted.reward_shift
    ends = np.flatnonzero(dataset.episode_end[rows])
    tails = values(policy, dataset.next_obs[rows[ends]]).astype(np.float64) * dataset.mask[rows[ends]]
    returns, weight = returns_to_go(reward, ends, tails, gamma)
    terminated = np.repeat(dataset.mask[rows[ends]] == 0, np.diff(ends, prepend=-1))
    known = terminated | (weight <= TAIL)
    obs = dataset.obs[rows[known]]
    sigma = in_slices(lambda part: np.asarray(policy.uncertainty(part).sigma), obs).astype(np.float64)
    error = np.abs(values(policy, obs) - returns[known])
    result |= {"rows": int(known.sum()), "left_out": int((~known).sum())}
    if len(sigma) >= MIN_ROWS and np.isfinite(sigma).all() and np.isfinite(error).all():
        result["rank_correlation"] = rounded(rank_correlation(sigma, error))
        groups = np.array_split(np.argsort(sigma, kind="stable"), BINS)
        result["sigma"] = [rounded(sigma[group].mean()) for group in groups]
        result["error"] = [rounded(error[group].mean()) for group in groups]
    return result


def returns_to_go(reward: Array, ends: Array, tails: Array, gamma: float) -> tuple[Array, Array]:
    """Discounted return from each row on, and the weight that its episode's tail has in it.

    Episodes lie one after the other; `ends` are their last rows, `tails` what comes after those.
    """
    returns, weight = np.empty(len(reward)), np.empty(len(reward))
    start = 0
    for end, tail in zip(ends, tails, strict=True):
        total, share = float(tail), 1.0
        for row in range(end, start - 1, -1):
            total, share = reward[row] + gamma * total, gamma * share
            returns[row], weight[row] = total, share
        start = end + 1
    return returns, weight


def state_map(policy: Policy, dataset: Dataset, folds: Folds) -> dict[str, Any]:
    """`tau` and `sigma` of some states on the plane of two principal components of the training observations.

    The states are held-out ones, or training ones where nothing was held out: `states` says which.
    """
    rows, fold = (folds.heldout, "held-out") if len(folds.heldout) else (folds.train, "training")
    rows = rows[np.arange(min(STATES, len(rows))) * len(rows) // min(STATES, len(rows))]
    seen = folds.train[:: -(-len(folds.train) // FITTED_ROWS)]
    components = _Components.of(dataset.obs[seen])
    place = components.project(dataset.obs[rows])
    uncertainty = policy.uncertainty(dataset.obs[rows])
    columns = {
        "x": place[:, 0],
        "y": place[:, 1] if place.shape[1] > 1 else np.zeros(len(rows)),
        "tau": uncertainty.tau,
        "sigma": uncertainty.sigma,
    }
    short = {name: [rounded(value) for value in column] for name, column in columns.items()}
    return {"states": fold, "axes": list(components.labels), **short}


def values(policy: Policy, obs: Array) -> Array:
    return in_slices(lambda part: np.asarray(_value(policy, part)), obs)


def in_slices(function: Callable[[Array], Array], obs: Array) -> Array:
    """`function` of all rows, a slice at a time and always of one shape: compiled once, in little memory."""
    parts = []
    for start in range(0, len(obs), SLICE):
        part = obs[start : start + SLICE]
        padded = np.concatenate([part, np.zeros((SLICE - len(part), obs.shape[1]), obs.dtype)])
        parts.append(function(padded)[: len(part)])
    return np.concatenate(parts) if parts else np.zeros(0)


def rounded(value: Any) -> float | None:
    """Few digits, as a file that is kept for good should have them; None for what JSON cannot hold."""
    return float(f"{float(value):.{DIGITS}g}") if value is not None and np.isfinite(value) else None


# Like those of `Policy`: the hyper-parameters are traced, not baked in.
_value = jax.jit(lambda policy, batch: policy.algorithm.value(policy.state, policy.normalized(batch)))
