"""A cohort draws the rows it may, calibrates each run on its own fold, and freezes what diverges.

Most of it with a method that learns nothing but which rows it has met: what it knows afterwards is exact.
"""

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from uniq_rl.algorithms import IQL, UNIQ, Algorithm, Batch, ReBRAC, Spec, Uncertainty
from uniq_rl.algorithms.base import static
from uniq_rl.conservatism import conformal_rank
from uniq_rl.data import Dataset
from uniq_rl.errors import UniqError
from uniq_rl.training import rows as rows_module
from uniq_rl.training.cohort import Cohort, Progress, Run, distribution
from uniq_rl.training.rows import SLICE, Resident, Streamed


class Diary(NamedTuple):
    seen: jax.Array
    """How often each row was drawn."""
    weight: jax.Array
    q_hat: jax.Array
    step: jax.Array


class Diarist(Algorithm):
    """Notes every row it is shown. A row's reward is its number, and `weight` times that its nonconformity."""

    name: ClassVar[str] = "diarist"
    widest: ClassVar[int] = 0

    calibration_fraction: float = static(0.2)
    heldout_fraction: float = static(0.05)
    rows: int = static(0)
    delta: float = 0.1
    breaks_at: float = float("inf")

    @property
    def calibration_interval(self) -> int | None:
        return 10

    @property
    def knows_uncertainty(self) -> bool:
        return True

    def init(self, key: jax.Array, spec: Spec) -> Diary:
        return Diary(jnp.zeros(self.rows, jnp.int32), jnp.ones(()), jnp.ones(()), jnp.zeros((), jnp.int32))

    def update(self, state: Diary, batch: Batch, key: jax.Array) -> tuple[Diary, dict[str, jax.Array]]:
        seen = state.seen.at[batch.reward.astype(jnp.int32)].add(1)
        weight = jnp.where(state.step == self.breaks_at, jnp.nan, state.weight + 1)
        metrics = {"second": state.step.astype(jnp.float32), "first": jnp.ones(())}
        return Diary(seen, weight, state.q_hat, state.step + 1), metrics

    def nonconformity(self, state: Diary, batch: Batch) -> jax.Array:
        type(self).widest = max(type(self).widest, batch.reward.shape[-1])
        return state.weight * batch.reward

    def recalibrated(self, state: Diary, q_hat: jax.Array) -> Diary:
        return state._replace(q_hat=q_hat)

    def uncertainty(self, state: Diary, obs: jax.Array) -> Uncertainty:
        return Uncertainty(obs[:, 0], obs[:, 1], obs[:, 0], obs[:, 1])

    def act(self, state: Diary, obs: jax.Array, memory: Any) -> tuple[jax.Array, Any]:
        return obs[:, :1], memory

    def deployed(self, state: Diary) -> Diary:
        return state


def numbered(episodes: int, length: int, first: int) -> Dataset:
    """Rows numbered from `first` by their reward; `u`, the second observation, exceeds 1 in the later half."""
    count = episodes * length
    obs = np.stack([np.zeros(count), 2.0 * (np.arange(count) >= count // 2)], axis=1)
    return Dataset(
        obs=obs,
        action=np.zeros((count, 1)),
        reward=first + np.arange(count),
        next_obs=obs,
        mask=np.ones(count),
        episode_end=np.arange(count) % length == length - 1,
        name=f"numbered from {first}",
    )


# Fewer than 40 episodes, so none held out; and a calibration fold of more than one slice.
SMALL, LARGE = numbered(30, 10, first=0), numbered(60, 400, first=300)
TOTAL = SMALL.size + LARGE.size


def diarists(*changes: dict[str, Any]) -> list[Run]:
    data = (SMALL, LARGE, LARGE)
    return [
        Run(Diarist(rows=TOTAL, batch_size=64, **change), data[i], seed=i, label=str(i))
        for i, change in enumerate(changes or ({}, {"delta": 0.25}, {}))
    ]


def copied(tree: Any) -> Any:
    return jax.tree.map(np.array, tree)


def same(a: Any, b: Any) -> bool:
    return all(x.tobytes() == y.tobytes() for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


@pytest.fixture(scope="module")
def cohort() -> Cohort:
    return Cohort(diarists())


@pytest.fixture(scope="module")
def advanced(cohort: Cohort) -> Progress:
    return copied(cohort.advance(cohort.start(), 20))


def test_folds_are_disjoint_and_complete(cohort: Cohort) -> None:
    for run, folds in zip(cohort.runs, cohort.folds, strict=True):
        parts = (folds.train, folds.calibration, folds.heldout)
        np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(run.dataset.size))
    assert [len(folds.heldout) for folds in cohort.folds] == [0, 1200, 1200]
    assert len(cohort.folds[1].calibration) > SLICE > len(cohort.folds[0].calibration)


def test_runs_with_the_same_data_share_the_rows(cohort: Cohort) -> None:
    assert isinstance(cohort.store, Resident)
    assert cohort.store.data.shape == (TOTAL, 2 + 1 + 2 + 1 + 1)


def test_only_a_runs_own_training_rows_are_drawn(cohort: Cohort, advanced: Progress) -> None:
    for i, run in enumerate(cohort.runs):
        seen = advanced.state.seen[i]
        assert seen.sum() == 20 * 64
        drawn = set(np.flatnonzero(seen))
        training = {int(run.dataset.reward[row]) for row in cohort.folds[i].train}
        assert drawn <= training
        if run.dataset is SMALL:  # 1280 draws from 240 rows miss one row in exp(1280 / 240), about 200
            assert len(drawn) > 0.97 * len(training)
            assert {min(training), max(training)} <= drawn
    assert not same(advanced.state.seen[1], advanced.state.seen[2]), "two seeds draw differently"


def test_chunks_of_any_length(cohort: Cohort, advanced: Progress) -> None:
    progress = cohort.advance(cohort.advance(cohort.start(), 7), 13)
    assert same(copied(progress), advanced)


def test_metrics_are_summed(cohort: Cohort, advanced: Progress) -> None:
    assert cohort.metric_names == ["first", "second"]
    np.testing.assert_array_equal(advanced.metrics, [[20, 190]] * 3)
    assert (int(advanced.updates), int(advanced.step)) == (20, 20)


def test_every_run_is_calibrated_on_its_own_fold(cohort: Cohort, advanced: Progress) -> None:
    def quantiles(weight: float) -> list[float]:
        scores = [run.dataset.reward[f.calibration] for run, f in zip(cohort.runs, cohort.folds, strict=True)]
        deltas = [run.algorithm.delta for run in cohort.runs]
        return [weight * np.sort(s)[conformal_rank(len(s), d) - 1] for s, d in zip(scores, deltas, strict=True)]

    np.testing.assert_array_equal(cohort.start().state.q_hat, quantiles(1))
    np.testing.assert_array_equal(advanced.state.q_hat, quantiles(1))
    again = cohort.calibrate(jax.tree.map(jnp.asarray, advanced))
    np.testing.assert_allclose(again.state.q_hat, quantiles(21), rtol=1e-6)
    assert len(set(quantiles(1))) == 3


def test_calibration_goes_in_slices(cohort: Cohort) -> None:
    cohort.start()  # traced here, unless a test before did it
    assert 0 < Diarist.widest <= SLICE < len(cohort.folds[1].calibration)


def test_coverage_of_the_held_out_rows(cohort: Cohort) -> None:
    progress = cohort.start()
    diagnosis = cohort.diagnose(progress)
    assert diagnosis[0]["coverage"] is None
    for i in (1, 2):
        scores = cohort.runs[i].dataset.reward[cohort.folds[i].heldout]
        q_hat = float(progress.state.q_hat[i])
        assert diagnosis[i]["q_hat"] == q_hat
        assert diagnosis[i]["coverage"] == pytest.approx(np.mean(scores <= q_hat), abs=1e-6)
    assert sum(diagnosis[0]["distributions"]["u"]["counts"]) == 4096


def test_diagnosis_looks_at_all_of_the_training_rows(cohort: Cohort) -> None:
    diagnosis = cohort.diagnose(cohort.start())
    for i, run in enumerate(cohort.runs):
        exact = np.mean(run.dataset.obs[cohort.folds[i].train, 1] > 1)
        assert diagnosis[i]["u_above_1"] == pytest.approx(exact, abs=0.005)


def test_a_broken_run_is_given_up_alone() -> None:
    cohort = Cohort(diarists({}, {"breaks_at": 3.0, "delta": 0.25}, {}))
    progress = cohort.advance(cohort.start(), 20)
    np.testing.assert_array_equal(progress.diverged, [False, True, False])
    progress = copied(cohort.advance(cohort.calibrate(progress), 20))
    np.testing.assert_array_equal(progress.diverged, [False, True, False])
    assert np.isfinite(progress.state.q_hat[[0, 2]]).all()
    for i in (0, 2):
        assert progress.state.seen[i].sum() == 40 * 64
        assert float(progress.state.weight[i]) == 41


def test_streamed_rows_are_the_same_rows(advanced: Progress, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "STREAMED_BYTES", 6 * 3 * 64 * 7 * 4)  # six updates fit, so pieces of five
    cohort = Cohort(diarists(), stream=True)
    assert isinstance(cohort.store, Streamed)
    progress = cohort.advance(cohort.start(), 20)
    assert same(copied(progress), advanced)
    resident = Cohort(diarists(), stream=False)
    assert cohort.diagnose(progress) == resident.diagnose(progress)


class Turns(NamedTuple):
    often: jax.Array
    """The rows' numbers, summed over all updates."""
    seldom: jax.Array
    """The same over whole updates only."""
    dice: jax.Array
    history: jax.Array
    """A binary digit per update: 1 for a whole one."""


class TurnTaker(Algorithm):
    """Its updates take turns and leave a trace of the order, the rows and the random numbers they had."""

    name: ClassVar[str] = "turn-taker"

    delay: int = static(2)

    def init(self, key: jax.Array, spec: Spec) -> Turns:
        return Turns(jnp.zeros(()), jnp.zeros(()), jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))

    def cycle(self) -> Any:
        return (self.rest,) * (self.delay - 1) + (self.update,)

    def rest(self, state: Turns, batch: Batch, key: jax.Array) -> tuple[Turns, dict[str, jax.Array]]:
        often, dice = state.often + jnp.sum(batch.reward), state.dice + jax.random.randint(key, (), 0, 1000)
        return Turns(often, state.seldom, dice, 2 * state.history), {}

    def update(self, state: Turns, batch: Batch, key: jax.Array) -> tuple[Turns, dict[str, jax.Array]]:
        state, _ = self.rest(state, batch, key)
        state = state._replace(seldom=state.seldom + jnp.sum(batch.reward), history=state.history + 1)
        return state, {"history": state.history.astype(jnp.float32)}

    def act(self, state: Turns, obs: jax.Array, memory: Any) -> tuple[jax.Array, Any]:
        return obs[:, :1], memory

    def deployed(self, state: Turns) -> Turns:
        return state


def turn_takers(delay: int, stream: bool = False) -> Cohort:
    """Whole numbers only: whatever a program makes of the order, their sums are exact."""
    method = TurnTaker(delay=delay, batch_size=4)
    return Cohort([Run(method, SMALL, seed, str(seed)) for seed in (0, 1)], stream=stream)


def after(cohort: Cohort, lengths: tuple[int, ...]) -> Progress:
    progress = cohort.start()
    for length in lengths:
        progress = cohort.advance(progress, length)
    return copied(progress)


@pytest.mark.parametrize(
    ("delay", "history", "chunkings"),
    [
        (1, "1111", [(4,), (1, 3)]),
        (2, "0101", [(4,), (1, 3), (3, 1), (2, 2), (1, 1, 1, 1)]),
        (3, "001001", [(6,), (1, 5), (2, 4), (4, 1, 1)]),
    ],
)
def test_turns_are_kept_whatever_the_chunks(delay: int, history: str, chunkings: list[tuple[int, ...]]) -> None:
    cohort = turn_takers(delay)
    whole = after(cohort, chunkings[0])
    np.testing.assert_array_equal(whole.state.history, [int(history, 2)] * 2)
    assert (int(whole.step), int(whole.updates)) == (len(history), history.count("1"))
    seen = [int(history[: i + 1], 2) for i, turn in enumerate(history) if turn == "1"]
    np.testing.assert_array_equal(whole.metrics, [[sum(seen)]] * 2)
    assert (whole.state.seldom < whole.state.often).all() == (delay > 1)
    for chunks in chunkings[1:]:
        assert same(after(cohort, chunks), whole), chunks


@pytest.mark.parametrize("lengths", [(9,), (5, 4)])
def test_turns_are_kept_when_rows_are_streamed(lengths: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "STREAMED_BYTES", 3 * 2 * 4 * 7 * 4)  # three updates fit: pieces begin anywhere
    cohort = turn_takers(2, stream=True)
    assert isinstance(cohort.store, Streamed)
    assert same(after(cohort, lengths), after(turn_takers(2), (9,)))


@pytest.mark.parametrize("stream", [False, True])
def test_the_next_action_is_the_next_rows_of_the_episode(stream: bool) -> None:
    """By time, though rows lie in the order of their folds; NaN in the last row of an episode, however it ends."""
    rows = 30
    end = np.isin(np.arange(rows), [4, 5, 16, rows - 1])
    number = np.arange(rows)
    data = Dataset(
        obs=np.zeros((rows, 2)),
        action=np.stack([number / rows, -number / rows], axis=1),
        reward=number,
        next_obs=np.zeros((rows, 2)),
        mask=number != 4,
        episode_end=end,
    )
    method = ReBRAC(hidden=(4,), calibration_fraction=0.3, batch_size=4)
    cohort = Cohort([Run(method, data, 0, "0")], stream=stream)
    batch = rows_module.unpack(jnp.asarray(cohort.store.data), cohort.spec)
    order = np.asarray(batch.reward).astype(int)
    assert (np.diff(order) < 0).any()
    assert batch.next_action is not None
    np.testing.assert_array_equal(np.isnan(batch.next_action).any(axis=1), end[order])
    known = ~end[order]
    np.testing.assert_array_equal(batch.next_action[known], data.action[order[known] + 1])
    np.testing.assert_array_equal(batch.mask, data.mask[order])
    plain = Cohort([Run(IQL(hidden=(4,)), data, 0, "0")], stream=stream)
    assert plain.store.data.shape[1] == cohort.store.data.shape[1] - 2, "who does not use it, does not pay for it"
    assert rows_module.unpack(jnp.asarray(plain.store.data), plain.spec).next_action is None


def test_rows_survive_packing() -> None:
    rng = np.random.default_rng(0)
    data = Dataset(
        obs=rng.normal(3, 2, (50, 3)),
        action=rng.uniform(-1, 1, (50, 2)),
        reward=rng.normal(size=50),
        next_obs=rng.normal(3, 2, (50, 3)),
        mask=np.arange(50) % 5 != 4,
        episode_end=np.arange(50) % 5 == 4,
    )
    algorithm = IQL(normalize_obs=True, hidden=(4,))
    cohort = Cohort([Run(algorithm, data, 0, "0")])
    batch = rows_module.unpack(cohort.store.data, cohort.spec)
    mean, std = data.obs.mean(axis=0), data.obs.std(axis=0) + 1e-3
    np.testing.assert_allclose(batch.obs, (data.obs - mean) / std, atol=1e-5)
    np.testing.assert_allclose(batch.next_obs, (data.next_obs - mean) / std, atol=1e-5)
    np.testing.assert_allclose(batch.action, np.clip(data.action, -0.99999, 0.99999), atol=1e-6)
    returns = data.reward.reshape(10, 5).sum(axis=1)
    np.testing.assert_allclose(batch.reward, data.reward * 1000 / np.ptp(returns), rtol=1e-5)
    np.testing.assert_array_equal(batch.mask, data.mask)


def test_uniq_is_calibrated_exactly() -> None:
    """With the scores of the real method, its preprocessing included; two data sets of different size."""
    rng = np.random.default_rng(1)

    def random_data(episodes: int) -> Dataset:
        count = 5 * episodes
        end = np.arange(count) % 5 == 4
        columns = rng.normal(size=(count, 2)), rng.uniform(-1, 1, (count, 1)), rng.normal(size=count)
        return Dataset(*columns, rng.normal(size=(count, 2)), 1 - end * rng.choice([0, 1], count), end)

    method = UNIQ(hidden=(8,), batch_size=16, normalize_obs=True, learning_rate=0.01)
    cohort = Cohort([Run(method, random_data(n), seed=n, label=str(n)) for n in (20, 50)])
    first = copied(cohort.start().state)
    later = copied(cohort.calibrate(cohort.advance(cohort.start(), 10)).state)
    assert len(set(np.concatenate([first.q_hat, later.q_hat]))) == 4
    for states in (first, later):
        for i, run in enumerate(cohort.runs):
            rows = cohort.folds[i].calibration
            columns = cohort.fitted[i].apply(run.dataset)
            batch = Batch(**{name: jnp.asarray(column[rows]) for name, column in columns.items()})
            state = jax.tree.map(lambda leaf, i=i: leaf[i], states)
            scores = np.sort(np.asarray(method.nonconformity(state, batch)))
            rank = conformal_rank(len(rows), method.delta)
            assert states.q_hat[i] == pytest.approx(scores[rank - 1], rel=1e-5)
            assert np.diff(scores[rank - 2 : rank + 1]).min() > 1e-3 * scores[rank - 1], "neighbours can be told"
    assert [len(folds.calibration) for folds in cohort.folds] == [20, 48]


def test_what_cannot_be_a_cohort_is_refused() -> None:
    plain = IQL(hidden=(4,))
    with pytest.raises(UniqError, match="nothing to train"):
        Cohort([])
    with pytest.raises(UniqError, match="share a label"):
        Cohort([Run(plain, SMALL, 0, "0"), Run(plain, SMALL, 1, "0")])
    with pytest.raises(UniqError, match="differ in numbers only"):
        Cohort([Run(plain, SMALL, 0, "0"), Run(IQL(hidden=(5,)), SMALL, 0, "1")])
    with pytest.raises(UniqError, match="differ in numbers only"):
        Cohort([Run(plain, SMALL, 0, "0"), Run(UNIQ(hidden=(4,)), SMALL, 0, "1")])
    wide = Dataset(np.zeros((5, 3)), np.zeros((5, 1)), np.zeros(5), np.zeros((5, 3)), np.ones(5), np.zeros(5, bool))
    with pytest.raises(UniqError, match="one width"):
        Cohort([Run(plain, SMALL, 0, "0"), Run(plain, wide, 0, "1")])
    with pytest.raises(UniqError, match=r"has 60 rows, too few for delta = 0\.001: use at least 999 "):
        Cohort([Run(UNIQ(hidden=(4,), delta=0.001), SMALL, 0, "0")])


def test_seeds_beyond_32_bits_are_refused() -> None:
    """Half of such a seed would be lost, and 2^32 train exactly as 0."""
    with pytest.raises(UniqError, match="4294967296"):
        Cohort([Run(IQL(hidden=(4,)), SMALL, 2**32, "0")])


def test_distribution_leaves_out_what_is_not_finite() -> None:
    shown = distribution(np.array([0.0, 1.0, 1.0, np.nan, np.inf], np.float32))
    assert sum(shown["counts"]) == 3
    assert (shown["edges"][0], shown["edges"][-1], shown["counts"][-1]) == (0.0, 1.0, 2)
    assert distribution(np.array([np.nan])) == {"edges": [], "counts": []}
