"""What benchmarks/torture.py did, as a table: for a terminal, and for docs/reliability.md."""

from __future__ import annotations

from collections.abc import Callable

from tabular import Row, result, table

HEADS = ["attack", "what was done", "findings"]


def cells(row: Row) -> list[str]:
    """One attack: what was counted, or why it was skipped."""
    counted = ", ".join(f"{count:,} {what}" for what, count in row["counts"].items())
    done = f"skipped: {row['skipped']}" if row["skipped"] else counted
    return [row["attack"], done, str(row["findings"])]


TABLES: dict[str, Callable[[], str]] = {
    "torture": lambda: table(HEADS, map(cells, result("torture")["rows"]))
}
