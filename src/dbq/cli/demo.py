"""`dbq demo`: parsing and printing only."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dbq.cli.options import JsonOption
from dbq.cli.terminal import print_json, progress_bars


def demo(
    out: Annotated[Path, typer.Option(help="Directory for the three runs.")] = Path("runs/demo"),
    as_json: JsonOption = False,
) -> None:
    """Train, quantize, export and compare in a minute or two, on real data without a download.

    Trains a small MobileNetV1 on scikit-learn's handwritten digits, quantizes it with one and with
    two ternary branches, fine-tunes each, and prints accuracies and costs.

    \b
    Examples:
      dbq demo
      dbq demo --out digits --json
    """
    import torch

    from dbq.experiments.demo import is_finished, results_table, run, to_json

    torch.set_num_threads(1)  # 8x8 images: more threads would only wait for each other
    if is_finished(out) and not as_json:
        typer.echo(f"showing the finished runs in {out}; delete it to train again", err=True)
    with progress_bars(quiet=as_json) as progress:
        rows = run(out, progress)
    if as_json:
        print_json(to_json(rows))
        return
    typer.echo(results_table(rows))
