"""The tables of docs/networks.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from tabular import Row, result, table

RUNS, REFUSED, FAILED, DIFFERENT = "runs", "refused", "error", "different"


def outcome(row: Row) -> str:
    """`runs` if every stage passed; else the worst that happened."""
    failures = row["failures"]
    if any(failure["error"] == "DifferenceError" for failure in failures):
        return DIFFERENT
    if any(not failure["named"] for failure in failures):
        return FAILED
    return REFUSED if failures else RUNS


def summary() -> str:
    rows: list[Row] = result("networks")["rows"]
    lines = []
    for package in dict.fromkeys(row["network"].partition(":")[0] for row in rows):
        found = [row for row in rows if row["network"].startswith(f"{package}:")]
        lines.append([f"`{package}`", *_counts(found)])
    kinds = ["package", "networks", "run", "refused by name", "other errors", "different"]
    return table(kinds, [*lines, ["**all**", *_counts(rows)]])


def _counts(rows: list[Row]) -> list[str]:
    counts = Counter(map(outcome, rows))
    return [str(len(rows)), *(str(counts[kind]) for kind in (RUNS, REFUSED, FAILED, DIFFERENT))]


def networks() -> str:
    heads = ["network", "pixels", "million MACs", "quantized", "two branches", "seconds", "outcome"]
    return table(heads, map(_cells, result("networks")["rows"]))


def _cells(row: Row) -> list[str]:
    name, _, _ = row["network"].partition("@")
    shares = [f"{100 * row[key]:.0f} %" if key in row else "" for key in ("quantized", "branched")]
    macs = f"{row['macs'] / 1e6:.1f}" if "macs" in row else ""
    seconds = f"{sum(row['seconds'].values()):.0f}"
    return [f"`{name}`", str(row.get("pixels", "")), macs, *shares, seconds, _outcome(row)]


def _outcome(row: Row) -> str:
    failures = [
        "{stage}: {error}: {message}".format(**failure).replace("|", "\\|")
        for failure in row["failures"]
    ]
    return "; ".join(failures) or f"runs, {row['bytes'] / 1e3:,.0f} kB"


TABLES: dict[str, Callable[[], str]] = {"networks summary": summary, "networks": networks}
