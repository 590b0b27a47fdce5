"""What results/ holds, and Markdown tables made of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]

Row = dict[str, Any]


def result(name: str) -> Row:
    data: Row = json.loads((ROOT / "results" / f"{name}.json").read_text(encoding="utf-8"))
    return data


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cells)} |".replace("| --- ", "|---") for cells in lines)


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
