"""`dbq report` and `dbq paper`: parsing and printing only."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dbq.cli.options import JsonOption
from dbq.cli.terminal import print_json
from dbq.support.text import printable


def report(
    runs: Annotated[list[Path], typer.Argument(help="Directories of finished runs.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write.")] = Path(
        "report.html"
    ),
    title: Annotated[str, typer.Option(help="Its title.")] = "dbq report",
    as_json: JsonOption = False,
) -> None:
    """Write one page about one or more runs: accuracy, costs, layers, levels, charts.

    It is a single file that opens from disk in any browser, without network access. If a run has been
    exported (net.dbq in its directory), its time on this machine is measured; times of another machine,
    the output of `dbq bench --json`, are shown instead if they are there as bench.json.

    \b
    Examples:
      dbq report runs/2t
      dbq report runs/fp runs/2t -o compared.html --title "Float or ternary"
    """
    from dbq.experiments.report.page import write_report

    facts = write_report(runs, out, title)
    if as_json:
        rows = [{"name": run.name, "plan": run.plan, **run.result.to_json()} for run in facts]
        print_json({"page": str(out), "runs": rows})
    else:
        names = ", ".join(run.name for run in facts)
        typer.echo(printable(f"{out}: {names} ({out.stat().st_size / 1e6:.1f} MB)"))


def paper(
    out: Annotated[Path, typer.Option("--out", "-o", help="Directory for tables and figures.")],
    runs: Annotated[
        list[Path] | None, typer.Argument(help="Runs whose accuracies and kernels to show.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write every table and figure of the paper, our numbers beside the printed ones.

    Tables need no run. Runs with a plan of the paper add their accuracies to its tables. The figures
    of a trained kernel, of the clip (where activations are cut off) and of the scale ratios show the
    first run that has them.

    \b
    Examples:
      dbq paper -o paper
      dbq paper runs/fp runs/2t -o paper
    """
    from dbq.experiments.paper.writing import write_paper

    files = write_paper(out, runs or [])
    if as_json:
        print_json([str(file) for file in files])
    else:
        typer.echo("\n".join(map(str, files)))
