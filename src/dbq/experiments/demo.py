"""The demo: a small MobileNet on real handwritten digits, from float to a .dbq file."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from dbq.costs.rules import Totals
from dbq.deploy.file.fileformat import save
from dbq.deploy.page.page import can_write_pages, write_page
from dbq.experiments.export import evaluate_deployed, program_of_run
from dbq.experiments.report.page import write_report
from dbq.support.progress import Progress
from dbq.support.text import as_argument, as_text, plain_table, short
from dbq.training.recipe import load_recipe
from dbq.training.record.rundir import RunDir
from dbq.training.run import train
from dbq.training.watchers.watching import StepReport

STORY = {
    "digits-fp": "float",
    "digits-1t": "one ternary branch",
    "digits-2t": "two ternary branches",
}

REPORT = "report.html"
PAGE = "digits.html"  # draw a digit, see it recognised


@dataclass(frozen=True)
class Row:
    """One line of the demo's table; accuracies in percent, of the hard network on the test set."""

    recipe: str
    meaning: str
    top1: float
    best_top1: float
    images: int
    cost: Totals
    run: str
    file: str = ""  # what deploys; a float network does not
    file_bytes: int = 0
    file_top1: float = 0.0  # of the native engine, on the same images


def run(out: Path, progress: Progress) -> list[Row]:
    """Train a float network; quantize, fine-tune and export it with one and with two branches; report.

    Each run has its own directory in `out`; finished ones are not repeated. `progress(what, done,
    total)` is called after every step.
    """
    rows = []
    for name, meaning in STORY.items():
        start = [] if name == "digits-fp" else [f"model.weights={out / 'digits-fp'}"]
        watcher = _EpochCounter(name, progress)
        recipe = load_recipe(name, start)
        result = train(recipe, out / name, resume=True, watchers=(watcher,))
        row = Row(name, meaning, result.top1, result.best_top1, result.test.images, result.cost,
                  str(out / name))  # fmt: skip
        rows.append(row if name == "digits-fp" else _deployed(row))
    page = out / PAGE
    if can_write_pages():
        write_page(Path(rows[-1].file), page, draw=True)
    write_report(
        [Path(row.run) for row in rows], out / REPORT, "dbq demo: handwritten digits",
        {"draw a digit, see it recognised": PAGE} if page.exists() else {},
    )  # fmt: skip
    return rows


def _deployed(row: Row) -> Row:
    """The run's network as a file, run by the native engine on the test set."""
    file = Path(row.run) / "net.dbq"
    size = save(program_of_run(Path(row.run)), file)
    top1 = evaluate_deployed(file)["top1"]
    return replace(row, file=str(file), file_bytes=size, file_top1=top1)


class _EpochCounter:
    def __init__(self, what: str, progress: Progress) -> None:
        self.what, self.progress = what, progress

    def message(self, text: str) -> None:
        pass

    def step(self, report: StepReport) -> None:
        self.progress(self.what, report.epoch * report.steps + report.step,
                      report.epochs * report.steps)  # fmt: skip

    def epoch(self, row: dict[str, Any]) -> None:
        pass


def is_finished(out: Path) -> bool:
    """True if `out` holds a finished demo, which `run` would only show again."""
    return all(RunDir(out / name).is_finished for name in STORY)


def results_table(rows: list[Row]) -> str:
    """The demo's results as text, with what they mean."""
    names = ["recipe", "pointwise weights", "top-1", "best"]
    table = plain_table([*names, *Totals.METRICS, ".dbq file", "its top-1"], left=2)
    for row in rows:
        table.add_row(
            row.recipe, row.meaning, f"{row.top1:.1f}", f"{row.best_top1:.1f}",
            *map(short, row.cost.metrics.values()),
            f"{short(row.file_bytes)}B" if row.file else "", f"{row.file_top1:.1f}" if row.file else "",
        )  # fmt: skip
    base, last = rows[0].cost, rows[-1].cost
    page = Path(rows[0].run).parent / PAGE
    return as_text(
        f"MobileNetV1 0.25 on {rows[0].images} test digits: top-1 in % of the hard network after the",
        "last epoch and in the best one, and the cost of one inference",
        table,
        "C_C 1-bit full adders, C_S without those of zero weights, C_R bits of weights and inputs,",
        f"C_M bits of the model. {rows[-1].recipe} against float: C_S {base.C_S / last.C_S:.1f}x less, "
        f"C_M {base.C_M / last.C_M:.1f}x less.",
        f"networks, metrics and recipes: {Path(rows[0].run).parent}/",
        f"deployed, by the native engine: {', '.join(row.file for row in rows if row.file)}",
        f"all of it in pictures: {Path(rows[0].run).parent / REPORT}",
        *([f"draw a digit in a browser: {page}"] if page.exists() else []),
        f"next: dbq inspect {as_argument(rows[-1].file)}",
    )


def to_json(rows: list[Row]) -> list[dict[str, Any]]:
    """Plain data: a dict for each row, costs under "cost"."""
    return [asdict(row) for row in rows]
