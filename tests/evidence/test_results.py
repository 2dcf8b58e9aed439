"""Raw results on disk: what is written is read back, and what does not belong is refused."""

import json
from pathlib import Path

import numpy as np
import pytest

from evidence.made_up import made_up, made_up_table
from uniq_rl.errors import UniqError
from uniq_rl.evidence.results import chosen, path_of, read_result, read_results, write_result


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    results = made_up_table({"iql": 60.0, "uniq": 70.0}, seeds=(0, 1))
    for result in results:
        write_result(tmp_path, result)
    found = read_results(tmp_path)
    assert {r.recipe.id for r in found} == {r.recipe.id for r in results}
    assert len(found) == len(results) == 36
    by_id = {r.recipe.id: r for r in results}
    assert all(r == by_id[r.recipe.id] for r in found)
    assert len(chosen(found, ["uniq"])) == 18
    assert chosen(found, ["uniq"], steps=5) == []


def test_the_recipe_is_the_identity() -> None:
    assert made_up(seed=1).recipe.id == made_up(seed=1, mean=99.0).recipe.id
    assert len({made_up(seed=seed, kind=kind).recipe.id for seed in range(5) for kind in ("medium", "expert")}) == 10


def test_scores_of_a_run() -> None:
    result = made_up(evaluations=12)
    assert result.last == result.evaluations[-1]["score"]
    assert result.mean_of_last == pytest.approx(np.mean([line["score"] for line in result.evaluations[2:]]))
    assert result.best == max(line["score"] for line in result.evaluations)
    failed = made_up(diverged=True)
    assert result.mean_of_all == pytest.approx(np.mean([line["score"] for line in result.evaluations]))
    assert (failed.last, failed.mean_of_last, failed.mean_of_all, failed.best) == (0, 0, 0, 0)


def test_what_is_no_result_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UniqError, match="holds no results"):
        read_results(tmp_path)
    path = write_result(tmp_path, made_up())
    content = json.loads(path.read_text())
    for change, message in (
        ({"format": "other"}, "not a result this version reads"),
        ({"evaluations": []}, "no evaluation"),
        ({"recipe": {**content["recipe"], "seed": 7}}, "renamed or edited"),
        ({"surprise": 1}, "damaged"),
    ):
        path.write_text(json.dumps({**content, **change}))
        with pytest.raises(UniqError, match=message):
            read_result(path)
    path.write_text("{")
    with pytest.raises(UniqError, match="damaged"):
        read_result(path_of(tmp_path, made_up().recipe))
