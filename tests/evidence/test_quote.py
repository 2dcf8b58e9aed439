"""Quoted tables: every number of a text is what the raw files say, and the project's own texts are up to date."""

import dataclasses
import shutil
from pathlib import Path

import pytest
from made_up import costs, made_up

from uniq_rl.cli import main
from uniq_rl.errors import UniqError
from uniq_rl.evidence.claims import verdicts
from uniq_rl.evidence.quote import quoted, write_quotes
from uniq_rl.evidence.results import RunResult, write_result
from uniq_rl.evidence.tables import controls_table

ROOT = Path(__file__).parents[2]
MADE_UP = costs(iql=(100.0, 50.0), sac_n__10=(250.0, 80.0))


def scored(variant: str, kind: str, seed: int, score: float | None) -> RunResult:
    result = made_up(variant, "hopper", kind, seed, diverged=score is None)
    return dataclasses.replace(result, evaluations=[*result.evaluations[:-1], {"step": 1000, "score": score}])


RESULTS = [
    scored("iql", "medium", 1, 41.26),
    scored("iql", "medium", 0, 40.0),
    scored("iql", "medium-replay", 0, 30.0),
    scored("iql", "medium-replay", 1, None),
    scored("uniq one configuration", "medium", 0, 50.0),
    scored("uniq one configuration", "medium", 1, 52.0),
]


def block(content: str, inside: str = "") -> str:
    return f"Before.\n\n<!-- quote: {content} -->\n{inside}<!-- /quote -->\n\nAfter.\n"


@pytest.mark.parametrize(
    ("content", "table"),
    [
        (
            "seeds iql@1000",
            "| built-in set | IQL |\n| --- | ---: |\n| hopper-medium | 40.0 / 41.3 |\n"
            "| hopper-medium-replay | 30.0 / failed |\n",
        ),
        (
            "methods iql@1000, uniq one configuration@1000",
            "| method | hopper-medium |\n| --- | ---: |\n| IQL | 40.0 / 41.3 |\n"
            "| UNIQ one configuration | 50.0 / 52.0 |\n",
        ),
        (
            "scores iql@1000",
            "| built-in set | IQL |\n| --- | ---: |\n| hopper-medium | 40.6 ± 0.9 |\n"
            "| hopper-medium-replay | 15.0 ± 21.2 † |\n| **average** | **27.8** |\n",
        ),
        (
            "scores hopper-medium, iql@1000",
            "| built-in set | IQL |\n| --- | ---: |\n| hopper-medium | 40.6 ± 0.9 |\n| **average** | **40.6** |\n",
        ),
        (
            "costs sac_n-10, iql",
            "| configuration | updates/s, 1 run | time : IQL, 1 run | time : IQL, 9 runs | peak MB, 1 run | "
            "peak : IQL, 1 run |\n| --- | ---: | ---: | ---: | ---: | ---: |\n"
            "| SAC-N (N = 10) | 4,000 | 2.50 | not measured | 80 | 1.60 |\n"
            "| IQL | 10,000 | 1.00 | not measured | 50 | 1.00 |\n",
        ),
    ],
)
def test_by_hand(content: str, table: str) -> None:
    expected = block(content, table)
    assert quoted(block(content), RESULTS, MADE_UP) == expected
    assert quoted(block(content, "| old |\n"), RESULTS, MADE_UP) == expected
    assert quoted(expected + expected, RESULTS, MADE_UP) == expected + expected
    example = f"    <!-- quote: {content} -->\n"
    assert quoted(example, RESULTS, MADE_UP) == example


def test_means_and_gaps_by_hand() -> None:
    """Two seeds of two evaluations each; Welch's t has 2 degrees of freedom here, so its reach is 4.303 x sqrt(2)."""

    def run(variant: str, seed: int, *scores: float) -> RunResult:
        lines = [{"step": 500 * (i + 1), "score": score} for i, score in enumerate(scores)]
        return dataclasses.replace(made_up(variant, seed=seed), evaluations=lines)

    runs = [run("uniq", 0, 10, 50), run("uniq", 1, 20, 52), run("iql", 0, 36, 40), run("iql", 1, 40, 42)]
    means = "| built-in set | UNIQ |\n| --- | ---: |\n| hopper-medium | 33.0 ± 4.2 |\n| **average** | **33.0** |\n"
    assert quoted(block("means uniq@1000"), runs, MADE_UP) == block("means uniq@1000", means)
    gaps = (
        "| built-in set | UNIQ | IQL | UNIQ minus IQL [95 %] |\n| --- | ---: | ---: | ---: |\n"
        "| hopper-medium | 51.0 | 41.0 | +10.0 [+3.9, +16.1] |\n"
        "| average, last | 51.0 | 41.0 | +10.0 [+8.0, +12.0] |\n"
        "| average, mean of the last 10 | 33.0 | 39.5 | −6.5 [−11.0, −2.0] |\n"
        "| average, mean of all evaluations | 33.0 | 39.5 | −6.5 [−11.0, −2.0] |\n"
    )
    assert quoted(block("gaps uniq@1000, iql@1000"), runs, MADE_UP) == block("gaps uniq@1000, iql@1000", gaps)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (block("medians iql@1000"), "no table 'medians'"),
        (block("seeds iql@2000"), "no runs of 'iql' with 2000 updates"),
        (block("seeds iql"), "with no updates; write it as"),
        (block("seeds"), "no runs of ''"),
        (block("mechanism iql@1000, iql@1000"), "of one variant"),
        (block("curves iql@1000"), "share 2 data sets"),
        (block("gaps iql@1000"), "between two variants, not 1"),
        (block("seeds hopper-medium"), "names no runs"),
        (block("seeds walker2d-medium, iql@1000"), "not all run on walker2d-medium"),
        (block("table 4"), "no table '4' on the page, only table-1"),
        (block("costs edac-50"), "cost of 'edac-50' was not measured"),
        ("<!-- quote: seeds iql@1000 -->\n", "of its own"),
        ("<!-- /quote -->\n", "of its own"),
        (block("seeds iql@1000", "<!-- quote: seeds iql@1000 -->\n"), "of its own"),
    ],
)
def test_what_cannot_be_quoted_is_said(text: str, sentence: str) -> None:
    with pytest.raises(UniqError, match=sentence):
        quoted(text, RESULTS, MADE_UP)


def test_tables_and_verdicts_of_the_page() -> None:
    runs = [*RESULTS, scored("uniq", "medium", 0, 45.0), scored("uniq", "medium", 1, 47.0)]
    text = quoted(block("verdicts") + block("table controls") + block("mechanism uniq@1000"), runs, MADE_UP)
    lines = text.splitlines()
    assert "| claim | verdict | what was measured |" in lines
    assert "| --- | --- | --- |" in lines
    for verdict in verdicts(runs, MADE_UP):
        assert f"| {verdict.claim} | **{verdict.verdict}** | {verdict.why} |" in lines
    for row in controls_table(runs).rows:
        assert f"| {' | '.join(value.text for value in row)} |" in lines
    (curve,) = (line for line in quoted(block("curves uniq@1000"), runs, MADE_UP).splitlines() if "| 1,000 |" in line)
    assert curve == "| 1,000 | 45.0 | 47.0 |"
    assert "| hopper-medium | 1 % | - | - | 88.0 % | - |" in lines


def test_one_bad_text_leaves_all_as_they_are(tmp_path: Path) -> None:
    for result in RESULTS:
        write_result(tmp_path, result)
    good, bad = tmp_path / "good.md", tmp_path / "bad.md"
    good.write_text(block("seeds iql@1000"))
    bad.write_text(block("seeds cql@1000"))
    with pytest.raises(UniqError, match=r"bad\.md: there are no runs of 'cql'"):
        write_quotes(tmp_path, [good, bad], MADE_UP)
    assert good.read_text() == block("seeds iql@1000")
    with pytest.raises(UniqError, match="cannot be read"):
        write_quotes(tmp_path, [tmp_path / "none.md"], MADE_UP)
    assert write_quotes(tmp_path, [good], MADE_UP) == [good]
    assert "40.0 / 41.3" in good.read_text()
    assert write_quotes(tmp_path, [good], MADE_UP) == []


def test_the_projects_own_texts_quote_what_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [
        path
        for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
        if "<!-- quote:" in path.read_text()
    ]
    assert len(texts) >= 10
    copies = [Path(shutil.copy(path, tmp_path)) for path in texts]
    monkeypatch.chdir(ROOT)
    with pytest.raises(SystemExit) as stopped:
        main(["report", "results", "-o", str(tmp_path / "page.html"), "--quote", *map(str, copies)])
    assert stopped.value.code == 0
    for path, copy in zip(texts, copies, strict=True):
        assert copy.read_text() == path.read_text(), f"{path.name} is out of date: uniq-rl report results --quote"
