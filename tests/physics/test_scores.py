"""D4RL's normalised score and the task a name speaks of."""

import numpy as np
import pytest

from uniq_rl.errors import UniqError
from uniq_rl.physics.scores import REFERENCE, score


@pytest.mark.parametrize("task", REFERENCE)
def test_reference_returns_score_0_and_100(task: str) -> None:
    np.testing.assert_allclose(score(task, np.array(REFERENCE[task])), [0.0, 100.0], atol=1e-12)


def test_hand_numbers() -> None:
    assert score("kitchen", 1.0) == 25.0
    assert score("antmaze", 0.5) == 50.0
    # (1600 + 20.272305) / (3234.3 + 20.272305) = 1620.272305 / 3254.572305
    assert score("hopper", 1600.0) == pytest.approx(49.784, abs=1e-3)
    assert score("maze2d-umaze", 92.855) == pytest.approx(50.0)


def test_scalar_and_array() -> None:
    assert isinstance(score("hopper", 3), float)
    many = score("kitchen", [[0, 2], [4, 1]])
    assert isinstance(many, np.ndarray)
    np.testing.assert_array_equal(many, [[0.0, 50.0], [100.0, 25.0]])


def test_unknown_task_names_the_known() -> None:
    with pytest.raises(UniqError, match=r"'swimmer'.*hopper.*maze2d-large"):
        score("swimmer", 1.0)
