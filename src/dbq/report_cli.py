"""`dbq report`: parsing and printing only."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dbq.terminal import JsonOption, print_json


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
    from dbq.report.page import write_report

    facts = write_report(runs, out, title)
    if as_json:
        rows = [{"name": run.name, "plan": run.plan, **run.result} for run in facts]
        print_json({"page": str(out), "runs": rows})
    else:
        typer.echo(
            f"{out}: {', '.join(run.name for run in facts)} ({out.stat().st_size / 1e6:.1f} MB)"
        )
