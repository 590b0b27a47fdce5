"""`dbq report` and `dbq paper`: parsing and printing only."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dbq.cli.options import JsonOption
from dbq.cli.terminal import print_json


def report(
    runs: Annotated[list[Path], typer.Argument(help="Directories of finished runs.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write.")] = Path(
        "report.html"
    ),
    title: Annotated[str, typer.Option(help="Its title.")] = "dbq report",
    as_json: JsonOption = False,
) -> None:
    """One page about one run or many: accuracy, costs, layers, levels, pictures.

    It is a single file that opens from disk, in any browser, without a network. Put the output of
    `dbq bench --json` into a run's directory as bench.json and it is in the page too.

    \b
    Examples:
      dbq report runs/2t
      dbq report runs/1t runs/2t -o compared.html --title "One branch or two"
    """
    from dbq.experiments.report.page import write_report

    facts = write_report(runs, out, title)
    if as_json:
        rows = [{"name": run.name, "plan": run.plan, **run.result.to_json()} for run in facts]
        print_json({"page": str(out), "runs": rows})
    else:
        typer.echo(
            f"{out}: {', '.join(run.name for run in facts)} ({out.stat().st_size / 1e6:.1f} MB)"
        )


def paper(
    out: Annotated[Path, typer.Option("--out", "-o", help="Directory for tables and figures.")],
    runs: Annotated[
        list[Path] | None, typer.Argument(help="Runs whose accuracies and kernels to show.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Every table and figure of the paper, ours beside the printed numbers.

    Tables need no run. Accuracies of runs by the paper's plans stand beside the paper's. The figures of
    a trained kernel, its clip and the scale ratios are of the first run that has them.

    \b
    Examples:
      dbq paper -o paper
      dbq paper runs/2t runs/2t-a8 -o paper
    """
    from dbq.experiments.paper.writing import write_paper

    files = write_paper(out, runs or [])
    if as_json:
        print_json([str(file) for file in files])
    else:
        typer.echo("\n".join(map(str, files)))
