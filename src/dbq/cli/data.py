"""`dbq data`: parsing and printing only."""

from __future__ import annotations

from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated

import typer

from dbq.cli.options import JsonOption
from dbq.cli.terminal import print_json, progress_bars
from dbq.support.text import WIDTH, printable

if TYPE_CHECKING:
    from dbq.data.examination import Report

data_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="""Data sets: list, prepare and check them.

    \b
    Examples:
      dbq data list
      dbq data check digits
    """,
)


def complete_data(incomplete: str) -> list[str]:
    """Names of data sets, for shell completion."""
    from dbq.data.table import DATASETS

    return [name for name in DATASETS if name.startswith(incomplete)]


NameArgument = Annotated[
    str, typer.Argument(help="Name of a data set.", autocompletion=complete_data)
]
DirectoryArgument = Annotated[
    Path | None, typer.Argument(metavar="DIR", help="Where its files are, or will be put.")
]


@data_app.command("list")
def list_data(as_json: JsonOption = False) -> None:
    """List the data sets, and the files they need.

    \b
    Examples:
      dbq data list
      dbq data list --json
    """
    from dbq.data.table import DATASETS

    if as_json:
        rows = [
            {"name": name, "about": known.about, "size": known.size, "layout": known.layout}
            for name, known in DATASETS.items()
        ]
        print_json({"data": rows})
        return
    for name, known in DATASETS.items():
        typer.echo(f"{name}: {known.about}")
        files = f"files: {known.layout or 'none'}"
        typer.echo(fill(files, WIDTH, initial_indent="  ", subsequent_indent="  "))


@data_app.command("prepare")
def prepare(
    name: NameArgument, directory: DirectoryArgument = None, as_json: JsonOption = False
) -> None:
    """Download the files of a data set, or explain what to get by hand and where to put it.

    \b
    Examples:
      dbq data prepare cifar10 data
      dbq data prepare digits
      dbq data prepare imagenet /data/imagenet
    """
    from dbq.data.table import prepare_data

    with progress_bars(as_json) as progress:
        said = prepare_data(name, directory or "", progress)
    if as_json:
        print_json({"name": name, "said": said})
    else:
        typer.echo(said)


@data_app.command("check")
def check(
    name: NameArgument,
    directory: DirectoryArgument = None,
    workers: Annotated[int, typer.Option(min=0, help="Processes that decode images.")] = 2,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="A=V", help="Another key of [data]; may be repeated."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Read every image: counts by class, sizes, damaged files, mean and deviation, a checksum.

    Mean and standard deviation are what data.normalise can be set to. Exit status 1 if an image cannot
    be read or a class has none.

    \b
    Examples:
      dbq data check digits
      dbq data check cifar10 data --json
      dbq data check visual_wake_words /data/coco --workers 8
      dbq data check folder flowers --set split=0.2
      dbq data check mine.data:flowers --set options.year=2024
    """
    from dbq.data.table import check_data
    from dbq.training.recipe import parse_keys

    with progress_bars(as_json) as progress:
        keys = parse_keys(settings or ())
        report = check_data(name, directory or "", progress, workers, keys)
    if as_json:
        print_json({"name": name, **report.to_json()})
    else:
        _print(report)
    if report.problems:
        raise typer.Exit(1)


FEW = 20  # classes that are printed one by one


def _print(report: Report) -> None:
    for part in report.splits:
        typer.echo(f"{part.name}: {part.images} images of {len(part.per_class)} classes")
        if len(part.per_class) <= FEW:
            for name, count in part.per_class.items():
                typer.echo(f"  {count:7}  {printable(name)}")
        else:
            counts = part.per_class.values()
            typer.echo(f"  {min(counts)} to {max(counts)} a class; --json lists them")
        if part.sizes:
            sizes = (part.sizes.smallest, part.sizes.median, part.sizes.largest)
            smallest, median, largest = (f"{width}x{height}" for width, height in sizes)
            typer.echo(f"  sizes {smallest} to {largest}, median {median}")
    for problem in report.problems:
        typer.echo(f"problem: {printable(problem)}")
    if report.mean:
        mean, std = (
            ", ".join(f"{value:.4f}" for value in values) for values in (report.mean, report.std)
        )
        typer.echo(f"normalise = [[{mean}], [{std}]]")
    typer.echo(f"sha256 {report.sha256}")
