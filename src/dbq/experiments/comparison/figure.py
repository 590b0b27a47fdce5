"""The figure of a comparison: accuracy against the cost of computation and of storage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dbq.experiments.comparison.comparison import FLOAT, Comparison
from dbq.experiments.report.charts import accuracy_against_costs
from dbq.experiments.report.drawing import draw
from dbq.support.text import counted

SHOWN = ("C_S", "C_M")


def draw_comparison(comparison: Comparison, path: Path) -> Path:
    """Write the figure in the format given by the suffix of `path`, .svg or .png."""
    points: list[dict[str, Any]] = [
        {
            "run": e.name,
            "top1": e.top1,
            "group": {"dbq": "DBQ", FLOAT: FLOAT}.get(e.name.partition("-")[0], "others"),
            **e.cost.metrics,
        }
        # DBQ comes first and so gets the first colour.
        for e in sorted(comparison.entries, key=lambda e: not e.name.startswith("dbq"))
    ]
    epochs = counted(comparison.epochs, "epoch")
    title = f"{comparison.network} on {comparison.data}, {epochs} each"
    return draw(accuracy_against_costs(points, SHOWN, title), path)
