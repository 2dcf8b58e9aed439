"""Runs of equal structure, stacked along a leading axis and trained as one program.

The data lie on the device once; a run knows which rows are its own by offset and size. Random numbers follow from a
run's seed and step alone, so a run does not depend on its neighbours, on where chunks begin, or on interruptions.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from uniq_rl.algorithms import Algorithm, Batch, Spec
from uniq_rl.algorithms.base import State
from uniq_rl.conservatism import conformal_quantile, conformal_rank, coverage
from uniq_rl.data import Dataset
from uniq_rl.data.preprocessing import Fitted
from uniq_rl.data.split import Folds
from uniq_rl.errors import UniqError
from uniq_rl.policy import Policy

SLICE = 4096
"""Rows scored at a time in calibration: its memory does not grow with the fold."""

SAMPLE = 4096
"""States whose uncertainty is summarised in the records."""

BINS = 40


@dataclass(frozen=True)
class Run:
    """One training: a method, its data, a seed."""

    algorithm: Algorithm
    dataset: Dataset
    seed: int
    label: str


class Fold(NamedTuple):
    """A range of rows of the packed data."""

    offset: Any
    size: Any


class Rows(NamedTuple):
    """The rows a run may use, and for what."""

    train: Fold
    calibration: Fold
    heldout: Fold


class Progress(NamedTuple):
    """All that training changes; with the runs' seeds, all that a checkpoint must hold."""

    state: State
    frozen: Array
    """Runs whose numbers stopped being finite; they no longer change."""
    metrics: Array
    """Sums `[runs, metrics]` since the last record."""
    updates: Array
    """How many updates `metrics` sums over."""
    step: Array


class Cohort:
    """The compiled programs of a set of runs, and what stays constant while they train."""

    def __init__(self, runs: Sequence[Run]) -> None:
        if not runs:
            raise UniqError("There is nothing to train: no seed was given.")
        labels = [run.label for run in runs]
        if len(set(labels)) < len(labels):
            raise UniqError(f"Two runs share a label ({', '.join(labels)}); give every seed once.")
        self.runs = tuple(runs)
        self.spec = self._shared_spec()
        self.algorithm = self._stacked_algorithm()
        self.fitted, self.data, self.rows, self.folds = self._pack()
        self.keys = jnp.stack([jax.random.key(run.seed) for run in runs])
        self.interval = runs[0].algorithm.calibration_interval
        self.ranks = self._ranks()
        self.metric_names = self._metric_names()

    def _shared_spec(self) -> Spec:
        specs = {Spec(run.dataset.obs_dim, run.dataset.action_dim) for run in self.runs}
        if len(specs) > 1:
            raise UniqError(
                f"Runs of one cohort need observations and actions of one width, but there are {sorted(specs)}."
            )
        return specs.pop()

    def _stacked_algorithm(self) -> Algorithm:
        algorithms = [run.algorithm for run in self.runs]
        if len({jax.tree.structure(algorithm) for algorithm in algorithms}) > 1:
            raise UniqError(
                "Runs of one cohort may differ in numbers only, but these differ in what shapes the program."
            )
        return jax.tree.map(lambda *leaves: jnp.asarray(leaves, jnp.float32), *algorithms)

    def _pack(self) -> tuple[list[Fitted], Array, Rows, list[Folds]]:
        """All data sets end to end, each as train | calibration | held-out; runs with the same data share the rows."""
        packed: dict[Any, tuple[Fitted, Rows, Folds]] = {}
        parts: list[np.ndarray] = []
        end = 0
        chosen = []
        for run in self.runs:
            identity = (id(run.dataset), run.algorithm.preprocessing, run.algorithm.folds)
            if identity not in packed:
                folds = run.algorithm.folds.folds(run.dataset)
                train = run.algorithm.preprocessing.keep(run.dataset, folds.train)
                fitted = run.algorithm.preprocessing.fit(run.dataset, train)
                sizes = [len(train), len(folds.calibration), len(folds.heldout)]
                offsets = end + np.cumsum([0, *sizes[:-1]])
                order = np.concatenate([train, folds.calibration, folds.heldout])
                parts.append(pack(fitted, run.dataset)[order])
                end += len(order)
                ranges = Rows(*(Fold(offset, size) for offset, size in zip(offsets, sizes, strict=True)))
                packed[identity] = fitted, ranges, folds
            chosen.append(packed[identity])
        fitted_all, rows, folds_all = zip(*chosen, strict=True)
        stacked = jax.tree.map(lambda *values: jnp.asarray(values, jnp.int32), *rows)
        return list(fitted_all), jnp.asarray(np.concatenate(parts)), stacked, list(folds_all)

    def _ranks(self) -> Array | None:
        """Ranks of the conformal quantile, fixed and checked on the host before training."""
        if self.interval is None:
            return None
        sizes = np.asarray(self.rows.calibration.size)
        ranks = [conformal_rank(int(n), run.algorithm.delta) for n, run in zip(sizes, self.runs, strict=True)]  # type: ignore[attr-defined]
        return jnp.asarray(ranks, jnp.int32)

    def _metric_names(self) -> list[str]:
        batch = Batch(
            *(
                jnp.zeros(shape)
                for shape in ((1, self.spec.obs_dim), (1, self.spec.action_dim), 1, (1, self.spec.obs_dim), 1)
            )
        )
        algorithm = self.runs[0].algorithm
        update = lambda key: algorithm.update(algorithm.init(key, self.spec), batch, key)[1]  # noqa: E731
        return sorted(jax.eval_shape(update, jax.random.key(0)))

    def start(self) -> Progress:
        """The state before the first update, calibrated."""
        count = len(self.runs)
        progress = Progress(
            state=_init(self.algorithm, self.keys, self.spec),
            frozen=jnp.zeros(count, bool),
            metrics=jnp.zeros((count, len(self.metric_names))),
            updates=jnp.zeros((), jnp.int32),
            step=jnp.zeros((), jnp.int32),
        )
        return self.calibrate(progress)

    def advance(self, progress: Progress, length: int) -> Progress:
        """`length` updates in one compiled call; `progress` is consumed."""
        return _advance(self.algorithm, progress, self.data, self.rows.train, self.keys, self.spec, length)

    def calibrate(self, progress: Progress) -> Progress:
        if self.ranks is None:
            return progress
        slots = int(np.max(np.asarray(self.rows.calibration.size)))
        return _calibrate(self.algorithm, progress, self.data, self.rows.calibration, self.ranks, self.spec, slots)

    def diagnose(self, progress: Progress) -> list[dict[str, Any]]:
        """Per run, how calibration stands: `q_hat`, coverage on unseen episodes, what the controller makes of it."""
        if self.interval is None:
            return []
        slots = int(np.max(np.asarray(self.rows.heldout.size)))
        covered = (
            np.asarray(_heldout_coverage(self.algorithm, progress, self.data, self.rows.heldout, self.spec, slots))
            if slots
            else np.full(len(self.runs), np.nan)
        )
        uncertainty = jax.device_get(
            _sampled_uncertainty(self.algorithm, progress, self.data, self.rows.train, self.spec)
        )
        q_hat = np.asarray(progress.state.q_hat)
        return [
            {
                "q_hat": float(q_hat[i]),
                "coverage": None if np.isnan(covered[i]) else float(covered[i]),
                "u_above_1": float(np.mean(uncertainty.u[i] > 1)),
                "distributions": {
                    name: distribution(getattr(uncertainty, name)[i]) for name in ("sigma", "u", "tau", "delta")
                },
            }
            for i in range(len(self.runs))
        ]

    def policies(self, progress: Progress) -> Policy:
        """The policies of all runs, stacked, in host memory."""
        width = self.spec.action_dim
        low = [np.full(width, -1, np.float32) if b is None else b for b in (r.dataset.action_low for r in self.runs)]
        high = [np.full(width, 1, np.float32) if b is None else b for b in (r.dataset.action_high for r in self.runs)]
        return Policy(
            algorithm=jax.device_get(self.algorithm),
            state=jax.device_get(jax.vmap(lambda a, s: a.deployed(s))(self.algorithm, progress.state)),
            obs_mean=np.stack([fitted.obs_mean for fitted in self.fitted]),
            obs_std=np.stack([fitted.obs_std for fitted in self.fitted]),
            action_low=np.stack(low),
            action_high=np.stack(high),
            spec=self.spec,
        )

    def policy(self, stacked: Policy, index: int) -> Policy:
        """One run's policy out of the stack, with that run's own numbers as hyper-parameters."""
        single: Policy = jax.tree.map(lambda leaf: jnp.asarray(leaf[index]), stacked)
        return dataclasses.replace(single, algorithm=self.runs[index].algorithm)


def pack(fitted: Fitted, dataset: Dataset) -> np.ndarray:
    """One row per transition, so that a batch is one gather: obs, action, next_obs, reward, mask."""
    columns = fitted.apply(dataset)
    return np.concatenate(
        [columns["obs"], columns["action"], columns["next_obs"], columns["reward"][:, None], columns["mask"][:, None]],
        axis=1,
    )


def unpack(rows: Array, spec: Spec) -> Batch:
    obs, action, next_obs, reward, mask = jnp.split(
        rows, np.cumsum([spec.obs_dim, spec.action_dim, spec.obs_dim, 1]), axis=-1
    )
    return Batch(obs, action, reward[..., 0], next_obs, mask[..., 0])


def distribution(values: np.ndarray) -> dict[str, Any]:
    """A histogram small enough to keep."""
    finite = values[np.isfinite(values)]
    if finite.size == 0:
        return {"edges": [], "counts": []}
    counts, edges = np.histogram(finite.astype(np.float64), bins=BINS)
    return {"edges": [float(f"{edge:.6g}") for edge in edges], "counts": counts.tolist()}


@partial(jax.jit, static_argnames="spec")
def _init(algorithm: Algorithm, keys: Array, spec: Spec) -> State:
    return jax.vmap(lambda a, key: a.init(jax.random.fold_in(key, 0), spec))(algorithm, keys)


@partial(jax.jit, static_argnames=("spec", "length"), donate_argnames="progress")
def _advance(
    algorithm: Algorithm, progress: Progress, data: Array, train: Fold, keys: Array, spec: Spec, length: int
) -> Progress:
    def update(
        algorithm: Algorithm, state: State, frozen: Array, fold: Fold, key: Array, step: Array
    ) -> tuple[State, Array]:
        index_key, update_key = jax.random.split(jax.random.fold_in(key, 1 + step))
        index = fold.offset + jax.random.randint(index_key, (algorithm.batch_size,), 0, fold.size)
        new, metrics = algorithm.update(state, unpack(data[index], spec), update_key)
        new = jax.tree.map(lambda before, after: jnp.where(frozen, before, after), state, new)
        return new, jnp.stack([metrics[name] for name in sorted(metrics)])

    def body(progress: Progress, _: None) -> tuple[Progress, None]:
        state, metrics = jax.vmap(update, in_axes=(0, 0, 0, 0, 0, None))(
            algorithm, progress.state, progress.frozen, train, keys, progress.step
        )
        return Progress(
            state, progress.frozen, progress.metrics + metrics, progress.updates + 1, progress.step + 1
        ), None

    progress, _ = jax.lax.scan(body, progress, length=length)
    return progress._replace(frozen=progress.frozen | ~jax.vmap(_finite)(progress.state))


def _finite(state: State) -> Array:
    leaves = [leaf for leaf in jax.tree.leaves(state) if jnp.issubdtype(leaf.dtype, jnp.floating)]
    return jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in leaves]).all()


def _scores(algorithm: Algorithm, state: State, data: Array, fold: Fold, spec: Spec, slots: int) -> Array:
    """Nonconformity of a fold in slices; infinity in the slots beyond its size."""

    def scored(start: Array) -> Array:
        position = start + jnp.arange(SLICE)
        rows = data[fold.offset + jnp.minimum(position, fold.size - 1)]
        return jnp.where(position < fold.size, algorithm.nonconformity(state, unpack(rows, spec)), jnp.inf)

    return jax.lax.map(scored, jnp.arange(0, slots, SLICE)).reshape(-1)


@partial(jax.jit, static_argnames=("spec", "slots"), donate_argnames="progress")
def _calibrate(
    algorithm: Algorithm, progress: Progress, data: Array, fold: Fold, ranks: Array, spec: Spec, slots: int
) -> Progress:
    def one(algorithm: Algorithm, state: State, frozen: Array, fold: Fold, rank: Array) -> State:
        q_hat = conformal_quantile(_scores(algorithm, state, data, fold, spec, slots), rank)
        return algorithm.recalibrated(state, jnp.where(frozen, state.q_hat, q_hat))

    state = jax.vmap(one)(algorithm, progress.state, progress.frozen, fold, ranks)
    return progress._replace(state=state)


@partial(jax.jit, static_argnames=("spec", "slots"))
def _heldout_coverage(
    algorithm: Algorithm, progress: Progress, data: Array, fold: Fold, spec: Spec, slots: int
) -> Array:
    def one(algorithm: Algorithm, state: State, fold: Fold) -> Array:
        scores = _scores(algorithm, state, data, fold, spec, slots)
        covered = coverage(scores, state.q_hat) * scores.shape[0] / fold.size
        return jnp.where(fold.size > 0, covered, jnp.nan)

    return jax.vmap(one)(algorithm, progress.state, fold)


@partial(jax.jit, static_argnames="spec")
def _sampled_uncertainty(algorithm: Algorithm, progress: Progress, data: Array, fold: Fold, spec: Spec) -> Any:
    """Uncertainty at up to `SAMPLE` training states, evenly spaced."""

    def one(algorithm: Algorithm, state: State, fold: Fold) -> Any:
        index = fold.offset + (jnp.arange(SAMPLE) % fold.size) * jnp.maximum(fold.size // SAMPLE, 1)
        return algorithm.uncertainty(state, unpack(data[index], spec).obs)

    return jax.vmap(one)(algorithm, progress.state, fold)
