"""The page: built from made-up results and trainings, read as HTML, and used in a real browser."""

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, get_args

import pytest
import recomputed
from browser import Browser, chromium
from report_results import diagnosed, whole_grid
from test_evidence_tables import assert_sound
from test_figures import CASES, training_folder

from evidence.made_up import KINDS, TASKS, made_up
from uniq_rl import cli
from uniq_rl.errors import UniqError
from uniq_rl.evidence import page
from uniq_rl.evidence.claims import Judgement
from uniq_rl.evidence.page import write_report
from uniq_rl.evidence.results import RunResult, write_result
from uniq_rl.evidence.training_page import train_command

HOSTILE = "</script><script>alert(1)</script>"
COSTS = [
    {"method": method, "runs": runs, "microseconds_per_update": time, "run_updates_per_second": 1e6 / time}
    | {"peak_megabytes_beyond_data": memory, "chunk": chunk}
    for method, runs, chunk, time, memory in (
        ("iql", 1, 1000, 135.6, 236.0),
        ("iql", 9, 1000, 38.2, 260.0),
        ("uniq", 1, 1000, 183.7, 235.0),
        ("uniq", 9, 1000, 61.1, 700.0),
        ("iql", 1, 500, 139.1, 240.0),
        ("edac-10", 1, 500, 420.0, 300.0),
        ("edac-50", 1, 50, 901.0, 1200.0),
    )
]


def small_grid() -> list[RunResult]:
    """Enough to fill every table: two budgets, a seed that diverged, a set with fewer seeds, regenerated sets."""
    runs = [
        made_up(variant, task, kind, seed, 1_000_000, mean, evaluations=20)
        for variant, mean in {"bc": 45.0, "iql": 66.0, "uniq": 67.0, "uniq one configuration": 68.0}.items()
        for task in TASKS
        for kind in KINDS
        for seed in (0, 1, 2)
    ]
    runs += [
        made_up(variant, task, kind, seed, 300_000, mean, evaluations=12)
        for variant, mean in {"iql": 60.0, "uniq": 62.0, "iql at 0.63": 61.0, "uniq fixed tau": 59.0}.items()
        for task in TASKS
        for kind in KINDS
        for seed in (0, 1)
    ]
    runs += [made_up("uniq kappa 0", task, "medium", 0, 300_000, 55.0) for task in ("hopper", "walker2d")]
    runs += [made_up("edac", "hopper", kind, 0, 300_000, -2.0) for kind in KINDS]
    for variant in ("iql", "uniq"):
        runs += [made_up(variant, task, "medium (regenerated)", seed, 1_000_000) for task in TASKS for seed in (0, 1)]
    runs += [made_up(HOSTILE, "hopper", "medium", 0, 300_000, 10.0)]
    broken = next(i for i, run in enumerate(runs) if (run.variant, run.set) == ("bc", "hopper-medium"))
    runs[broken] = made_up("bc", "hopper", "medium", 0, 1_000_000, 45.0, evaluations=20, diverged=True)
    return [diagnosed(run) for run in runs]


def results_folder(folder: Path, runs: list[RunResult]) -> Path:
    for run in runs:
        write_result(folder, run)
    return folder


class Seen(HTMLParser):
    """Well-formed enough that every element that must be closed is, in order."""

    VOID = ("meta", "link", "input", "br")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.cells: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.ids += [str(value) for name, value in attrs if name == "id"]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    @classmethod
    def of(cls, path: Path) -> "Seen":
        seen = cls()
        seen.feed(path.read_text(encoding="utf-8"))
        seen.close()
        assert seen.open == []
        assert len(seen.ids) == len(set(seen.ids))
        return seen


def assert_self_contained(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    outside = re.compile(r"""(src|href|action|data|poster|srcset)\s*=\s*["']?\s*(https?:)?//""", re.IGNORECASE)
    assert not outside.search(text)
    assert not re.search(r"@import|url\(\s*['\"]?(https?:)?//|\bfetch\(|XMLHttpRequest|WebSocket|import\(", text)
    for tag, attributes in Seen.of(path).tags:
        for name in ("src", "href"):
            assert (attributes.get(name) or "#").startswith(("#", "data:")), (tag, attributes)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return results_folder(tmp_path_factory.mktemp("small") / "results", small_grid())


@pytest.fixture
def costs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working folder in which costs were measured."""
    place = tmp_path / "benchmarks" / "results"
    place.mkdir(parents=True)
    (place / "methods-h200.json").write_text(json.dumps({"rows": COSTS, "hardware": {"device": "made up"}}))
    monkeypatch.chdir(tmp_path)


# Building


def test_one_file_that_refers_to_nothing_outside(tmp_path: Path, results: Path) -> None:
    out = tmp_path / "report.html"
    assert write_report(results, out) == [out]
    assert_self_contained(out)
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_hostile_names_stay_text(tmp_path: Path, results: Path) -> None:
    out = tmp_path / "report.html"
    write_report(results, out)
    text = out.read_text(encoding="utf-8")
    assert "alert(1)" in text
    assert HOSTILE not in text
    assert len([tag for tag, _ in Seen.of(out).tags if tag == "script"]) == 2


def test_markdown_and_latex(tmp_path: Path, results: Path) -> None:
    files = [tmp_path / name for name in ("report.html", "tables.md", "tables.tex")]
    assert write_report(results, *files) == files
    markdown, latex = (path.read_text(encoding="utf-8") for path in files[1:])
    for title in ("cores on the nine sets", "ost", "blations", "Controls", "Statistics over sets", "Rank correlation"):
        assert title in markdown
        assert title in latex
    columns = [line.count(" | ") for line in markdown.splitlines() if line.startswith("| ---")]
    assert sum(assert_sound(latex)) == sum(columns)
    assert len(columns) == markdown.count("### ")


def test_figures(tmp_path: Path, results: Path) -> None:
    written = write_report(results, figures=tmp_path / "new" / "figures")
    assert {path.name for path in written} >= {"figure-1b.png", "figure-2.png", "calibration.png"}
    assert all(path.stat().st_size and path.with_suffix(".svg").stat().st_size for path in written)
    training_folder(tmp_path / "training")
    with pytest.raises(UniqError, match="no results"):
        write_report(tmp_path / "training", figures=tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_every_judgement_has_a_badge(tmp_path: Path, results: Path) -> None:
    write_report(results, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    badges = set(re.findall(r'class="badge ([^"]+)"', text))
    assert badges <= {judgement.replace(" ", "-") for judgement in get_args(Judgement)}
    assert all(f".badge.{judgement.replace(' ', '-')} " in text for judgement in get_args(Judgement))


def test_a_run_in_two_rows_is_counted_once(tmp_path: Path) -> None:
    run = replace(made_up("uniq"), also=["uniq independent"])
    files = [tmp_path / "report.html", tmp_path / "tables.md"]
    write_report(results_folder(tmp_path / "results", [run]), *files)
    text = files[0].read_text(encoding="utf-8")
    assert "1 method on 1 data set, 1 run." in text
    assert text.count('class="run cell-run"') == 2
    assert "| hopper-medium | suite/hopper-medium | d4rl | 1,000 | 10 | hoppermedium | 1 |" in files[1].read_text()


def test_the_same_files_give_the_same_page(tmp_path: Path, results: Path) -> None:
    for name in ("a.html", "b.html"):
        write_report(results, tmp_path / name)
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_a_whole_grid_fits_one_page(tmp_path: Path) -> None:
    runs = whole_grid()
    assert len(runs) > 370
    out = tmp_path / "report.html"
    write_report(results_folder(tmp_path / "results", runs), out)
    assert out.stat().st_size < 8_000_000
    assert out.read_text(encoding="utf-8").count('class="run cell-run"') == len(runs)


def test_one_run_is_a_page_that_says_what_is_missing(tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    write_report(results_folder(tmp_path / "results", [made_up()]), out)
    text = out.read_text(encoding="utf-8")
    assert text.count("Not measured") >= 4
    assert "not tested" in text


def test_a_policy_without_a_rank_correlation_is_shown_all_the_same(tmp_path: Path) -> None:
    run = diagnosed(made_up("uniq"))
    error = {"rows": 0, "left_out": 10, "rank_correlation": None, "sigma": [], "error": []}
    odd = replace(run, diagnosis=run.diagnosis | {"error": error})
    write_report(results_folder(tmp_path / "results", [odd]), tmp_path / "report.html")
    assert "no finished policy" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize("case", CASES)
def test_a_training_folder(tmp_path: Path, case: str) -> None:
    out = tmp_path / "report.html"
    files = [out, tmp_path / "tables.md", tmp_path / "tables.tex"]
    write_report(training_folder(tmp_path / "run", **CASES[case]), *files)
    assert_self_contained(out)
    text = out.read_text(encoding="utf-8")
    assert "toy-v0" in text
    assert ("Coverage was not measured" in text) == (case == "no held-out fold")
    if case == "full":
        assert "the mechanism hardly switches on" in text
        assert "| seed 2 | toy-v0 | 2 | 42.0 | 32.0 | 42.0 | no | 0.4 % | 2 | 91.0 % |" in files[1].read_text()
    if case == "one diverged":
        assert "| seed 1 | toy-v0 | 1 | - | - | - | diverged by 700 | 0.4 % | 2 | 91.0 % |" in files[1].read_text()


def test_the_command_of_a_training_makes_the_same_training(tmp_path: Path) -> None:
    options = ["--tau-max", "0.95", "--hidden", "32", "32", "--normalize-obs", "--calibrate", "disagreement"]
    options += ["--steps", "500", "--seeds", "7", "--eval-every", "100", "--physics", "gymnasium-v5", "--size", "2000"]
    given, algorithm = cli.parse_train(["suite/hopper-medium-replay", *options])
    description = {
        "algorithm": "uniq",
        "plan": {"steps": 500, "eval_every": 100, "eval_episodes": 10, "log_every": 1000, "physics": "gymnasium-v5"},
    }
    origin = {"source": "suite/hopper-medium-replay", "size": 2000}
    config = json.loads(json.dumps(page.training_page.config_of(algorithm)))
    run = {"seed": 7, "config": config, "data": {"origin": origin, "task": "hopper"}}
    words = shlex.split(train_command(description, run))
    assert words[:2] == ["uniq-rl", "train"]
    again, other = cli.parse_train(words[2:])
    assert page.training_page.config_of(other) == page.training_page.config_of(algorithm)
    assert replace(again, preset="paper", task=None) == given
    assert train_command(description, run | {"data": {"origin": None}}) == ""


# Errors


def damaged(folder: Path) -> Path:
    path = write_result(folder, made_up())
    path.write_text(path.read_text()[:200])
    return folder


def odd(folder: Path) -> Path:
    run = made_up("uniq")
    write_result(folder, replace(run, calibration=[{"steps": 3}]))
    return folder


def damaged_training(folder: Path) -> Path:
    training_folder(folder)
    (folder / "records.jsonl").write_text('{"kind": "metrics", "run": "0", "step": "no", "q": 1}\n')
    return folder


def empty(folder: Path) -> Path:
    folder.mkdir()
    return folder


@pytest.mark.parametrize(
    ("make", "phrase"),
    [
        (lambda folder: folder, "There is no folder"),
        (empty, "holds neither results"),
        (damaged, "damaged"),
        (odd, "damaged"),
        (damaged_training, "damaged"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], make: Any, phrase: str
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    assert_refused(["report", str(make(tmp_path / "results")), "-o", str(out / "report.html")], phrase, capsys)
    assert list(out.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "phrase"),
    [
        (["-o", "absent/report.html"], "there is no folder"),
        (["-o", "."], "it is a folder"),
        (["-o", "a.html", "--markdown", "absent/a.md"], "there is no folder"),
        (["-o", "a.html", "--latex", "./a.html"], "need a file each"),
        (["-o", "a.html", "--figures", __file__], "it is a file"),
    ],
)
def test_what_cannot_be_written_is_one_sentence(
    tmp_path: Path,
    results: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    phrase: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert_refused(["report", str(results), *options], phrase, capsys)
    assert list(tmp_path.iterdir()) == []


def assert_refused(arguments: list[str], phrase: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2
    said = capsys.readouterr().err.strip()
    assert phrase in said
    assert said.startswith("uniq-rl: ")
    assert said.endswith(".")
    assert "\n" not in said


def test_a_full_disk_leaves_no_half_page(tmp_path: Path, results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(UniqError, match="No space left"):
        write_report(results, tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []


def test_the_command(tmp_path: Path, results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "page.html"
    with pytest.raises(SystemExit) as ended:
        cli.main(["report", str(results), "-o", str(out), "--markdown", str(tmp_path / "t.md")])
    assert ended.value.code == 0
    assert capsys.readouterr().out.count("Written: ") == 2
    assert out.is_file()


# In a browser


@pytest.fixture(scope="module")
def chromium_page() -> Iterator[Browser]:
    program = chromium()
    if program is None:
        pytest.skip("no Chromium on PATH: install Debian's package `chromium` to test the page in a browser")
    browser = Browser(program)
    yield browser
    browser.close()


@pytest.fixture
def browser(chromium_page: Browser) -> Iterator[Browser]:
    chromium_page.complaints.clear()
    chromium_page.requests.clear()
    chromium_page.window(1400, 900)
    yield chromium_page
    assert chromium_page.complaints == []
    assert [url for url in chromium_page.requests if not url.startswith(("file:", "data:"))] == []


TABLES = """Object.fromEntries([...document.querySelectorAll("table")].map((table) => [
    table.id.replace("table-", ""),
    [...table.rows].map((row) => [...row.cells].map((cell) => cell.innerText.trim()))
]))"""


CONTROLS = {
    "uniq": "UNIQ",
    "iql": "IQL (0.7)",
    "uniq one configuration": "UNIQ one configuration",
    "iql at 0.63": "IQL at 0.63",
    "iql at 0.66": "IQL at 0.66",
    "uniq fixed tau": "UNIQ, fixed τ = 0.9",
    "iql on 80 %": "IQL on 80 % of the data",
}
ABLATIONS = {
    "uniq": "full UNIQ",
    "uniq fixed tau": "fixed τ = 0.9",
    "uniq raw sigma": "raw σ (no conformal)",
    "uniq kappa 0": "κ = 0",
    "uniq kappa 1": "κ = 1",
    "uniq kappa 2": "κ = 2",
    "uniq 1 member": "N_v = 1",
    "uniq 5 members": "N_v = 5",
    "uniq primary": "reading = primary",
    "uniq disagreement": "calibrate = disagreement",
    "uniq low rank": "ensemble = low-rank",
    "uniq independent": "ensemble = independent",
}
TIMED = {
    "uniq": "UNIQ",
    "iql": "IQL",
    "bc": "BC",
    "td3_bc": "TD3+BC",
    "cql": "CQL",
    "rebrac": "ReBRAC",
    "sac_n": "SAC-N",
    "edac-10": "EDAC (N = 10)",
    "edac-50": "EDAC (N = 50)",
    "dt": "DT (4096 windows)",
}


@pytest.mark.usefixtures("costs")
def test_every_cell_equals_what_the_raw_files_say(tmp_path: Path, results: Path, browser: Browser) -> None:
    write_report(results, tmp_path / "report.html")
    browser.open(tmp_path / "report.html")
    shown = browser.run(TABLES)
    runs = recomputed.read(results)
    sets = [*recomputed.SETS, *recomputed.REGENERATED]
    expected = {
        "table-1": recomputed.main_table(runs),
        "statistics": recomputed.statistics_table(runs),
        "errors": recomputed.error_table(
            runs, ["uniq", "iql", "uniq one configuration", "uniq fixed tau", "uniq kappa 0"], sets
        ),
        "table-2": recomputed.cost_table(runs, COSTS, TIMED),
        "table-3": recomputed.ablation_table(runs, ABLATIONS),
        "controls": recomputed.controls_table(runs, CONTROLS),
        "regenerated": recomputed.regenerated_table(runs),
        "runs": recomputed.run_table(runs),
        "sets": recomputed.set_table(runs),
        "published": recomputed.published_table(),
    }
    assert set(shown) == set(expected)
    for name, rows in expected.items():
        found = shown[name]
        if len(found) == len(rows) + 1:  # its header holds no number, and the recomputed table leaves it out
            found = found[1:]
        assert found == rows, name
    assert sum(len(row) for rows in expected.values() for row in rows) > 2000


def test_a_person_uses_the_page(tmp_path: Path, results: Path, browser: Browser) -> None:
    write_report(results, tmp_path / "report.html")
    browser.open(tmp_path / "report.html")
    sort_a_column(browser)
    toggle_a_method(browser)
    open_a_command(browser)
    read_a_curve(browser)
    open_a_run(browser)
    switch_the_theme(browser)
    browser.click("[data-published='table-table-1']")
    assert browser.run("getComputedStyle(document.querySelector('#table-table-1 td.published')).display") == "none"
    browser.run("document.querySelector('#search-runs').focus()")
    browser.call("Input.insertText", text="edac expert")
    rows = browser.run("[...document.querySelectorAll('#table-runs tbody tr')].filter((row) => !row.hidden).length")
    assert rows == 1


def column(browser: Browser, table: str, number: int, pinned: bool = False) -> list[str]:
    kind = ".pinned" if pinned else ":not(.pinned)"
    script = f"[...document.querySelectorAll('#table-{table} tbody tr{kind}')].map((r) => r.cells[{number}].innerText)"
    return list(browser.run(script))


def sort_a_column(browser: Browser) -> None:
    pinned = column(browser, "table-1", 0, pinned=True)
    heading = "#table-table-1 thead th:nth-child(3)"
    browser.click(f"{heading} button")
    values = [float(text.split()[0]) for text in column(browser, "table-1", 2)]
    assert values == sorted(values)
    assert browser.run(f"document.querySelector('{heading}').getAttribute('aria-sort')") == "ascending"
    browser.click(f"{heading} button")
    values = [float(text.split()[0]) for text in column(browser, "table-1", 2)]
    assert values == sorted(values, reverse=True)
    assert column(browser, "table-1", 0, pinned=True) == pinned
    browser.click("#table-runs thead th:nth-child(9) button")  # u > 1, which most methods do not have
    shares = column(browser, "runs", 8)
    known = [float(text.split()[0]) for text in shares if text != "-"]
    assert known == sorted(known)
    assert shares == [text for text in shares if text != "-"] + ["-"] * shares.count("-")


def toggle_a_method(browser: Browser) -> None:
    browser.place("#curves-charts figure")
    browser.wait("document.querySelector('#curves-charts figure svg path.line')")
    lines = "document.querySelectorAll('#curves-charts figure:first-of-type svg path.line').length"
    before = browser.run(lines)
    button = "#curves-charts button[data-series='bc@1000000']"
    assert browser.run(f'document.querySelector("{button}").ariaPressed') == "false"
    browser.click(button)
    assert browser.run(f'document.querySelector("{button}").ariaPressed') == "true"
    assert browser.run(lines) == before + 1
    browser.click(button)
    assert browser.run(lines) == before


def open_a_command(browser: Browser) -> None:
    cell = "#table-table-1 tbody tr:first-child td:nth-child(3) button"
    hidden = "document.querySelector('#detail').hidden"
    assert browser.run(hidden)
    browser.click(cell)
    assert not browser.run(hidden)
    command = "uniq-rl bench results/grids/main.toml --only "
    assert browser.run("document.querySelector('#detail pre').innerText").startswith(command)
    assert "3 seeds" in browser.run("document.querySelector('#detail .source').innerText")
    browser.call("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    browser.click("#detail .copy")
    browser.wait("document.querySelector('#detail .copy').innerText === 'Copied'")
    browser.press("Escape")
    assert browser.run(hidden)
    # The same without a pointer: focus shows it, Enter goes to the button that copies, Escape goes back.
    browser.run(f"document.querySelector('{cell}').blur(), document.querySelector('{cell}').focus()")
    assert not browser.run(hidden)
    browser.press("Enter")
    assert browser.run("document.activeElement.className") == "copy"
    browser.press("Escape")
    assert browser.run(hidden)
    assert browser.run("document.activeElement.className") == "cell"


def read_a_curve(browser: Browser) -> None:
    chart = "#curves-charts figure:first-of-type"
    browser.hover(f"{chart} svg")
    assert "UNIQ, 1M" in browser.run(f"document.querySelector('{chart} .readout').innerText")
    boxes = (
        f"['{chart} > svg', '{chart} .readout'].map((s) => document.querySelector(s).getBoundingClientRect().toJSON())"
    )
    picture, readout = browser.run(boxes)
    assert picture["top"] <= readout["top"] <= picture["bottom"]
    assert readout["left"] >= picture["left"] - 1
    assert readout["right"] <= picture["right"] + 1
    browser.run(f"document.querySelector('{chart} svg').focus()")
    browser.press("Home")
    assert browser.run(f"document.querySelector('{chart} .readout b').innerText") == "50k updates"
    browser.press("ArrowRight")
    said = browser.run(f"document.querySelector('{chart} .readout').innerText")
    assert said.startswith("100k updates")


def open_a_run(browser: Browser) -> None:
    number = browser.run("[...document.querySelectorAll('button.run')].find((b) => b.innerText === 'UNIQ').dataset.run")
    browser.click(f"button.run[data-run='{number}']")
    assert browser.run("document.querySelector('dialog').open")
    body = browser.run("document.querySelector('dialog').innerText")
    for phrase in ("UNIQ on ", "uniq-rl bench", "share of states with u > 1", "tau_max", "fingerprint", "runs/"):
        assert phrase in body
    browser.wait("document.querySelectorAll('dialog svg path.line').length === 4")
    browser.press("Escape")
    browser.wait("!document.querySelector('dialog').open")


def switch_the_theme(browser: Browser) -> None:
    theme, paper = "document.documentElement.dataset.theme", "getComputedStyle(document.body).backgroundColor"
    assert browser.run(theme) == "light"
    light = browser.run(paper)
    browser.click("#theme")
    assert browser.run(theme) == "dark"
    assert browser.run(paper) != light
    browser.click("#theme")


def test_panels_without_a_line_take_no_place(tmp_path: Path, results: Path, browser: Browser) -> None:
    write_report(results, tmp_path / "report.html")
    browser.open(tmp_path / "report.html")
    panels = "[...document.querySelectorAll('#curves-charts figure')].filter((f) => f.checkVisibility())"
    shown = f"{panels}.map((f) => f.querySelector('figcaption').innerText)"
    absent = "document.querySelector('#curves-charts > .unmeasured')"
    assert browser.run(shown) == [*recomputed.SETS, *recomputed.REGENERATED]
    assert browser.run(f"{absent}.hidden")
    for name in ("uniq@1000000", "iql@1000000", "uniq one configuration@1000000"):
        browser.click(f"#curves-charts button[data-series='{name}']")
    assert browser.run(shown) == []
    assert browser.run(f"{absent}.innerText") == "No method is switched on."
    browser.click("#curves-charts button[data-series='edac@300000']")
    assert browser.run(shown) == [name for name in recomputed.SETS if name.startswith("hopper")]
    assert "was measured on halfcheetah-medium, " in browser.run(f"{absent}.innerText")
    browser.wait(f"{panels}.every((f) => f.querySelectorAll('path.line').length === 1)")


def test_one_choice_of_a_reading_moves_all_statistics(tmp_path: Path, results: Path, browser: Browser) -> None:
    write_report(results, tmp_path / "report.html")
    browser.open(tmp_path / "report.html")
    browser.place("#profile-charts figure")
    line = "document.querySelector('#profile-charts path.line')"
    browser.wait(line)
    before = browser.run(f"{line}.getAttribute('d')")
    assert browser.run("document.querySelectorAll('#profile-charts button.choice').length") == 0
    browser.click("#statistics-charts button[data-value='1']")
    browser.wait(f"{line} && {line}.getAttribute('d') !== {json.dumps(before)}")
    assert "mean of the last 10" in browser.run("document.querySelector('#statistics-charts figcaption').innerText")


@pytest.mark.parametrize("width", [420, 1400])
def test_a_wide_table_says_so_and_keeps_its_first_column(
    tmp_path: Path, results: Path, browser: Browser, width: int
) -> None:
    browser.window(width, 900)
    write_report(results, tmp_path / "report.html")
    browser.open(tmp_path / "report.html")
    place = "document.querySelector('#table-table-1').parentElement"
    hint = f"{place}.previousElementSibling"
    browser.wait(f"!{hint}.hidden")
    assert re.fullmatch(r"Scroll the table sideways: \d+ more columns on the right →", browser.run(f"{hint}.innerText"))
    first = "document.querySelector('#table-table-1 tbody td').getBoundingClientRect().left"
    left = browser.run(first)
    browser.run(f"{place}.scrollLeft = 100000")
    browser.wait(f"{place}.matches('.more-left:not(.more-right)')")
    assert browser.run(first) == left == browser.run(f"{place}.getBoundingClientRect().left")
    assert browser.run(f"{hint}.innerText").endswith("←")
    browser.run(f"{place}.scrollLeft = 50")
    browser.wait(f"{place}.matches('.more-left.more-right')")
    narrow = "document.querySelector('#table-table-3').parentElement.previousElementSibling.hidden"
    assert browser.run(narrow) == (width == 1400)


@pytest.mark.parametrize("width", [360, 1400])
@pytest.mark.parametrize("dark", [False, True])
def test_nothing_is_wider_than_the_window(
    tmp_path: Path, results: Path, browser: Browser, width: int, dark: bool
) -> None:
    write_report(results, tmp_path / "report.html")
    browser.open(tmp_path / "report.html")
    browser.run("localStorage.clear()")
    browser.window(width, 800, dark)
    browser.open(tmp_path / "report.html")
    assert browser.run("document.documentElement.dataset.theme") == ("dark" if dark else "light")
    assert browser.run("document.documentElement.scrollWidth") <= width
    drawn = "document.querySelectorAll('figure.chart').forEach((f) => f.scrollIntoView({ behavior: 'instant' }))"
    browser.run(drawn)
    assert browser.run("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("case", ["full", "no scores", "all diverged", "bc"])
def test_a_training_in_the_browser(tmp_path: Path, browser: Browser, case: str) -> None:
    out = tmp_path / "report.html"
    write_report(training_folder(tmp_path / "run", **CASES[case]), out)
    browser.open(out)
    browser.run("document.querySelectorAll('figure.chart').forEach((f) => f.scrollIntoView({ behavior: 'instant' }))")
    if case == "full":
        browser.place("#score-charts")
        browser.wait("document.querySelectorAll('#score-charts svg path.line').length === 4")  # three seeds, their mean
        browser.click("#calibration-charts button[data-value='2']")
        browser.wait("document.querySelector('#calibration-charts figcaption').innerText.startsWith('coverage')")
    browser.click("button.run")
    assert browser.run("document.querySelector('dialog').open")
    browser.press("Escape")
