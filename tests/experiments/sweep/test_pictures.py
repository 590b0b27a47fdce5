"""What a sweep's figure shows: seeds together, the front, the worst and the best seed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dbq.costs.rules import Totals
from dbq.experiments.report.drawing import draw
from dbq.experiments.sweep.outcome import Outcome, Row
from dbq.experiments.sweep.pictures import SHOWN, sweep_figure
from dbq.experiments.sweep.sweep import Sweep

pytestmark = pytest.mark.process

SWEEP = Sweep(
    "s",
    "r",
    seeds=(0, 1),
    shared={"model.width": (0.25, 0.5)},
    grid={"quantize.precision": ("4b", "1T")},
)


def row(width: float, precision: str | None, seed: int, top1: float, cost: float) -> Row:
    values: dict[str, Any] = {"model.width": width}
    values |= {"quantize.precision": precision} if precision else {}
    return Row("n", values, seed, top1, top1 + 1, dict.fromkeys(Totals.METRICS, cost), "d")


OUTCOME = Outcome(
    SWEEP,
    (
        row(0.25, None, 0, 99.0, 1000.0),
        row(0.25, "4b", 0, 80.0, 10.0),
        row(0.25, "1T", 0, 83.0, 12.0),
        row(0.5, "1T", 0, 82.0, 20.0),
        row(0.25, "4b", 1, 81.0, 14.0),
        row(0.25, "1T", 1, 86.0, 12.0),
    ),
    {},
    (),
)


def test_seeds_are_taken_together_in_order() -> None:
    _, four_bits, ternary, wide = OUTCOME.points
    assert (four_bits.top1, four_bits.best_top1) == ((80.0, 81.0), (81.0, 82.0))
    assert four_bits.cost == dict.fromkeys(Totals.METRICS, 12.0)
    assert ternary.top1 == (83.0, 86.0)
    assert (wide.values["model.width"], wide.top1) == (0.5, (82.0,))
    assert OUTCOME.to_json()["points"][1]["top1"] == (80.0, 81.0)


def test_the_figure_has_means_spans_and_the_front() -> None:
    figure = sweep_figure(OUTCOME)
    assert [panel["data"]["name"] for panel in figure["hconcat"]] == list(SHOWN)
    for panel in figure["hconcat"]:
        points = figure["datasets"][panel["data"]["name"]]
        assert [(p["first"], p["others"], p["top1"]) for p in points] == [
            ("0.25", "4b", 80.5), ("0.25", "1T", 84.5), ("0.5", "1T", 82.0),
        ]  # fmt: skip
        spans = [(p["worst"], p["best"]) for p in points]
        assert spans == [(80.0, 81.0), (83.0, 86.0), (82.0, 82.0)]
        # 4b at 0.25 costs as much as 1T and is worse, 1T at 0.5 costs more and is worse.
        assert [p["top1"] for p in points if p["front"]] == [84.5]
        shapes = panel["layer"][-1]["encoding"]["shape"]
        assert (shapes["title"], shapes["sort"]) == ("precision", ["4b", "1T"])


@pytest.mark.parametrize(
    "sweep",
    [Sweep("one", "r", shared={"model.width": (0.25,)}), Sweep("none", "r", seeds=(0, 1))],
    ids=["one key", "only seeds"],
)
def test_fewer_keys(sweep: Sweep, tmp_path: Path) -> None:
    values = dict.fromkeys(sweep.keys, 0.25)
    rows = tuple(
        Row("n", values, seed, 80.0 + seed, 1, dict.fromkeys(Totals.METRICS, 1e6), "d")
        for seed in (0, 1)
    )
    figure = sweep_figure(Outcome(sweep, rows, {}, ()))
    assert [p["top1"] for p in figure["datasets"]["C_S"]] == [80.5]
    assert "shape" not in figure["hconcat"][0]["layer"][-1]["encoding"]
    assert "<svg" in draw(figure, tmp_path / "s.svg").read_text()


WRITER = """
import sys
from pathlib import Path
from dbq.experiments.sweep.sweep import Sweep
from dbq.experiments.sweep.outcome import Outcome

for _ in range(150):
    Outcome(Sweep("s", "r"), (), {}, ("a run",)).write(Path(sys.argv[1]))
"""


def test_two_that_come_to_the_end_at_once(tmp_path: Path) -> None:
    """Both write sweep.json: neither is in the other's way, and what is there is whole."""
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    writers = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    assert [writer.communicate()[1] for writer in writers] == ["", ""]
    assert json.loads((tmp_path / "sweep.json").read_text())["unfinished"] == ["a run"]
