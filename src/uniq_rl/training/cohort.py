"""Runs of equal structure, stacked along a leading axis and trained as one program.

The data lie on the device once; a run knows which rows are its own by offset and size. Random numbers follow from a
run's seed and step alone, so a run does not depend on its neighbours, on where chunks begin, or on interruptions.
"""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial, wraps
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from uniq_rl.algorithms import Algorithm, Batch, Spec, Uncertainty, Windows
from uniq_rl.algorithms.base import Metrics, State
from uniq_rl.conservatism import conformal_quantile, conformal_rank, coverage
from uniq_rl.data import Dataset
from uniq_rl.errors import UniqError
from uniq_rl.policy import Policy
from uniq_rl.training.rows import (
    SLICE,
    Fold,
    Packed,
    Resident,
    Rows,
    columns_of,
    consecutive,
    pack,
    stored,
    unpack,
    unpack_for,
)

COMPILER = {
    "gpu": {
        "xla_gpu_command_buffer_scheduling_mode": "CONCURRENT",
        "xla_gpu_enable_command_buffer": "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN,DYNAMIC_SLICE_FUSION,WHILE",
        "xla_gpu_redzone_padding_bytes": 4096,
    }
}
"""How training is compiled, by backend. An update is some eighty kernels of a few microseconds: as one graph, loop
included, those that do not depend on each other overlap. Without the last, choosing the fastest kernels takes more
memory than training (docs/performance.md)."""

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


class Progress(NamedTuple):
    """All that training changes; with the runs' seeds, all that a checkpoint must hold."""

    state: State
    diverged: Array
    """Runs whose numbers stopped being finite; nothing of theirs counts from then on."""
    metrics: Array
    """Sums `[runs, metrics]` since the last record."""
    updates: Array
    """How many updates `metrics` sums over."""
    step: Array


class Measured(NamedTuple):
    """How calibration stands at one step, as arrays that may still be on their way from the device."""

    q_hat: Array
    heldout: Array | None
    """Nonconformity of the held-out rows, `[runs, slots]`; None without such rows."""
    uncertainty: Uncertainty


class Cohort:
    """The compiled programs of a set of runs, and what stays constant while they train."""

    def __init__(self, runs: Sequence[Run], stream: bool | None = None) -> None:
        if not runs:
            raise UniqError("There is nothing to train: no seed was given.")
        labels = [run.label for run in runs]
        if len(set(labels)) < len(labels):
            raise UniqError(f"Two runs share a label ({', '.join(labels)}); give every seed once.")
        for run in runs:
            if not 0 <= run.seed < 2**32:
                raise UniqError(f"Seed {run.seed} is not between 0 and 2^32 - 1.")
        self.runs = tuple(dataclasses.replace(run, algorithm=run.algorithm.informed(run.dataset)) for run in runs)
        self.spec = self._shared_spec()
        self.algorithm = self._stacked_algorithm()
        packed, self.rows = self._pack()
        self.fitted = [part.fitted for part in packed]
        self.folds = [part.folds for part in packed]
        self.store = stored(list({id(part.matrix): part.matrix for part in packed}.values()), stream)
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

    def _pack(self) -> tuple[list[Packed], Rows]:
        """All data sets end to end; runs with the same data share the rows."""
        packed: dict[Any, tuple[Packed, Rows]] = {}
        end = 0
        for run in self.runs:
            method, identity = run.algorithm, self._data_identity(run)
            if identity not in packed:
                folds = method.folds.folds(run.dataset)
                train = method.preprocessing.keep(run.dataset, folds.train)
                fitted = method.preprocessing.fit(run.dataset, train)
                part = pack(fitted, run.dataset, folds, train, columns_of(method))
                packed[identity] = part, part.ranges(end)
                end += len(part.matrix)
        chosen = [packed[self._data_identity(run)] for run in self.runs]
        ranges = jax.tree.map(lambda *values: jnp.asarray(values, jnp.int32), *(rows for _, rows in chosen))
        return [part for part, _ in chosen], ranges

    @staticmethod
    def _data_identity(run: Run) -> Any:
        return id(run.dataset), run.algorithm.preprocessing, run.algorithm.folds

    def _ranks(self) -> Array | None:
        """Ranks of the conformal quantile, fixed and checked on the host before training."""
        if self.interval is None:
            return None
        sizes = np.asarray(self.rows.calibration.size)
        ranks = [conformal_rank(int(n), run.algorithm.delta) for n, run in zip(sizes, self.runs, strict=True)]  # type: ignore[attr-defined]
        return jnp.asarray(ranks, jnp.int32)

    def _metric_names(self) -> list[str]:
        algorithm, batch = self.runs[0].algorithm, self.example()
        update = lambda key: algorithm.update(algorithm.init(key, self.spec), batch, key)[1]  # noqa: E731
        return sorted(jax.eval_shape(update, jax.random.key(0)))

    def example(self, size: int = 1) -> Batch | Windows:
        """A batch of the shape that updates get: the first row, or window, over and over."""
        positions = consecutive(jnp.zeros(size, jnp.int32), self.algorithm.window_length, len(self.store.data))
        return unpack_for(self.algorithm, self.store.take(np.asarray(positions)), self.spec)

    def start(self) -> Progress:
        """The state before the first update, calibrated."""
        return self.calibrate(self._untrained(_init))

    def template(self) -> Progress:
        """The shapes of all that training changes, without the work."""
        return jax.eval_shape(lambda: self._untrained(_initial))

    def _untrained(self, init: Callable[..., State]) -> Progress:
        count = len(self.runs)
        return Progress(
            state=init(self.algorithm, self.keys, self.spec),
            diverged=jnp.zeros(count, bool),
            metrics=jnp.zeros((count, len(self.metric_names))),
            updates=jnp.zeros((), jnp.int32),
            step=jnp.zeros((), jnp.int32),
        )

    def advance(self, progress: Progress, length: int, begin: int | None = None) -> Progress:
        """`length` updates in one compiled call, or a few when the data are streamed; `progress` is consumed.

        It returns before the updates are done, unless `begin`, the step of `progress`, has to be asked of the device.
        """
        constant = (self.algorithm, self.keys, self.spec)
        begin = int(progress.step) if begin is None else begin
        batch, cycle = self.algorithm.batch_size, len(self.algorithm.cycle())
        if isinstance(self.store, Resident):
            return _advance(*constant, progress, self.store.data, self.rows.train, length, begin % cycle)

        def positions(start: int, count: int) -> Array:
            first = _batch_positions(self.rows.train, self.keys, begin + start, batch, count)
            return consecutive(first, self.algorithm.window_length, len(self.store.data))

        done = 0
        for rows in self.store.ahead(positions, length):
            progress = _advance_streamed(*constant, progress, rows, (begin + done) % cycle)
            done += len(rows)
        return progress

    def calibrate(self, progress: Progress) -> Progress:
        if self.ranks is None:
            return progress
        scores = self._scores(progress, self.rows.calibration)
        return _calibrate(self.algorithm, progress, scores, self.ranks)

    def _scores(self, progress: Progress, fold: Fold) -> Array:
        """Nonconformity of a fold, `[runs, slots]`, in slices; infinity in the slots beyond a run's size."""
        slots = int(np.max(np.asarray(fold.size)))
        rows_of_run = SLICE // min(len(self.runs), 8)
        if isinstance(self.store, Resident):
            return _resident_scores(
                self.algorithm, progress.state, self.spec, self.store.data, fold, slots, rows_of_run
            )
        offset, size = np.asarray(fold.offset)[:, None], np.asarray(fold.size)[:, None]
        scores = []
        for start in range(0, slots, rows_of_run):
            position = start + np.arange(rows_of_run)[None]
            rows = self.store.take(offset + np.minimum(position, np.maximum(size - 1, 0)))
            valid = jnp.asarray(position < size)
            scores.append(_streamed_scores(self.algorithm, progress.state, self.spec, rows, valid))
        return jnp.concatenate(scores, axis=1)

    def diagnose(self, progress: Progress, distributions: bool = True) -> list[dict[str, Any]]:
        """Per run, how calibration stands: `q_hat`, coverage on unseen episodes, what the controller makes of it."""
        measured = self.measure(progress)
        return [] if measured is None else self.described(measured, distributions)

    def measure(self, progress: Progress) -> Measured | None:
        """What a diagnosis is made of, without waiting for it; None for a method that knows no uncertainty."""
        if not self.algorithm.knows_uncertainty:
            return None
        covers = self.interval is not None and np.asarray(self.rows.heldout.size).any()
        return Measured(
            q_hat=jnp.copy(progress.state.q_hat),  # updates to come consume the original
            heldout=self._scores(progress, self.rows.heldout) if covers else None,
            uncertainty=_uncertainty(self.algorithm, progress.state, self.spec, self._sample()),
        )

    def described(self, measured: Measured, distributions: bool) -> list[dict[str, Any]]:
        q_hat, heldout, uncertainty = jax.device_get(measured)
        sizes = np.asarray(self.rows.heldout.size)
        diagnoses: list[dict[str, Any]] = [
            {
                "q_hat": None if self.interval is None else float(q_hat[i]),
                "coverage": None if heldout is None or not size else float(coverage(heldout[i, :size], q_hat[i])),
                "u_above_1": float(np.mean(uncertainty.u[i] > 1)),
            }
            for i, size in enumerate(sizes)
        ]
        if distributions:
            for i, diagnosis in enumerate(diagnoses):
                known = {name: values for name, values in uncertainty._asdict().items() if values is not None}
                diagnosis["distributions"] = {name: distribution(values[i]) for name, values in known.items()}
        return diagnoses

    def _sample(self) -> Array:
        """Up to `SAMPLE` training rows of each run, evenly spaced."""
        offset, size = np.asarray(self.rows.train.offset)[:, None], np.asarray(self.rows.train.size)[:, None]
        return self.store.take(offset + np.arange(SAMPLE)[None] * size.astype(np.int64) // SAMPLE)

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


def distribution(values: np.ndarray) -> dict[str, Any]:
    """A histogram small enough to keep."""
    finite = values[np.isfinite(values)]
    if finite.size == 0:
        return {"edges": [], "counts": []}
    counts, edges = np.histogram(finite.astype(np.float64), bins=BINS)
    return {"edges": [float(f"{edge:.6g}") for edge in edges], "counts": counts.tolist()}


def _compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """`jax.jit` with the settings of the backend, which is not asked before the first call."""

    @cache
    def program() -> Callable[..., Any]:
        return jax.jit(function, compiler_options=COMPILER.get(jax.default_backend()), **options)

    return wraps(function)(lambda *args: program()(*args))


def _initial(algorithm: Algorithm, keys: Array, spec: Spec) -> State:
    # One run after the other: compiles faster than all at once, and happens only once.
    return jax.lax.map(lambda run: run[0].init(jax.random.fold_in(run[1], 0), spec), (algorithm, keys))


_init = _compiled(_initial, static_argnames="spec")


def _step_keys(key: Array, step: Array | int) -> tuple[Array, Array]:
    """For drawing the batch and for the update itself, at one step of one run."""
    batch_key, update_key = jax.random.split(jax.random.fold_in(key, 1 + step))
    return batch_key, update_key


def _positions(fold: Fold, key: Array, step: Array | int, batch_size: int) -> Array:
    return fold.offset + jax.random.randint(_step_keys(key, step)[0], (batch_size,), 0, fold.size)


@partial(jax.jit, static_argnames=("batch_size", "count"))
def _batch_positions(fold: Fold, keys: Array, start: int, batch_size: int, count: int) -> Array:
    """Rows of `count` updates from `start` on, `[count, runs, batch]`."""

    def of_all_runs(step: Array) -> Array:
        return jax.vmap(lambda fold, key: _positions(fold, key, step, batch_size))(fold, keys)

    return jax.vmap(of_all_runs)(start + jnp.arange(count))


def _updated(algorithm: Algorithm, keys: Array, spec: Spec, progress: Progress, rows: Array, phase: int) -> Progress:
    """One update of every run, each on its own batch of `rows`; metrics count when it is a whole one."""
    cycle = len(algorithm.cycle())

    def update(algorithm: Algorithm, state: State, rows: Array, key: Array) -> tuple[State, Metrics]:
        return algorithm.cycle()[phase % cycle](
            state, unpack_for(algorithm, rows, spec), _step_keys(key, progress.step)[1]
        )

    state, metrics = jax.vmap(update)(algorithm, progress.state, rows, keys)
    progress = progress._replace(state=state, step=progress.step + 1)
    if phase % cycle < cycle - 1:
        return progress
    sums = progress.metrics + jnp.stack([metrics[name] for name in sorted(metrics)], axis=-1)
    return progress._replace(metrics=sums, updates=progress.updates + 1)


def _advanced(
    algorithm: Algorithm,
    keys: Array,
    spec: Spec,
    progress: Progress,
    batches: Array,
    rows_of: Callable[[Array], Array],
    phase: int,
) -> Progress:
    """One update for every entry of `batches`. The updates of a cycle are written out, so that none is a branch."""
    cycle = len(algorithm.cycle())
    whole = len(batches) // cycle * cycle

    def updates(progress: Progress, batches: Array) -> tuple[Progress, None]:
        for i in range(len(batches)):
            progress = _updated(algorithm, keys, spec, progress, rows_of(batches[i]), phase + i)
        return progress, None

    progress = jax.lax.scan(updates, progress, batches[:whole].reshape(-1, cycle, *batches.shape[1:]))[0]
    if whole < len(batches):
        progress = updates(progress, batches[whole:])[0]
    return progress._replace(diverged=progress.diverged | ~jax.vmap(_finite)(progress.state))


def _finite(state: State) -> Array:
    leaves = [leaf for leaf in jax.tree.leaves(state) if jnp.issubdtype(leaf.dtype, jnp.floating)]
    return jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in leaves]).all()


@partial(_compiled, static_argnames=("spec", "length", "phase"), donate_argnames="progress")
def _advance(
    algorithm: Algorithm, keys: Array, spec: Spec, progress: Progress, data: Array, train: Fold, length: int, phase: int
) -> Progress:
    positions = _batch_positions(train, keys, progress.step, algorithm.batch_size, length)
    rows_of = lambda positions: data[consecutive(positions, algorithm.window_length, len(data))]  # noqa: E731
    return _advanced(algorithm, keys, spec, progress, positions, rows_of, phase)


@partial(_compiled, static_argnames=("spec", "phase"), donate_argnames="progress")
def _advance_streamed(
    algorithm: Algorithm, keys: Array, spec: Spec, progress: Progress, rows: Array, phase: int
) -> Progress:
    return _advanced(algorithm, keys, spec, progress, rows, lambda rows: rows, phase)


def _scores(algorithm: Algorithm, state: State, spec: Spec, rows: Array, valid: Array) -> Array:
    scores = jax.vmap(lambda a, s, r: a.nonconformity(s, unpack(r, spec)))(algorithm, state, rows)
    return jnp.where(valid, scores, jnp.inf)


_streamed_scores = _compiled(_scores, static_argnames="spec")


@partial(_compiled, static_argnames=("spec", "slots", "rows_of_run"))
def _resident_scores(
    algorithm: Algorithm, state: State, spec: Spec, data: Array, fold: Fold, slots: int, rows_of_run: int
) -> Array:
    def scored(start: Array) -> Array:
        position = start + jnp.arange(rows_of_run)[None]
        rows = data[fold.offset[:, None] + jnp.minimum(position, jnp.maximum(fold.size[:, None] - 1, 0))]
        return _scores(algorithm, state, spec, rows, position < fold.size[:, None])

    return jnp.concatenate(jax.lax.map(scored, jnp.arange(0, slots, rows_of_run)), axis=-1)


@partial(_compiled, donate_argnames="progress")
def _calibrate(algorithm: Algorithm, progress: Progress, scores: Array, ranks: Array) -> Progress:
    q_hat = jax.vmap(conformal_quantile)(scores, ranks)
    return progress._replace(state=jax.vmap(lambda a, s, q: a.recalibrated(s, q))(algorithm, progress.state, q_hat))


@partial(_compiled, static_argnames="spec")
def _uncertainty(algorithm: Algorithm, state: State, spec: Spec, rows: Array) -> Uncertainty:
    # One run after the other, so that memory does not grow with their number.
    return jax.lax.map(lambda run: run[0].uncertainty(run[1], unpack(run[2], spec).obs), (algorithm, state, rows))
