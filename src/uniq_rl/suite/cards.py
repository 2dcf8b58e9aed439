"""Measure the card of every built-in data set and write the table into the documentation.

    python -m uniq_rl.suite.cards docs/suite.md

The cards at default size and seed 0 are kept beside the policies too, to be shown before any set is made.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from uniq_rl.errors import UniqError
from uniq_rl.storage import write_atomically
from uniq_rl.suite import command, datasets

BEGIN, END = "<!-- cards: begin -->", "<!-- cards: end -->"


def table(records: Sequence[dict[str, Any]]) -> str:
    """The cards as Markdown."""
    lines = [
        "| data set | transitions | episodes | mean score | max score | coverage | recipe id | content hash |",
        "|---|---:|---:|---:|---:|---:|---|---|",
    ]
    for record in records:
        card = record["card"]
        lines.append(
            f"| `{record['name']}` | {card['transitions']:,} | {card['episodes']:,} | {card['mean_score']:.1f} "
            f"| {card['max_score']:.1f} | {100 * card['coverage']:.0f} % | `{record['recipe_id']}` "
            f"| `{record['fingerprint'][:12]}` |"
        )
    return "\n".join(lines)


def inserted(page: str, content: str) -> str:
    """The page with `content` between the two markers."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise UniqError(f"The page lacks the markers {BEGIN} and {END}; add them where the table belongs.")
    return f"{before}{BEGIN}\n{content}\n{END}{after}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m uniq_rl.suite.cards", description=__doc__)
    parser.add_argument("page", type=Path, help="a Markdown file with the two markers")
    parser.add_argument("--size", type=int, help="transitions per set; D4RL's sizes when left out")
    given = parser.parse_args(arguments)
    page = given.page.read_text(encoding="utf-8")
    inserted(page, "")  # before the work, not after it
    records = []
    for name in datasets.names():
        size = given.size or datasets.default_size(name)
        records.append(datasets.record_of(datasets.make(name, size), size, seed=0))
        print(table(records[-1:]).splitlines()[-1], flush=True)
    write_atomically(given.page, inserted(page, table(records)).encode())
    if given.size is None:
        shipped = {record["name"]: record for record in records}
        write_atomically(datasets.SHIPPED_CARDS, json.dumps(shipped, indent=1).encode())


if __name__ == "__main__":
    command.run(main)
