"""Visual Wake Words in TensorFlow Lite Micro, as docs/elsewhere.md shows it."""

from __future__ import annotations

from collections.abc import Callable

from tabular import result, table


def compressed() -> str:
    heads = ["plan", "photographs", "different", ".tflite, kB", ".dbq, kB"]
    rows = result("tflm")["rows"]
    return table(heads, [[f"`{row['plan']}`", str(row["images"]), str(row["different"]),
                          f"{row['tflite'] / 1e3:.0f}", f"{row['dbq'] / 1e3:.0f}"]
                         for row in rows])  # fmt: skip


TABLES: dict[str, Callable[[], str]] = {"tflm": compressed}
