"""Tables: every cell equals what raw results give; budgets stay apart, and so does what others published."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from evidence.made_up import costs, made_up, made_up_table
from uniq_rl.errors import UniqError
from uniq_rl.evidence import published
from uniq_rl.evidence.results import RunResult
from uniq_rl.evidence.statistics import interquartile_mean, probability_of_improvement
from uniq_rl.evidence.tables import (
    Table,
    Value,
    ablation_table,
    all_tables,
    controls_table,
    cost_table,
    escaped,
    main_table,
    read_costs,
    regenerated_table,
    to_latex,
    to_markdown,
    to_text,
)
from uniq_rl.evidence.variants import ABLATIONS, METHODS, REGENERATED, SETS, command, in_order
from uniq_rl.evidence.wording import count


def found(table: Table, row: str, column: str) -> Value:
    rows = [line for line in table.rows if line[0].text == row]
    assert len(rows) == 1, f"{len(rows)} rows {row!r}"
    return rows[0][table.columns.index(column)]


def mean_last(runs: list[RunResult], variant: str, name: str) -> list[float]:
    return [run.last for run in runs if (run.variant, run.set) == (variant, name)]


@pytest.fixture(scope="module")
def runs() -> list[RunResult]:
    return made_up_table({"iql": 60.0, "uniq": 64.0, "bc": 40.0})


def test_every_cell_of_table_1_is_recomputed(runs: list[RunResult]) -> None:
    table = main_table(runs)
    assert table.columns[:4] == ["set", "UNIQ, 1k updates", "IQL, 1k updates", "BC, 1k updates"]
    assert [row[0].text for row in table.rows[:9]] == list(SETS)
    for variant, name in (("bc", "BC"), ("iql", "IQL"), ("uniq", "UNIQ")):
        column = f"{name}, 1k updates"
        for data in SETS:
            scores = mean_last(runs, variant, data)
            value = found(table, data, column)
            assert value.number == pytest.approx(np.mean(scores))
            assert value.text == f"{np.mean(scores):.1f} ± {np.std(scores, ddof=1):.1f}"
            assert value.source == "measured"
        own = [run for run in runs if run.variant == variant]
        for row, reading in (
            ("average, last", "last"),
            ("average, mean of the last 10", "mean_of_last"),
            ("average, best (oracle)", "best"),
        ):
            mean = np.mean([getattr(run, reading) for run in own])
            assert found(table, row, column).number == pytest.approx(mean)
        assert found(table, "interquartile mean, last [95 %]", column).number == interquartile_mean(own).point
    chance = probability_of_improvement(
        [run for run in runs if run.variant == "uniq"], [run for run in runs if run.variant == "iql"]
    )
    value = found(table, "P(better than IQL), last [95 %]", "UNIQ, 1k updates")
    assert value.text == f"{chance.point:.2f} [{chance.low:.2f}, {chance.high:.2f}]"
    assert found(table, "data; physics", "IQL, 1k updates").text == "suite; d4rl"


def test_two_budgets_are_two_columns(runs: list[RunResult]) -> None:
    short = made_up_table({"uniq": 30.0}, seeds=(0, 1), steps=300)
    table = main_table(runs + short)
    assert "UNIQ, 1k updates" in table.columns
    assert "UNIQ, 300 updates" in table.columns
    mean = np.mean([run.last for run in short])
    assert found(table, "average, last", "UNIQ, 300 updates").number == pytest.approx(mean)
    assert found(table, "P(better than IQL), last [95 %]", "UNIQ, 300 updates").text == "-"


def test_one_seed_has_no_spread_and_few_sets_say_so() -> None:
    table = main_table([made_up("iql", kind="medium"), made_up("iql", kind="medium-replay")])
    assert re.fullmatch(r"\d+\.\d ± -", found(table, "hopper-medium", "IQL, 1k updates").text)
    assert found(table, "average, last", "IQL, 1k updates").text.endswith("(2 sets)")
    assert found(table, "walker2d-medium", "IQL, 1k updates") == Value("-", None, "not run")
    pooled = found(table, "interquartile mean, last [95 %]", "IQL, 1k updates")
    assert "[" not in pooled.text
    assert "one seed" in pooled.note


def test_the_size_of_an_ensemble_is_noted() -> None:
    run = made_up("sac_n")
    run.recipe.config["critics"] = 50
    assert "50 critics" in found(main_table([run]), "hopper-medium", "SAC-N, 1k updates").note
    assert "critics" not in found(main_table([made_up("iql")]), "hopper-medium", "IQL, 1k updates").note


def test_divergence_is_marked() -> None:
    table = main_table([made_up(seed=0), made_up(seed=1, diverged=True)])
    value = found(table, "hopper-medium", "IQL, 1k updates")
    assert value.text.endswith("†")
    assert "1 diverged" in value.note
    assert found(table, "seeds", "IQL, 1k updates").text == "2 (1 run diverged)"


def test_published_columns_are_apart(runs: list[RunResult]) -> None:
    table = main_table(runs)
    first = table.columns.index("UNIQ (published: the paper)")
    assert table.columns[first + 1] == "IQL (published: CORL)"
    assert all("published" in name for name in table.columns[first:])
    assert not any("published" in name for name in table.columns[:first])
    for row in table.rows:
        assert {value.source for value in row[1:first]} == {"measured"}
        for value in row[first:]:
            assert "D4RL v2" in value.source
            assert "physics" in value.source
            assert not value.command
    assert found(table, "hopper-medium", "IQL (published: CORL)").text == "67.53"
    assert found(table, "average, as published", "UNIQ (published: the paper)").number == 85.2


def test_published_averages_are_the_means_of_their_columns() -> None:
    for column in published.COLUMNS:
        assert set(column.scores) == set(SETS)
        assert np.mean(list(column.scores.values())) == pytest.approx(column.average, abs=0.06)
    assert published.UNTUNED_IQL.scores["walker2d-medium-replay"] == 77.3
    assert published.PAPER_UNIQ.scores["hopper-medium-replay"] == 101.6


def test_measured_values_say_how_to_make_them_again(runs: list[RunResult]) -> None:
    assert command(made_up("iql at 0.63")) == 'uniq-rl bench results/grids/controls.toml --only "iql at 0.63"'
    assert command(made_up("uniq kappa 1")).endswith('ablations.toml --only "uniq kappa 1"')
    assert "regenerated" in command(made_up("iql", kind=REGENERATED))
    for table in all_tables(runs, costs(iql=(100.0, 200.0))).values():
        for row in table.rows:
            scores = [value for value in row if value.source == "measured" and set("±[") & set(value.text)]
            assert all(value.command for value in scores)


def test_the_command_names_the_grid_that_asks_for_the_run(tmp_path: Path) -> None:
    grid = """
        steps = 300
        sets = ["suite/hopper-medium", {name = "suite/walker2d-medium", size = 5}]
        [[entry]]
        variant = "iql"
        [[entry]]
        variant = "uniq"
        steps = 700
    """
    (tmp_path / "some.toml").write_text(grid)
    (tmp_path / "wrong.toml").write_text("entry = 3")
    asked = [("iql", "hopper", 300), ("iql", "walker2d", 300), ("uniq", "hopper", 700)]
    assert all("/some.toml" in command(made_up(v, task, steps=steps), tmp_path) for v, task, steps in asked)
    other = [("iql", "halfcheetah", 300), ("iql", "hopper", 700), ("uniq", "hopper", 300)]
    assert all("/main.toml" in command(made_up(v, task, steps=steps), tmp_path) for v, task, steps in other)


def test_cost_table(runs: list[RunResult]) -> None:
    table = cost_table(
        runs, costs(iql=(100.0, 200.0), uniq=(125.0, 240.0), edac__10=(300.0, 900.0), edac__50=(900.0, 2000.0))
    )
    assert found(table, "UNIQ", "time : IQL (1 run)").text == "1.25"
    assert found(table, "UNIQ", "memory : IQL (1 run)").number == pytest.approx(1.2)
    assert found(table, "UNIQ", "time : IQL (9 runs)").text == "not measured"
    assert found(table, "EDAC (N = 50)", "time : IQL (1 run)").number == 9
    assert found(table, "EDAC (N = 10)", "peak MB (1 run)").text == "900"
    assert found(table, "BC", "time : IQL (1 run)").text == "not measured"
    mean = np.mean([run.last for run in runs if run.variant == "uniq"])
    assert found(table, "UNIQ", "average score, last").text == f"{mean:.1f} (1k updates)"
    assert "made up" in table.caption
    without = cost_table(runs, {})
    assert {row[1].text for row in without.rows} == {"not measured"}
    assert len(without.rows) == len(METHODS) - 1


def test_costs_are_read_from_the_benchmarks_file(tmp_path: Path) -> None:
    path = tmp_path / "costs.json"
    assert read_costs(path) == {}
    path.write_text(json.dumps(costs(iql=(100.0, 200.0))))
    assert read_costs(path)["rows"][0]["method"] == "iql"
    for damaged in ("{", "[]", '{"rows": [{}]}'):
        path.write_text(damaged)
        with pytest.raises(UniqError, match="not the output of benchmarks"):
            read_costs(path)


def test_ablation_table() -> None:
    runs = made_up_table({"uniq": 60.0, "uniq kappa 1": 50.0}, seeds=(0, 1), steps=300)
    table = ablation_table([*runs, *made_up_table({"uniq": 80.0})])
    rows = {(row[0].text, row[1].text): row for row in table.rows}
    assert {name for name, _ in rows} == set(ABLATIONS.values())
    row = rows["κ = 1", "300 updates"]
    expected = np.mean(mean_last(runs, "uniq kappa 1", "hopper-medium-replay"))
    assert row[table.columns.index("hopper-medium-replay")].number == pytest.approx(expected)
    four = ("halfcheetah-medium", "hopper-medium", "hopper-medium-replay", "walker2d-medium")
    means = [np.mean([mean_last(runs, variant, name) for name in four]) for variant in ("uniq kappa 1", "uniq")]
    assert row[-2].number == pytest.approx(means[0])
    assert row[-1].number == pytest.approx(means[0] - means[1])
    assert row[-1].text.startswith("−")
    assert ("full UNIQ", "1k updates") in rows  # the other budget has a row of its own
    assert rows["κ = 2", "-"][2].text == "-"


def test_a_setting_that_full_uniq_has_is_not_compared_with_itself() -> None:
    full = made_up_table({"uniq": 60.0}, seeds=(0, 1), steps=300)
    table = ablation_table([*full, *(replace(run, variant="uniq independent") for run in full)])
    value = found(table, "ensemble = independent", "minus full UNIQ [95 %]")
    assert (value.text, value.number) == ("the same runs", 0.0)


def test_uniq_and_iql_come_first_at_each_budget() -> None:
    mixed = [("dt", 10), ("bc", 300), ("bc", 1000), ("uniq kappa 0", 300), ("uniq one configuration", 1000)]
    mixed += [("uniq", 300), ("iql", 1000), ("uniq", 1000), ("iql", 300), ("something new", 5)]
    order = [("uniq", 1000), ("iql", 1000), ("uniq one configuration", 1000), ("uniq", 300), ("iql", 300)]
    order += [("bc", 1000), ("bc", 300), ("dt", 10), ("uniq kappa 0", 300), ("something new", 5)]
    assert in_order(mixed) == order


def test_one_of_something_is_not_many() -> None:
    assert (count(1, "run"), count(2, "run"), count(1000, "run")) == ("1 run", "2 runs", "1,000 runs")
    one = [made_up("uniq"), made_up("iql", diverged=True)]
    run = made_up("sac_n")
    run.recipe.config["critics"] = 1
    for table in all_tables([*one, run], {}).values():
        for row in table.rows:
            for value in row:
                assert not re.search(r"\b1 \w+s\b", f"{value.text}; {value.note}"), value


def test_controls_table() -> None:
    runs = made_up_table({"uniq": 60.0, "iql at 0.63": 59.0, "uniq fixed tau": 55.0}, seeds=(0, 1), steps=300)
    shape = {"edges": [0.5, 0.7, 0.9], "counts": [1, 3]}
    for run in runs:
        if run.variant == "uniq":
            run.diagnosis["distributions"] = {"tau": shape}
    table = controls_table(runs)
    assert found(table, "UNIQ", "mean τ(s)").number == pytest.approx((0.6 + 3 * 0.8) / 4)
    assert found(table, "UNIQ", "states with u > 1").text == "1 %"
    assert found(table, "IQL at 0.63", "states with u > 1").text == "-"
    averages = [np.mean([run.last for run in runs if run.variant == name]) for name in ("uniq", "iql at 0.63")]
    assert found(table, "IQL at 0.63", "UNIQ minus this [95 %]").number == pytest.approx(averages[0] - averages[1])
    assert found(table, "IQL on 80 % of the data", "average, last").text == "-"
    assert any("oracle" in name for name in table.columns)


def test_regenerated_sets_stand_beside_the_published_ones() -> None:
    runs = [made_up("iql", task, REGENERATED, seed) for task in ("hopper", "walker2d") for seed in (0, 1)]
    table = regenerated_table(runs)
    name = f"hopper-{REGENERATED}"
    assert found(table, name, "IQL, 1k updates").number == pytest.approx(np.mean(mean_last(runs, "iql", name)))
    assert found(table, name, "IQL untuned (published: OfflineRL-Kit)").number == 65.7
    assert len(main_table(runs).columns) == 1 + len(published.COLUMNS)  # they are none of the nine sets


def test_tables_without_any_result() -> None:
    for table in all_tables([], {}).values():
        assert to_text(table)
        assert to_markdown(table)
        assert to_latex(table)


AWKWARD = Table(
    "A_title & more",
    "100 % of $5",
    ["a|b", "x_1", "published"],
    [
        [
            Value("σ ± 1 †", source=""),
            Value("−1.0 < 2", -1.0, command='run "x"'),
            Value("50 %", 50.0, source="elsewhere"),
        ]
    ],
)


def test_latex_is_escaped() -> None:
    text = to_latex(AWKWARD)
    assert r"\caption{A\_title \& more. 100 \% of \$5}" in text
    assert r"$\sigma$ $\pm$ 1 $\dagger$ & $-$1.0 $<$ 2 & 50 \% \\" in text
    assert r"\begin{tabular}{lr|r}" in text
    assert [text.count(rule) for rule in (r"\toprule", r"\midrule", r"\bottomrule")] == [1, 1, 1]
    assert '% made by: run "x"' in text
    assert text.isascii()


def test_latex_of_the_real_tables_is_sound(runs: list[RunResult]) -> None:
    for table in all_tables(runs, costs(iql=(100.0, 200.0), uniq=(125.0, 240.0))).values():
        parts = assert_sound(to_latex(table))
        assert sum(parts) == len(table.columns) - 1
        assert max(parts) <= 6


@pytest.mark.parametrize("text", ["{", "\\", "a_b^c", "100 % & $5 #1", "~", "q̂ and τ̂", "数 é", "[x]", "*", "a\nb", '"'])
def test_latex_of_any_text_is_sound(text: str) -> None:
    assert_sound(to_latex(Table(text, text, [text, text], [[Value(text), Value(text, command=text, source=text)]])))


def test_latex_headings_are_stacked_and_not_numbered_twice(runs: list[RunResult]) -> None:
    text = to_latex(ablation_table(runs))
    assert r"\caption{Ablations (1 of 2). D4RL" in text
    assert r"\shortstack[r]{minus full UNIQ\\ {}[95 \%]}" in text


def test_latex_writes_hats_and_names_what_it_cannot_write() -> None:
    assert escaped("q̂ of τ̂, 数") == r"$\hat{q}$ of $\hat{\tau}$, \texttt{U+6570}"


ALLOWED = {
    *("begin", "end", "centering", "caption", "resizebox", "ifdim", "width", "linewidth", "else", "fi", "toprule"),
    *("midrule", "bottomrule", "textbackslash", "textasciitilde", "textasciicircum", "texttt", "hat", "shortstack"),
    *("pm", "dagger", "times", "tau", "kappa", "sigma", "delta", "Delta", "mu"),
}


def assert_sound(text: str) -> list[int]:
    """What LaTeX would stumble over, without LaTeX; how many cells beside the first the rows of each tabular have."""
    lines = [line for line in text.splitlines() if not line.startswith("%")]  # what is left are no comments
    body = "\n".join(line.removesuffix("%") if line.startswith(r"\resizebox") else line for line in lines)
    assert body.isascii(), sorted({character for character in body if not character.isascii()})
    assert set(re.findall(r"\\([A-Za-z]+)", body)) <= ALLOWED
    plain = re.sub(r"\\([A-Za-z]+|.|\n)", " ", body)  # without commands and escaped characters
    assert not set("%#_^~\\") & set(plain)
    open_braces = 0
    for brace in re.findall(r"[{}]", plain):
        open_braces += 1 if brace == "{" else -1
        assert open_braces >= 0
    assert open_braces == 0
    opened: list[str] = []
    for verb, name in re.findall(r"\\(begin|end)\{(\w+)\}", body):
        if verb == "begin":
            opened.append(name)
        else:
            assert opened.pop() == name
    assert opened == []
    for line in lines:
        assert line.replace(r"\$", "").count("$") % 2 == 0  # mathematics ends where it began
    for formula in re.findall(r"\$([^$]*)\$", body.replace(r"\$", "")):
        assert len(formula) < 15
    counts = []
    for marks, rows in re.findall(r"\\begin\{tabular\}\{([lr|]+)\}\n(.*?)\\end\{tabular\}", body, re.DOTALL):
        cells = [row for row in rows.splitlines() if not re.fullmatch(r"\\(top|mid|bottom)rule", row)]
        assert all(row.endswith(r" \\") and not row.startswith(("[", "*")) for row in cells)
        assert {len(re.findall(r"(?<!\\)&", row)) for row in cells} == {len(marks.replace("|", "")) - 1}
        counts.append(len(marks.replace("|", "")) - 1)
    return counts


def test_markdown_escapes_bars_and_names_sources() -> None:
    text = to_markdown(AWKWARD)
    assert r"| a\|b | x_1 | published |" in text
    assert "| --- | ---: | ---: |" in text
    assert "- published: elsewhere" in text
    assert '- `run "x"`' in text


def test_text_fits_the_terminal(runs: list[RunResult]) -> None:
    table = main_table(runs)
    lines = to_text(table, width=100).split("\n\n")[1:-1]
    assert len(lines) > 1
    assert all(len(line) <= 100 for block in lines for line in block.splitlines())
    assert all(block.startswith("set") for block in lines)


def test_a_ragged_table_is_refused() -> None:
    with pytest.raises(UniqError, match="does not have the 2 cells"):
        Table("t", "c", ["a", "b"], [[Value("x")]])
