"""The page of one training folder: what anybody with a log file of their own gets."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from uniq_rl import __version__
from uniq_rl.algorithms import algorithm_named
from uniq_rl.errors import UniqError
from uniq_rl.evidence import figures
from uniq_rl.evidence.figures import Curve, RunStory, Story, read_story
from uniq_rl.evidence.parts import Json, finite, line, listed, opening_runs, section, series, shown, spread
from uniq_rl.evidence.results import LAST
from uniq_rl.evidence.tables import Table, Value, named
from uniq_rl.evidence.wording import count, thousands
from uniq_rl.policy import config_of
from uniq_rl.training.records import read_json, read_lines

MEAN = "mean of the runs"
NAMES = {"sigma": "σ(s), disagreement", "u": "u(s), calibrated", "tau": "τ(s)", "delta": "Δ(s), spread of returns"}
QUANTITIES = (
    ("q_hat", "q̂, the conformal quantile", "plain"),
    ("u_above_1", "share of states with u > 1", "percent"),
    ("coverage", "coverage on unseen episodes", "percent"),
)


def page(folder: Path) -> tuple[Json, list[Table]]:
    story, description = read_story(folder), read_json(folder / "run.json")
    episodes = read_lines(folder / "episodes.jsonl")
    try:
        return _page(folder, story, description, episodes)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise UniqError(f"The records in {folder} are damaged ({error!r}).") from None


def _page(
    folder: Path, story: Story, description: Mapping[str, Any], episodes: Sequence[Mapping[str, Any]]
) -> tuple[Json, list[Table]]:
    runs, data_sets = run_table(story, description), data_table(description)
    scores, losses, calibration = score_view(story), loss_views(story), calibration_views(story)
    shapes = histograms(story)
    sections = [
        section(
            "score",
            "Score",
            "Learning curve" if story.scored else "No scores",
            [score_text(story)],
            charts="score-charts" if scores else "",
        ),
        section(
            "mechanism",
            "Caution",
            "What the uncertainty did",
            [figures.verdict(figures.activity(story))] if story.calibrates else [],
            charts="calibration-charts" if calibration else "",
            missing=unmeasured(story),
        ),
        section(
            "shapes",
            "Distributions",
            "Distributions over states",
            ["Of the last evaluation that recorded them, over states of the data."] if shapes else [],
            charts="histograms" if shapes else "",
            missing=[] if shapes else ["Not measured: no distributions were recorded."],
        ),
        section(
            "losses",
            "Losses",
            "Losses and values",
            charts="loss-charts" if losses else "",
            missing=[] if losses else ["No losses were recorded yet."],
        ),
        section(
            "runs",
            "Runs",
            "Every run",
            ["Open a run for its curves, its configuration and the command that makes it again."],
            tables=[opening_runs(shown("runs", runs))],
        ),
        section("data", "Data", "Data and physics", tables=[shown("sets", data_sets)]),
    ]
    data = {
        "series": all_series(story),
        "grids": {
            "score-charts": scores,
            "calibration-charts": calibration,
            "loss-charts": losses,
        },
        "histograms": shapes,
        "runs": [run_details(story, i, description, episodes) for i in range(len(story.runs))],
    }
    whole = {
        "title": f"uniq-rl: {folder.name}",
        "sentence": sentence(story),
        "lead": [lead(story)],
        "sections": sections,
        "foot": [
            f"Built by uniq-rl {__version__} with `uniq-rl report` from run.json, records.jsonl and "
            "episodes.jsonl; the page fetches nothing."
        ],
        "data": data,
    }
    return whole, [runs, data_sets]


# Words


def sentence(story: Story) -> str:
    sets = sorted({str(run.data["name"]) for run in story.runs})
    return f"{story.algorithm.upper()} trained on {', '.join(sets)}: {count(len(story.runs), 'run')}."


def lead(story: Story) -> str:
    plan = story.plan
    failed = sum(run.diverged is not None for run in story.runs)
    episodes = count(plan["eval_episodes"], "episode")
    scored = f", scored every {thousands(plan['eval_every'])} on {episodes}" if story.scored else ""
    physics = f" in {plan['physics']} physics" if story.scored else ""
    ended = f" {failed} of {count(len(story.runs), 'run')} diverged." if failed else ""
    return f"{plan['steps']:,} updates planned{scored}{physics}.{ended} A dash means that it was not measured."


def score_text(story: Story) -> str:
    if not story.scored:
        return figures.no_scores(story)
    band = " The mean has a band of one sample standard deviation." if averaged(story) else ""
    return f"D4RL normalised score of every evaluation: 0 is a random policy, 100 an expert.{band}"


def unmeasured(story: Story) -> list[str]:
    if not story.calibrates:
        return [f"{story.algorithm.upper()} has no calibrated uncertainty: nothing to show."]
    known = any(np.isfinite(run.calibration["coverage"].values).any() for run in story.runs if run.calibration)
    return [] if known else ["Coverage was not measured: no episodes were held out (it takes 40 episodes)."]


# Curves


def averaged(story: Story) -> bool:
    """Whether a mean over runs means something: they differ by their seed alone, and none diverged."""
    steps = {tuple(run.score.steps.tolist()) for run in story.runs}
    return story.replicated and len(steps) == 1 and all(run.diverged is None for run in story.runs)


def names_of(story: Story) -> list[str]:
    return [f"seed {run.label}" if run.label.isdigit() else run.label for run in story.runs]


def all_series(story: Story) -> list[Json]:
    found = [series(run.label, name, i) for i, (run, name) in enumerate(zip(story.runs, names_of(story), strict=True))]
    return [*found, series(MEAN, MEAN, len(found), short="mean", bold=True)] if averaged(story) else found


def curve_line(run: RunStory, curve: Curve) -> Json:
    return line(run.label, curve.steps, curve.values)


def score_view(story: Story) -> list[Json]:
    if not story.scored:
        return []
    lines = [curve_line(run, run.score) for run in story.runs]
    if averaged(story):
        steps = story.runs[0].score.steps
        lines.append(line(MEAN, steps, *spread(np.array([run.score.values for run in story.runs]))))
    return [view("score", [{"title": "D4RL score", "lines": lines}], "score")]


def view(name: str, panels: list[Json], kind: str) -> Json:
    return {"name": name, "panels": panels, "options": {"format": kind, "xLabel": "updates"}}


def loss_views(story: Story) -> list[Json]:
    """All metrics there are, each in a panel of its own."""
    names = dict.fromkeys(name for run in story.runs for name in run.metrics)
    panels = [
        {
            "title": name.replace("_", " "),
            "lines": [curve_line(run, run.metrics[name]) for run in story.runs if name in run.metrics],
        }
        for name in names
    ]
    return [view("losses", panels, "plain")] if panels else []


def calibration_views(story: Story) -> list[Json]:
    views = []
    for field, name, kind in QUANTITIES:
        known = [run for run in story.runs if field in run.calibration]
        lines = [curve_line(run, run.calibration[field]) for run in known]
        if not any(value is not None for found in lines for value in found["y"]):
            continue
        levels = sorted({1 - float(run.config["delta"]) for run in known if "delta" in run.config})
        marks = [{"value": level, "label": f"1 − δ = {level:g}"} for level in levels] if field == "coverage" else []
        views.append(view(name, [{"title": name, "lines": lines, "references": marks}], kind))
    return views


def histograms(story: Story) -> list[Json]:
    found = []
    for i, shapes in figures.last_distributions(story).items():
        step = max(story.runs[i].distributions)
        found.append(
            {
                "label": names_of(story)[i],
                "step": step,
                "shapes": [
                    {"name": NAMES.get(name, name), "edges": finite(h.edges), "counts": h.counts.astype(int).tolist()}
                    for name, h in shapes.items()
                    if len(h.counts)
                ],
            }
        )
    return [entry for entry in found if entry["shapes"]]


# Tables


def run_table(story: Story, description: Mapping[str, Any]) -> Table:
    rows = []
    for run, name, stored in zip(story.runs, names_of(story), description["runs"], strict=True):
        scores = run.score.values
        known = scores[np.isfinite(scores)]
        failed = run.diverged is not None
        readings = [scores[-1], scores[-LAST:].mean(), known.max()] if len(known) and not failed else [None] * 3
        last = {field: curve.values[-1] for field, curve in run.calibration.items() if len(curve.values)}
        rows.append(
            [
                named(name),
                Value(str(stored["data"]["name"])),
                Value(str(stored.get("seed", "-"))),
                *(measured(value, "{:.1f}") for value in readings),
                Value(f"diverged by {run.diverged:,}" if failed else "no"),
                measured(last.get("u_above_1"), "{:.1%}"),
                measured(last.get("q_hat"), "{:.3g}"),
                measured(last.get("coverage"), "{:.1%}"),
            ]
        )
    heads = ["run", "data", "seed", "last", f"mean of the last {LAST}", "best (oracle)", "diverged", "u > 1", "q_hat"]
    caption = "D4RL normalised scores. The best evaluation is an oracle: it picks among scores by looking at them."
    return Table("Every run", caption, [*heads, "coverage"], rows)


def measured(value: Any, pattern: str) -> Value:
    if value is None or not np.isfinite(value):
        return Value("-")
    return Value(pattern.format(float(value)).replace("%", " %").replace("-", "−"), float(value))


def data_table(description: Mapping[str, Any]) -> Table:
    found = {str(run["data"].get("fingerprint", run["data"]["name"])): run["data"] for run in description["runs"]}
    rows = [
        [
            named(str(data["name"])),
            Value(str(data.get("task") or "-")),
            Value(str(description["plan"]["physics"])),
            Value(f"{data['transitions']:,}", data["transitions"]),
            Value(f"{data['episodes']:,}", data["episodes"]),
            Value(str(data.get("fingerprint", "-"))[:12]),
        ]
        for data in found.values()
    ]
    heads = ["data", "task", "physics", "transitions", "episodes", "fingerprint"]
    return Table("Data", "The fingerprint is a hash of the content.", heads, rows)


# One run


def run_details(
    story: Story, index: int, description: Mapping[str, Any], episodes: Sequence[Mapping[str, Any]]
) -> Json:
    run, stored = story.runs[index], description["runs"][index]
    curves = []
    if np.isfinite(run.score.values).any():
        curves.append(detail_curve("score", run.score, "score"))
    curves += [
        detail_curve(name, run.calibration[field], kind)
        for field, name, kind in QUANTITIES
        if field in run.calibration and np.isfinite(run.calibration[field].values).any()
    ]
    last = [entry for entry in episodes if entry["run"] == run.label]
    facts = {
        "data": stored["data"],
        "folds": stored.get("folds"),
        "plan": description["plan"],
        "returns of the last evaluation": (last[-1] if last else {}).get("returns", "none"),
        "diverged": "no" if run.diverged is None else f"by update {run.diverged:,}",
        "hardware": description.get("hardware"),
        "versions": description.get("versions"),
        "commit": description.get("commit"),
    }
    return {
        "title": f"{story.algorithm.upper()}, {names_of(story)[index]}",
        "command": train_command(description, stored),
        "curves": curves,
        "shapes": [
            shape
            for entry in histograms(story)
            if entry["label"] == names_of(story)[index]
            for shape in entry["shapes"]
        ],
        "diagnosed": bool(run.calibration),
        "facts": listed(facts),
        "config": listed({"method": story.algorithm, **run.config}),
    }


def detail_curve(name: str, curve: Curve, kind: str) -> Json:
    return {"name": name, "format": kind, "x": curve.steps.tolist(), "y": finite(curve.values)}


def train_command(description: Mapping[str, Any], run: Mapping[str, Any]) -> str:
    """What to type to train this run again; empty for data that came from memory, which no command can name."""
    origin = run["data"].get("origin")
    if not origin:
        return ""
    plan = description["plan"]
    words = ["uniq-rl", "train", origin["source"], "--algo", description["algorithm"], "--preset", "none"]
    words += ["--seeds", run.get("seed", 0)]
    if run["data"].get("task"):
        words += ["--task", run["data"]["task"]]
    for name in ("size", "columns", "action_range", "mirror"):
        words += option(name, origin[name]) if origin.get(name) is not None else []
    for name in ("steps", "eval_every", "eval_episodes", "log_every", "physics"):
        words += option(name, plan[name]) if plan.get(name) is not None else []
    usual = config_of(algorithm_named(description["algorithm"])())
    for name, value in run["config"].items():
        if name in usual and plain(usual[name]) != plain(value):
            words += option(name, value)
    return shlex.join(str(word) for word in words)


def option(name: str, value: Any) -> list[Any]:
    """A hyper-parameter as the command line takes it."""
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no-{flag}"]
    return [f"--{flag}", *(value if isinstance(value, list | tuple) else [value])]


def plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
