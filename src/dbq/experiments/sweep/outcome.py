"""Outcome: the results of a sweep, as a table and as data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from dbq.costs.rules import Totals
from dbq.experiments.sweep.sweep import Run, Sweep, Values
from dbq.support.atomic import write_atomically
from dbq.support.lock import only_one
from dbq.support.text import as_text, plain_table, short
from dbq.training.record.rundir import RunDir

RECORD = "sweep.json"
LOCK = "outcome.lock"  # two processes may finish a sweep at the same moment


@dataclass(frozen=True)
class Row:
    """A finished run. Accuracies in percent, of the hard network on the whole test set."""

    name: str
    values: Values
    seed: int
    top1: float
    best_top1: float
    cost: Mapping[str, float]
    run: str  # its directory
    baseline: str = ""  # name of the run it started from

    @classmethod
    def of(cls, run: Run, directory: Path) -> Row:
        result = RunDir(directory).result()
        return cls(
            run.name, run.values, run.seed, result.top1, result.best_top1, asdict(result.cost),
            str(directory), run.baseline,
        )  # fmt: skip


@dataclass(frozen=True)
class Point:
    """A point of the grid: all its seeds together."""

    values: Values
    top1: tuple[float, ...]
    best_top1: tuple[float, ...]
    cost: Mapping[str, float]  # the mean: how many weights are zero, and so C_S, differs by seed


@dataclass(frozen=True)
class Outcome:
    """The finished runs, why others failed, and which are left."""

    sweep: Sweep
    rows: tuple[Row, ...]
    failed: Mapping[str, str]
    unfinished: tuple[str, ...]

    @property
    def is_complete(self) -> bool:
        return not self.failed and not self.unfinished

    @property
    def points(self) -> list[Point]:
        """The finished runs, grouped over seeds, in the order of the rows."""
        groups: list[list[Row]] = []
        for row in self.rows:
            same = next((group for group in groups if group[0].values == row.values), None)
            if same:
                same.append(row)
            else:
                groups.append([row])
        return [
            Point(
                group[0].values,
                tuple(row.top1 for row in group),
                tuple(row.best_top1 for row in group),
                {name: mean(row.cost[name] for row in group) for name in Totals.METRICS},
            )
            for group in groups
        ]

    def to_json(self) -> dict[str, Any]:
        """Plain data; rows have the keys that vary under "values", their costs under "cost"."""
        return {
            "sweep": self.sweep.name,
            "about": self.sweep.about,
            "rows": [asdict(row) for row in self.rows],
            "points": [asdict(point) for point in self.points],
            "failed": dict(self.failed),
            "unfinished": list(self.unfinished),
        }

    def write(self, out: Path) -> None:
        text = json.dumps(self.to_json(), indent=1) + "\n"
        with only_one(out / LOCK):
            write_atomically(out / RECORD, text.encode())

    def __str__(self) -> str:
        keys = self.sweep.keys
        heads = [*keys.values(), "seed", "top-1", "best", *Totals.METRICS]
        table = plain_table(heads, left=len(keys))
        for row in self.rows:
            values = (str(row.values.get(key, "float")) for key in keys)
            costs = (short(row.cost[name]) for name in Totals.METRICS)
            accuracy = f"{row.top1:.2f}", f"{row.best_top1:.2f}"
            table.add_row(*values, str(row.seed), *accuracy, *costs)
        return as_text(
            f"{self.sweep.name}: {self.sweep.about}",
            table,
            *(f"{name} failed: {why}" for name, why in self.failed.items()),
            *(f"{name} is not finished" for name in self.unfinished),
        )
