"""A list of episodes, as a Gymnasium loop collects them."""

from typing import Any

import numpy as np
import pytest
from logged import Columns, chain

from uniq_rl.data import from_arrays, from_episodes, load_dataset
from uniq_rl.errors import UniqError


def episodes(last: bool = True) -> list[Columns]:
    """The chain as episodes, with or without the observation after the last action."""
    columns, found, start = chain(), [], 0
    for length, terminated in ((3, True), (2, False), (4, True)):
        rows = slice(start, start + length)
        obs = columns["observations"][rows]
        after = columns["next_observations"][start + length - 1 : start + length]
        found.append(
            {
                "obs": np.concatenate([obs, after]) if last else obs,
                "action": columns["actions"][rows],
                "reward": columns["rewards"][rows],
                "terminated": terminated,
                "truncated": not terminated,
            }
        )
        start += length
    return found


def changed(index: int, **changes: Any) -> list[Columns]:
    found = episodes()
    found[index] = found[index] | changes
    return found


def test_one_observation_more_than_actions() -> None:
    data = from_episodes(episodes(), name="mine", task="hopper")
    assert (data.name, data.task) == ("mine", "hopper")
    assert data.fingerprint == from_arrays(chain()).fingerprint
    assert load_dataset(episodes()).fingerprint == data.fingerprint


def test_as_many_observations_as_actions() -> None:
    columns = {key: value for key, value in chain().items() if key != "next_observations"}
    assert from_episodes(episodes(last=False)).fingerprint == from_arrays(columns).fingerprint


def test_both_kinds_together() -> None:
    mixed = [episodes()[0], episodes(last=False)[1], episodes()[2]]
    data = from_episodes(mixed)
    assert data.episode_lengths.tolist() == [3, 1, 4]
    assert data.next_obs[:, 0].tolist() == [1, 2, 3, 101, 201, 202, 203, 204]


def test_a_cut_off_single_step_leads_nowhere() -> None:
    single = {key: value[:1] for key, value in episodes(last=False)[1].items() if np.ndim(value)} | {"terminated": 0}
    assert from_episodes([*episodes(), single]).episodes == 3


def test_flags_per_step_and_other_names() -> None:
    found = changed(0, terminated=[False, False, True], truncated=[False] * 3)
    found[1] = {
        "observations": found[1]["obs"],
        "actions": found[1]["action"],
        "rewards": found[1]["reward"].tolist(),
        "terminations": [False, False],
        "truncations": [False, True],
    }
    del found[2]["truncated"]
    assert from_episodes(found).fingerprint == from_arrays(chain()).fingerprint


def test_action_range() -> None:
    found = [episode | {"action": episode["action"] * 3} for episode in episodes()]
    data = from_episodes(found, action_range=(-3, 3))
    np.testing.assert_allclose(data.action, chain()["actions"], atol=1e-7)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ([], "holds no episode"),
        ([3], "episode 0 is a int but must be a mapping"),
        (changed(1, obs=np.zeros((5, 2))), "episode 1 has 5 observations, 2 actions and 2 rewards"),
        (changed(1, action=np.zeros((1, 1))), "episode 1 has 3 observations, 1 actions and 2 rewards"),
        (changed(1, obs=np.zeros((0, 2)), action=np.zeros((0, 1)), reward=[]), "episode 1 has 0 observations"),
        (changed(2, terminated=[0, 1, 0, 0]), "episode 2: `terminated` is true at step 1 of 4; .* split it"),
        (changed(2, truncated=[0, 1]), "`truncated` has 2 values for 4 steps"),
        (changed(2, terminated=[]), "`terminated` has 0 values for 4 steps"),
        (changed(2, observations=1), "has both `obs` and `observations`"),
        ([{"obs": [[1.0]], "action": [[1.0]], "reward": [1.0]}], "episode 0 has no `terminated`"),
        (changed(0, obs=np.zeros((4, 3))), r"`obs` has rows of different shapes in different episodes"),
        (changed(0, action=["a", "b", "c"]), "episode 0: `action` holds <U1 values"),
        (changed(0, reward=[0, np.nan, 0]), "`reward` is nan at row 1"),
        (changed(0, action=np.zeros((3, 1), dtype=int), obs=[[0, 0]] * 3)[:1], "look discrete"),
    ],
)
def test_faults(given: Any, sentence: str) -> None:
    with pytest.raises(UniqError, match=sentence) as caught:
        from_episodes(given)
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".")
