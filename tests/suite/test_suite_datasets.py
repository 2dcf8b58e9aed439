"""Built-in data sets from synthetic policies: exact sizes, whole episodes, the same bytes whoever makes them."""

import itertools
import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm
from synthetic import MEANS, STEPS, WIDTHS

from uniq_rl.data import Dataset
from uniq_rl.errors import UniqError
from uniq_rl.suite import behaviour, card, cards, datasets, make, names, recipe_id
from uniq_rl.suite.generate import collect, environments

MEDIUM = "suite/hopper-medium"


def check_episodes(data: Dataset, cut: set[int]) -> None:
    """Episodes continue inside, end by termination or after 1000 steps, and are cut off only at the rows in `cut`."""
    inside = ~data.episode_end
    inside[-1] = False
    np.testing.assert_array_equal(data.next_obs[inside], data.obs[np.flatnonzero(inside) + 1])
    ends = data.episode_bounds[:, 1] - 1
    whole = (data.mask[ends] == 0) | (data.episode_lengths == 1000)
    assert set(ends[~whole].tolist()) <= cut
    assert data.episode_lengths.max() <= 1000


@pytest.mark.parametrize("task", WIDTHS)
def test_exact_size_and_whole_episodes(policies: Path, task: str) -> None:
    data = make(f"suite/{task}-random", 2345)
    assert (data.size, data.obs_dim, data.action_dim, data.task) == (2345, *WIDTHS[task], task)
    check_episodes(data, {2344})
    np.testing.assert_allclose(data.infos["action_log_prob"], -data.action_dim * np.log(2), rtol=1e-6)
    assert data.action.min() < -0.9 < 0.9 < data.action.max()


def test_log_probabilities_are_those_of_the_actions(policies: Path) -> None:
    data = make(MEDIUM, 1500)
    policy = behaviour.load()["hopper"].policies[2]
    assert isinstance(policy, behaviour.TanhGaussian)
    mean, log_std = np.split(policy._forward(data.obs).astype(np.float64), 2, axis=1)
    unsquashed = np.arctanh(data.action.astype(np.float64))
    density = norm.logpdf(unsquashed, mean, np.exp(log_std)) - np.log(1 - np.square(data.action.astype(np.float64)))
    np.testing.assert_allclose(data.infos["action_log_prob"], density.sum(axis=1), atol=1e-3)


def test_rewards_are_those_of_the_simulator(policies: Path) -> None:
    """Forward speed plus one for being healthy, less the cost of control: at rest about 1."""
    data = make(MEDIUM, 1000)
    cost = 1e-3 * np.square(data.action).sum(axis=1)
    middle = (data.obs[:, 5] + data.next_obs[:, 5]) / 2  # the speed over a step is near its mean
    residual = data.reward - (1 - cost + middle)
    assert np.median(np.abs(residual)) < 0.05


@pytest.mark.parametrize("name", ["suite/halfcheetah-medium", "suite/hopper-full-replay"])
def test_threads_change_nothing(policies: Path, name: str) -> None:
    one, two, many = (datasets.generate(name, 1500, 7, threads=threads) for threads in (1, 2, 7))
    assert one.fingerprint == two.fingerprint == many.fingerprint
    np.testing.assert_array_equal(one.infos["action_log_prob"], many.infos["action_log_prob"])
    assert one.fingerprint != datasets.generate(name, 1500, 8).fingerprint


@pytest.mark.parametrize("error", [OSError("no memory"), KeyboardInterrupt()])
def test_when_one_policy_fails_or_the_user_stops_the_others_play_no_longer(
    policies: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    ticks = [0]

    def endless(*args: Any) -> None:
        stream, tick = args[3], args[4]
        if stream[-1] == 1 and isinstance(error, OSError):
            raise error
        while True:
            tick(0)
            ticks[0] += 1

    def progress(done: int, size: int) -> None:
        if isinstance(error, KeyboardInterrupt):
            raise error

    monkeypatch.setattr(datasets, "collect", endless)
    with pytest.raises(type(error)):
        datasets.generate("suite/hopper-medium-expert", 2000, 0, progress, threads=2)
    before = ticks[0]
    time.sleep(0.05)
    assert ticks[0] == before


def test_makers_at_the_same_time_with_other_threads(policies: Path) -> None:
    program = (
        "import sys, pathlib; from uniq_rl.suite import behaviour, datasets as d; "
        "behaviour.PATH = pathlib.Path(sys.argv[1]); "
        f"print(d.generate({MEDIUM!r}, 3000, 0).fingerprint, d.make({MEDIUM!r}, 3000).fingerprint)"
    )
    makers = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(behaviour.PATH)],
            env=os.environ | {"OPENBLAS_NUM_THREADS": threads, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for threads in ("1", "2")
    ]
    said = [maker.communicate(timeout=120)[0].split() for maker in makers]
    assert [maker.returncode for maker in makers] == [0, 0]
    assert len({fingerprint for line in said for fingerprint in line}) == 1
    assert sorted(path.suffix for path in datasets.cache_folder().iterdir()) == [".json", ".npz"]
    assert make(MEDIUM, 3000).fingerprint == said[0][0]


class Halfway:
    """Stands in for `generate`: tells that it is halfway, waits for a sign, and makes the data or falls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.generate, self.calls = datasets.generate, 0
        self.reached, self.sign = threading.Event(), threading.Event()
        self.error: BaseException | None = None
        monkeypatch.setattr(datasets, "generate", self)

    def __call__(self, name: str, size: int, seed: int, progress: datasets.Progress) -> Dataset:
        self.calls += 1
        if self.calls == 1:
            progress(size // 2, size)
            self.reached.set()
            assert self.sign.wait(60)
            if self.error is not None:
                raise self.error
        return self.generate(name, size, seed, progress)


def test_who_wants_what_is_being_made_waits_and_sees_how_far_it_is(
    policies: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Halfway(monkeypatch)
    told: list[tuple[int, int]] = []

    def progress(done: int, total: int) -> None:
        told.append((done, total))
        first.sign.set()

    with ThreadPoolExecutor(1) as other:
        made = other.submit(make, MEDIUM, 1200)
        assert first.reached.wait(60)
        data = make(MEDIUM, 1200, progress=progress)
        assert data.fingerprint == made.result().fingerprint
    assert first.calls == 1
    assert told[0] == (600, 1200)
    assert sorted(path.suffix for path in datasets.cache_folder().iterdir()) == [".json", ".npz"]


def test_who_waits_makes_the_data_when_the_maker_falls(policies: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = Halfway(monkeypatch)
    first.error = OSError("no memory")
    with ThreadPoolExecutor(1) as other:
        fallen = other.submit(make, MEDIUM, 1200)
        assert first.reached.wait(60)
        data = make(MEDIUM, 1200, progress=lambda done, total: first.sign.set())
        assert isinstance(fallen.exception(), OSError)
    assert (data.size, first.calls) == (1200, 2)


def test_cache_is_used_checked_and_repaired(policies: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, int]] = []
    data = make(MEDIUM, 1200, progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (1200, 1200)
    assert told == sorted(told)
    path = next(datasets.cache_folder().glob("*.npz"))
    record = json.loads(path.with_suffix(".json").read_text())
    assert record["fingerprint"] == data.fingerprint
    assert record["recipe_id"] == recipe_id(MEDIUM, 1200)
    whole = path.read_bytes()
    for damaged in (whole[:1000], b""):
        path.write_bytes(damaged)
        assert make(MEDIUM, 1200).fingerprint == data.fingerprint
        assert path.read_bytes() == whole
    monkeypatch.setattr(datasets, "generate", lambda *_: pytest.fail("made again"))
    again = make(MEDIUM, 1200)
    assert (again.name, again.task, again.fingerprint) == (MEDIUM, "hopper", data.fingerprint)
    np.testing.assert_array_equal(again.infos["action_log_prob"], data.infos["action_log_prob"])


def test_recipe_id_knows_what_matters(policies: Path) -> None:
    first = recipe_id(MEDIUM, 1000)
    others = {recipe_id(MEDIUM, 1001), recipe_id(MEDIUM, 1000, 1), recipe_id("suite/hopper-expert", 1000)}
    assert len(first) == 12
    assert len({first, *others}) == 4
    assert recipe_id(MEDIUM) == recipe_id(MEDIUM, 1_000_000)
    other = behaviour.PATH.read_bytes().replace(b'\\"seed\\": 0', b'\\"seed\\": 1')
    behaviour.PATH.write_bytes(other)
    assert recipe_id(MEDIUM, 1000) != first


def mean_actions(data: Dataset, rows: list[int]) -> list[float]:
    bounds = np.concatenate([[0], np.cumsum(rows)])
    return [float(np.arctanh(data.action[start:stop, 0]).mean()) for start, stop in itertools.pairwise(bounds)]


def test_medium_expert_is_half_and_half(policies: Path) -> None:
    data = make("suite/hopper-medium-expert", 4001)
    np.testing.assert_allclose(mean_actions(data, [2001, 2000]), MEANS[1:], atol=0.05)
    check_episodes(data, {2000, 4000})


@pytest.mark.parametrize(("kind", "last"), [("medium-replay", 2), ("full-replay", 3)])
def test_replay_mixes_snapshots_by_the_steps_they_stood_for(policies: Path, kind: str, last: int) -> None:
    size = 10 * STEPS[last]
    data = make(f"suite/hopper-{kind}", size)
    rows = [10 * count for count in np.diff([0, *STEPS[: last + 1]]).tolist()]
    assert datasets.segments(behaviour.load()["hopper"], kind, size) == list(enumerate(rows))
    check_episodes(data, set((np.cumsum(rows) - 1).tolist()))
    np.testing.assert_allclose(mean_actions(data, rows)[1:], MEANS[:last], atol=0.08)
    assert data.size == size


def test_episodes_are_not_chosen_by_their_length(policies: Path) -> None:
    """A set is the prefix of a larger one wherever both play the same environments: stopping selects nothing."""
    policy = behaviour.load()["hopper"].policies[0]
    assert environments(1500) == environments(3000)
    short, long = (collect("hopper", policy, size, (0,)) for size in (1500, 3000))
    for key in ("obs", "action", "reward", "mask"):
        np.testing.assert_array_equal(short[key], long[key][:1500])


def test_sizes_and_names() -> None:
    assert len(names()) == 18
    assert [datasets.default_size(f"suite/hopper-{kind}") for kind in datasets.KINDS] == [
        1_000_000, 1_000_000, 1_000_000, 2_000_000, 402_000, 1_000_000
    ]  # fmt: skip
    assert datasets.default_size("suite/walker2d-medium-replay") == 302_000
    assert datasets.default_size("suite/halfcheetah-medium-replay") == 202_000
    counts = [environments(size) for size in (1000, 100_000, 200_000, 1_000_000)]
    assert counts == [16, 16, 48, 128]


def test_cards(policies: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(UniqError, match="has not been made"):
        card(MEDIUM)
    monkeypatch.setattr(datasets, "default_size", lambda name: 1000)
    monkeypatch.setattr(datasets, "names", lambda: [MEDIUM, "suite/walker2d-random"])
    page = tmp_path / "page.md"
    page.write_text(f"before\n{cards.BEGIN}\nold\n{cards.END}\nafter\n")
    cards.main([str(page)])
    text = page.read_text()
    assert "old" not in text
    assert text.startswith("before")
    assert text.endswith("after\n")
    assert f"| `{MEDIUM}` | 1,000 |" in text
    made = card(MEDIUM)
    assert made["transitions"] == 1000
    assert 0 < made["coverage"] < 1
    assert made["mean_score"] <= made["max_score"]
    for path in datasets.cache_folder().iterdir():
        path.unlink()
    assert card(MEDIUM) == made  # from the cards that ship
    with pytest.raises(UniqError, match="markers"):
        cards.inserted("no place", "")


@pytest.mark.parametrize(
    ("name", "size", "seed", "words"),
    [
        ("suite/hopper-mediun", None, 0, "no built-in data set"),
        ("hopper-medium", None, 0, "no built-in data set"),
        ("suite/ant-medium", None, 0, "no built-in data set"),
        (MEDIUM, 999, 0, "at least 1000"),
        (MEDIUM, -5, 0, "at least 1000"),
        (MEDIUM, 1000, -1, "seed"),
    ],
)
def test_impossible_requests(policies: Path, name: str, size: int | None, seed: int, words: str) -> None:
    with pytest.raises(UniqError, match=words):
        make(name, size, seed)


def test_without_policies_the_command_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(behaviour, "PATH", tmp_path / "absent")
    with pytest.raises(UniqError, match="train_behaviour"):
        make(MEDIUM, 1000)


def test_a_folder_that_cannot_be_written(policies: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (policies / "file").write_text("")
    monkeypatch.setenv("UNIQ_RL_DATA", str(policies / "file"))
    with pytest.raises(UniqError, match="cannot be written"):
        make(MEDIUM, 1000)
