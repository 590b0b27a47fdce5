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


def _rows() -> list[Row]:
    rows: list[Row] = result("networks")["rows"]
    return rows


def summary() -> str:
    lines = []
    for package in dict.fromkeys(row["network"].partition(":")[0] for row in _rows()):
        found = [row for row in _rows() if row["network"].startswith(f"{package}:")]
        lines.append([f"`{package}`", *_counts(found)])
    heads = ["package", "networks", "run", "refused by name", "other errors", "different"]
    return table(heads, [*lines, ["**all**", *_counts(_rows())]])


def _counts(rows: list[Row]) -> list[str]:
    counts = Counter(map(outcome, rows))
    return [str(len(rows)), *(str(counts[kind]) for kind in (RUNS, REFUSED, FAILED, DIFFERENT))]


def running() -> str:
    """The networks that came through, with what was measured of them."""
    heads = ["network", "pixels", "million MACs", "quantized", "two branches", "kB",
             "prepare, s", "lower, s", "against torch", "torch rounded", "ONNX"]  # fmt: skip
    return table(heads, (_measured(row) for row in _rows() if outcome(row) == RUNS))


def _measured(row: Row) -> list[str]:
    shares = [f"{100 * row[key]:.1f} %" for key in ("quantized", "branched")]
    errors = [f"{100 * row[key]:.1f} %" for key in ("difference", "noise")]
    seconds = [f"{row['seconds'][stage]:.1f}" for stage in ("prepare", "lower")]
    return [_name(row), str(row["pixels"]), f"{row['macs'] / 1e6:.1f}", *shares,
            f"{row['bytes'] / 1e3:,.0f}", *seconds, *errors, str(row["onnx_different"])]  # fmt: skip


def stopped() -> str:
    """The others, with the first thing that stopped them."""
    return table(["network", "stage", "error"], map(_reason, filter(_failures, _rows())))


def _failures(row: Row) -> bool:
    return outcome(row) != RUNS


def _reason(row: Row) -> list[str]:
    first = row["failures"][0]
    message = f"{first['error']}: {first['message']}".replace("|", "\\|").replace("<", "\\<")
    return [_name(row), first["stage"], message]


def _name(row: Row) -> str:
    name, _, _ = row["network"].partition("@")
    return f"`{name}`"


TABLES: dict[str, Callable[[], str]] = {
    "networks summary": summary,
    "networks running": running,
    "networks stopped": stopped,
}
