"""The page: one self-contained HTML file of a results folder or of a training folder.

A page is a plain dictionary of sections, tables and curves, worked out from the raw files; one template renders it.
What charts show travels as JSON inside the file, so that nothing is fetched.
"""

import json
from importlib.resources import files
from pathlib import Path

import jinja2
from markupsafe import Markup

from uniq_rl import __version__
from uniq_rl.errors import UniqError
from uniq_rl.evidence import plots, results_page, tables, training_page
from uniq_rl.evidence.parts import Json
from uniq_rl.evidence.results import RUNS, read_results
from uniq_rl.evidence.tables import Table
from uniq_rl.storage import disk_errors, write_atomically


def write_report(
    folder: Path,
    out: Path | None = None,
    markdown: Path | None = None,
    latex: Path | None = None,
    figures: Path | None = None,
) -> list[Path]:
    """Write whichever of the three files is wanted, and figures; all text is worked out before anything is written."""
    wanted = [path for path in (out, markdown, latex) if path is not None]
    for path in wanted:
        if path.is_dir() or not path.parent.is_dir():
            reason = "it is a folder" if path.is_dir() else f"there is no folder {path.parent}"
            raise UniqError(f"{path} cannot be written: {reason}.")
    if len({path.resolve() for path in wanted}) < len(wanted):
        raise UniqError("The page, the Markdown and the LaTeX tables need a file each.")
    if figures is not None and figures.exists() and not figures.is_dir():
        raise UniqError(f"{figures} cannot hold figures: it is a file.")
    if figures is not None and folder.is_dir() and not holds_results(folder):
        raise UniqError(
            f"{folder} holds no results ({RUNS}/*.json) to draw; a training has its pictures in its folder."
        )
    page, found = built(folder)
    contents = {
        out: lambda: render(page),
        markdown: lambda: "\n".join(tables.to_markdown(table) for table in found),
        latex: lambda: "\n".join(tables.to_latex(table) for table in found),
    }
    ready = {path: contents[path]().encode() for path in wanted}
    for path, content in ready.items():
        write_atomically(path, content)
    if figures is not None:
        with disk_errors(figures):
            wanted += plots.draw_all(read_results(folder), figures).values()
    return wanted


def holds_results(folder: Path) -> bool:
    return (folder / RUNS).is_dir() and any((folder / RUNS).glob("*.json"))


def built(folder: Path) -> tuple[Json, list[Table]]:
    """The page of a folder, and its tables."""
    if not folder.is_dir():
        raise UniqError(f"There is no folder {folder}.")
    if holds_results(folder):
        return results_page.page(read_results(folder))
    if (folder / "run.json").is_file():
        return training_page.page(folder)
    raise UniqError(
        f"{folder} holds neither results ({RUNS}/*.json, as `uniq-rl bench` writes them) nor a training (run.json)."
    )


def render(page: Json) -> str:
    """One HTML file; whatever a name contains is text in it, never markup."""
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(asset), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    return environment.get_template("report.html").render(
        page=page,
        version=__version__,
        style=Markup(asset("report.css")),
        script=Markup(asset("report.js")),
        data=Markup(embedded(page["data"])),
    )


def asset(name: str) -> str:
    return files("uniq_rl.evidence").joinpath("templates", name).read_text(encoding="utf-8")


def embedded(data: Json) -> str:
    """JSON that cannot end the element it stands in: no `<`, `>` or `&` is left in it."""
    text = json.dumps(data, allow_nan=False, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
