"""Grids: what they expand to, which runs share a program, and what is refused before anything runs."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from evidence.tiny import TINY
from uniq_rl import cli
from uniq_rl.errors import UniqError
from uniq_rl.evidence.bench import cohort_id, cohorts
from uniq_rl.evidence.grid import Grid, Job, read_grid, together
from uniq_rl.evidence.results import path_of

ROOT = Path(__file__).resolve().parents[2]
GRIDS, DOCS = ROOT / "results" / "grids", ROOT / "docs"
NINE = 9


def grid_of(folder: Path, text: str) -> Grid:
    (folder / "grid.toml").write_text(text)
    return read_grid(folder / "grid.toml")


def test_a_grid_is_every_entry_on_every_set_with_every_seed(tmp_path: Path) -> None:
    grid = grid_of(tmp_path, TINY)
    assert grid.name == "tiny"
    assert grid.variants == ["uniq", "iql"]
    assert [(job.variants, job.recipe.seed) for job in grid.jobs] == [
        (("uniq",), 0),
        (("uniq",), 1),
        (("iql",), 0),
        (("iql",), 1),
    ]
    recipe = grid.jobs[0].recipe
    assert (recipe.steps, recipe.eval_every, recipe.eval_episodes, recipe.physics) == (40, 20, 1, "d4rl")
    assert recipe.data["name"] == "suite/hopper-random"
    assert recipe.data["size"] == 2000
    assert recipe.config["hidden"] == [8]
    assert recipe.config["decay_steps"] == 40  # what the budget decides is decided
    assert grid.only(["iql"]).variants == ["iql"]
    assert grid.only([]) == grid


def test_a_recipe_survives_the_disk(tmp_path: Path) -> None:
    for job in grid_of(tmp_path, TINY).jobs:
        again = Job.from_json(json.loads(json.dumps(job.to_json())))
        assert again == job
        assert again.recipe.id == job.recipe.id
        assert again.algorithm == job.algorithm
        assert path_of("results", again.recipe) == path_of("results", job.recipe)


def test_the_same_setting_has_one_recipe(tmp_path: Path) -> None:
    """Whole numbers and decimals, the default spelt out, the physics by another name."""

    def recipe(options: str, **changes: str) -> str:
        text = TINY.replace("batch_size = 16 }", f"batch_size = 16{options} }}")
        for old, new in changes.items():
            text = text.replace(old, new)
        return grid_of(tmp_path, text).jobs[-1].recipe.id

    assert recipe(", gamma = 1") == recipe(", gamma = 1.0") != recipe("")
    assert recipe(", expectile = 0.7") == recipe("")
    assert (
        recipe("", tiny='tiny"\nphysics = "gymnasium')
        == recipe("", tiny='tiny"\nphysics = "gymnasium-v4')
        != recipe("")
    )
    assert recipe("", tiny='other"\nphysics = "d4rl') == recipe("")


def test_published_settings_follow_the_set(tmp_path: Path) -> None:
    text = TINY.replace("suite/hopper-random", "suite/hopper-medium-replay")
    assert grid_of(tmp_path, text).jobs[0].recipe.config["tau_max"] == 0.95
    text = text.replace('algo = "uniq"', 'algo = "uniq"\npreset = "none"')
    assert grid_of(tmp_path, text).jobs[0].recipe.config["tau_max"] == 0.9


def test_entries_that_agree_are_one_run_in_two_rows(tmp_path: Path) -> None:
    entry = TINY[TINY.index('[[entry]]\nvariant = "iql"') :]
    grid = grid_of(tmp_path, TINY + entry.replace('"iql"', '"iql again"', 1))
    assert [job.variants for job in grid.jobs[2:]] == [("iql", "iql again")] * 2
    assert grid_of(tmp_path, TINY + entry).jobs == grid_of(tmp_path, TINY).jobs


BAD = {
    "no file": None,
    "not TOML": "name = ",
    "not text": b"\xff\xfe\x00",
    "unknown key": TINY.replace("steps = 40", "steps = 40\nstep = 40"),
    "unknown key of an entry": TINY.replace('algo = "iql"', 'algo = "iql"\ncolour = "red"'),
    "missing key": TINY.replace("seeds = [0, 1]\n", ""),
    "entry without a method": TINY.replace('algo = "iql"\n', ""),
    "no entry": TINY[: TINY.index("[[entry]]")],
    "entry is no table": TINY[: TINY.index("[[entry]]")] + "entry = 3\n",
    "empty list of entries": TINY[: TINY.index("[[entry]]")] + "entry = []\n",
    "unknown method": TINY.replace('algo = "iql"', 'algo = "sarsa"'),
    "method is no text": TINY.replace('algo = "iql"', "algo = 3"),
    "unknown option": TINY.replace("batch_size = 16 }", "batch_sizes = 16 }"),
    "option of another method": TINY.replace("batch_size = 16 }", "kappa = 1 }"),
    "option out of bounds": TINY.replace("batch_size = 16 }", "expectile = 2 }"),
    "option of a wrong type": TINY.replace("batch_size = 16 }", "hidden = 8 }"),
    "word for a number": TINY.replace("batch_size = 16 }", 'gamma = "much" }'),
    "word for a flag": TINY.replace("batch_size = 16 }", 'normalize_obs = "yes" }'),
    "options are no table": TINY.replace("options = { hidden = [8], batch_size = 16 }", "options = 3"),
    "unknown preset": TINY.replace('algo = "iql"', 'algo = "iql"\npreset = "best"'),
    "unknown set": TINY.replace("hopper-random", "hopper-brilliant"),
    "set of nowhere": TINY.replace("suite/hopper-random", "hopper-medium-v2"),
    "set without a policy": TINY.replace("suite/hopper-random", "regenerated/hopper-expert"),
    "set too small": TINY.replace("2000", "20"),
    "size is no number": TINY.replace("2000", '"all"'),
    "unknown key of a set": TINY.replace("size = 2000", "rows = 2000"),
    "set is a number": TINY.replace('{ name = "suite/hopper-random", size = 2000 }', "3"),
    "no sets": TINY.replace('{ name = "suite/hopper-random", size = 2000 }', ""),
    "seed twice": TINY.replace("[0, 1]", "[0, 0]"),
    "negative seed": TINY.replace("[0, 1]", "[-1]"),
    "fractional steps": TINY.replace("steps = 40", "steps = 40.5"),
    "no steps": TINY.replace("steps = 40", "steps = 0"),
    "unknown physics": TINY.replace("steps = 40", 'steps = 40\nphysics = "aristotle"'),
    "one name, two settings": TINY.replace('variant = "iql"', 'variant = "uniq"'),
    "nameless variant": TINY.replace('variant = "iql"', 'variant = " "'),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_grid_is_one_sentence_and_runs_nothing(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, path = BAD[name], tmp_path / "grid.toml"
    if text is not None:
        path.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(SystemExit) as ended:
        cli.main(["bench", str(path), "--results", str(tmp_path / "results")])
    out, err = capsys.readouterr()
    assert ended.value.code == 2
    assert out == ""
    assert err.startswith("uniq-rl: ")
    assert err.count("\n") == 1
    assert "grid.toml" in err
    assert not (tmp_path / "results").exists()


def test_an_unknown_variant_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UniqError, match="no variant 'sarsa'; it has uniq, iql"):
        grid_of(tmp_path, TINY).only(["sarsa"])


def test_several_grids_are_one(tmp_path: Path) -> None:
    """What two grids ask for is one run in the rows of both; the order is theirs."""
    one = grid_of(tmp_path, TINY)
    other = grid_of(tmp_path, TINY.replace('"tiny"', '"other"').replace('variant = "iql"', 'variant = "iql again"'))
    both = together([one, other])
    assert both.name == "tiny, other"
    assert [job.recipe for job in both.jobs] == [job.recipe for job in one.jobs]
    assert [job.variants for job in both.jobs] == [("uniq",)] * 2 + [("iql", "iql again")] * 2
    assert together([one]) == one


def test_grids_that_disagree_on_a_row_are_refused(tmp_path: Path) -> None:
    one, other = grid_of(tmp_path, TINY), grid_of(tmp_path, TINY.replace("batch_size = 16", "batch_size = 32"))
    with pytest.raises(UniqError, match="Two entries named 'uniq' differ on suite/hopper-random"):
        together([one, other])


def test_no_grid_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["bench"])
    assert ended.value.code == 2
    assert capsys.readouterr().err == "uniq-rl: Name at least one grid, say results/grids/main.toml.\n"


# The grids of the published results


def test_published_grids_agree() -> None:
    """All of them are one command, and a row of a table means one thing."""
    grids = [read_grid(path) for path in sorted(GRIDS.glob("*.toml"))]
    assert {job.recipe.id for job in together(grids).jobs} == {job.recipe.id for grid in grids for job in grid.jobs}


@pytest.mark.parametrize("path", sorted(GRIDS.glob("*.toml")), ids=lambda path: path.stem)
def test_published_grids_are_sound(path: Path) -> None:
    grid = read_grid(path)
    assert grid.name == path.stem
    assert path.read_text().startswith("# ")  # says what it is for
    assert re.search(rf"^\| `{grid.name}` \|.*\| {len(grid.jobs)} \|$", (DOCS / "bench.md").read_text(), re.MULTILINE)
    for job in grid.jobs:
        assert job.algorithm.name == job.recipe.method
    planned = cohorts(grid.jobs, 32)
    assert sorted(job.recipe.id for part in planned for job in part) == sorted(job.recipe.id for job in grid.jobs)


def test_what_the_main_comparison_needs() -> None:
    main, controls = read_grid(GRIDS / "main.toml"), read_grid(GRIDS / "controls.toml")
    counts = Counter((name, job.recipe.steps) for job in main.jobs for name in job.variants)
    assert counts == {(name, 1_000_000): NINE * 3 for name in ("uniq", "uniq one configuration", "iql")}
    assert {"iql at 0.63", "iql at 0.66", "uniq fixed tau", "iql on 80 %"} <= set(controls.variants)
    one = [job.recipe.config for job in main.only(["uniq one configuration"]).jobs]
    assert all(config == one[0] for config in one)
    assert (one[0]["kappa"], one[0]["tau_max"], one[0]["calibrate"]) == (0.5, 0.9, "disagreement")
    iql, uniq = (next(job for job in controls.jobs if name in job.variants) for name in ("iql on 80 %", "uniq"))
    assert iql.algorithm.folds == uniq.algorithm.folds
    baselines = read_grid(GRIDS / "baselines.toml")
    assert all(job.recipe.config["critics"] <= 50 for job in baselines.only(["sac_n"]).jobs)


# Cohorts


def test_runs_of_equal_structure_share_a_program() -> None:
    planned = cohorts(read_grid(GRIDS / "main.toml").jobs, 32)
    assert [len(part) for part in planned] == [9, 18] * 3  # hopper's widths are its own
    for part in planned:
        assert len({job.variants for job in part}) == 1  # here; what is calibrated on is part of the program
    controls = cohorts(read_grid(GRIDS / "controls.toml").only(["iql", "iql at 0.63", "iql at 0.66"]).jobs, 100)
    assert [len(part) for part in controls] == [18, 36]  # expectiles are numbers, so they share one


def test_a_cohort_has_a_limit_and_its_parts_are_even() -> None:
    jobs = read_grid(GRIDS / "main.toml").only(["uniq"]).jobs
    assert [len(part) for part in cohorts(jobs, 8)] == [4, 5, 6, 6, 6]
    assert [len(part) for part in cohorts(jobs, 1)] == [1] * 27
    parts = cohorts(jobs, 8)
    assert len({cohort_id(part) for part in parts}) == len(parts)
    assert cohorts(jobs, 8) == parts
