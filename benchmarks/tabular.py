"""What results/ holds, and tables made of it: Markdown for pages, plain text for a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dbq.support.text import as_text, plain_table

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"

Row = dict[str, Any]


def result(name: str) -> Row:
    data: Row = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return data


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cells)} |".replace("| --- ", "|---") for cells in lines)


def plain(heads: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """The same for a terminal; the first `left` columns hold text."""
    aligned = plain_table(list(heads), left)
    for cells in rows:
        aligned.add_row(*cells)
    return as_text(aligned, width=200)


def show(columns: Mapping[str, str], rows: Iterable[Row], left: int = 2) -> str:
    """The same of rows with names: a column is its head and a template of its cells."""
    cells = ([template.format(**row) for template in columns.values()] for row in rows)
    return plain(list(columns), cells, left)


def measured(name: str) -> str:
    """Where the numbers of a file come from: the file, the command, the machine, the day."""
    data = result(name)
    machine = data["machine"]
    versions = {"torch": machine["torch"], **data.get("versions", {})}
    clock = f" at {data['ghz']:.2f} GHz" if data.get("ghz") else ""
    software = ", ".join(f"{package} {version}" for package, version in versions.items())
    return (
        f"[`results/{name}.json`](../results/{name}.json), `{data['command']}`, {data['date']}: "
        f"{machine['cpu']} with {machine['instructions']}, {machine['cores']} cores{clock}; {software}."
    )


def recipe_link(name: str, up: str = "../") -> str:
    return f"[`{name}`]({up}src/dbq/training/recipes/{name}.toml)"
