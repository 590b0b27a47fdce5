"""`dbq paper`: writes every table and figure of the paper, our numbers beside the printed ones."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from dbq.experiments.paper import printed
from dbq.experiments.paper.figures import figures
from dbq.experiments.paper.tables import Figure, Table, paper_tables
from dbq.experiments.report.drawing import draw
from dbq.experiments.report.facts import RunFacts, read_run
from dbq.experiments.report.page import run_names
from dbq.support.atomic import write_atomically
from dbq.support.text import counted

# The paper's number of each table.
NUMBERS = {
    "operations": "Table 1",
    "resnet20": "Table 2",
    "mobilenet_v1": "Table 3",
    "comparison": "Table 4",
    "lightweight": "Table 5",
    "storage": "Supplement, storage",
    "sparsity": "Supplement, branch sparsity",
    "statements": "Ratios in the text",
}
DATA = {"resnet20": "cifar10"}  # the data set of a table; ImageNet for the others


class Accuracy(NamedTuple):
    """Of a run; `data` names its data set if it is not the table's."""

    top1: float
    epochs: int
    data: str = ""


def write_paper(out: Path, directories: Sequence[Path]) -> list[Path]:
    """Write tables.md, tables.json and the figures; returns what was written."""
    out.mkdir(parents=True, exist_ok=True)
    names = run_names(directories) if directories else []
    read = [read_run(path, name) for path, name in zip(directories, names, strict=True)]
    runs, networks = [facts for facts, _ in read], [model for _, model in read]
    tables = paper_tables()
    drawn = [(f"{name}.svg", spec) for name, spec in figures(runs, networks)]
    files = [draw(spec, out / name) for name, spec in drawn]
    text = "\n\n".join(_page(tables, runs, [(n, spec["description"]) for n, spec in drawn]))
    data = []
    for table in tables:
        ours = our_accuracies(table, runs).items()
        data.append(
            {**table.to_json(), "ours": {row: [x._asdict() for x in xs] for row, xs in ours}}
        )
    for name, content in (("tables.md", text), ("tables.json", json.dumps(data, indent=1))):
        write_atomically(out / name, (content + "\n").encode())
        files.append(out / name)
    return files


def our_accuracies(table: Table, runs: Sequence[RunFacts]) -> dict[str, list[Accuracy]]:
    """By label, the accuracies of runs with a row's network and plan; those on its data come first."""
    found: dict[str, list[Accuracy]] = {}
    source = next((t for t in printed.COMPLEXITY_TABLES if t.key == table.key), None)
    own = DATA.get(table.key, "imagenet")
    for row in source.rows if source else ():
        wanted = row.network, row.plan and row.plan.name
        same = [run for run in runs if (run.network, run.plan) == wanted]
        if same:
            found[row.label] = [
                Accuracy(run.result.top1, run.result.epochs, "" if run.data == own else run.data)
                for run in sorted(same, key=lambda run: run.data != own)
            ]
    return found


def _page(
    tables: Sequence[Table], runs: Sequence[RunFacts], drawn: Sequence[tuple[str, str]]
) -> Iterator[str]:
    """The paragraphs of the page, in Markdown."""
    yield "# The paper, regenerated"
    yield (
        "Each cell is *printed* → **ours**; ✓ says that ours rounds to what is printed, ≠ that it does "
        "not, – that it cannot be computed. Accuracies in the column top-1 are the paper's, those "
        "under ours come from the runs this page was given, with their data where it is another: "
        + (", ".join(f"`{run.name}`" for run in runs) or "none")
        + "."
    )
    for table in tables:
        yield from _table(table, our_accuracies(table, runs))
    yield "## Figures"
    for name, description in drawn:
        yield f"![{description}]({name})"
        yield f"{description}."


def _table(table: Table, ours: dict[str, list[Accuracy]]) -> Iterator[str]:
    units = [f" [{unit}]" if unit else "" for unit in table.units]
    heads = [c + unit for c, unit in zip(table.columns, units, strict=True)]
    with_accuracy = any(line.top1 for line in table.lines)
    accuracy = ["top-1", "ours"] if with_accuracy else []
    yield f"## {NUMBERS[table.key]}: {table.title}"
    rows = [["", *accuracy, *heads], ["---"] * (1 + len(accuracy) + len(heads))]
    notes = list(dict.fromkeys(line.note for line in table.lines if line.note))
    for line in table.lines:
        mark = f" ({notes.index(line.note) + 1})" if line.note else ""
        mine = "; ".join(_accuracies(ours.get(line.label, [])))
        texts = [line.top1, mine] if with_accuracy else []
        rows.append([line.label + mark, *texts, *map(_figure, line.figures)])
    yield "\n".join(f"| {' | '.join(cells)} |" for cells in rows)
    yield from (f"({i}) {note}" for i, note in enumerate(notes, 1))


def _accuracies(found: Sequence[Accuracy]) -> Iterator[str]:
    """Grouped by data and number of epochs: longer runs do better, and other data is another task."""
    for group in dict.fromkeys((x.data, x.epochs) for x in found):
        data, epochs = group
        numbers = ", ".join(f"**{x.top1:.2f}**" for x in found if (x.data, x.epochs) == group)
        where = f" on {data}" if data else ""
        yield f"{numbers} ({counted(epochs, 'epoch')}{where})"


def _figure(figure: Figure) -> str:
    sign = {True: "✓", False: "≠", None: "–"}[figure.agrees]
    ours = "" if figure.ours is None else f" → **{figure.ours:.{figure.decimals + 2}f}**"
    return f"{figure.printed}{ours} {sign}"
