"""What the commands share: the --json option, and progress bars on stderr."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def print_json(data: Any) -> None:
    """Data on stdout, nothing else."""
    typer.echo(json.dumps(data, indent=2))


@contextmanager
def progress_bars(quiet: bool) -> Iterator[Callable[[str, int, int], None]]:
    """A bar for each piece of work, `progress(what, done, total)`; plain silence if `quiet`."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = [TextColumn("{task.description:24}"), BarColumn(), TaskProgressColumn()]
    tasks: dict[str, Any] = {}
    console = Console(stderr=True)
    with Progress(*columns, TimeElapsedColumn(), console=console, disable=quiet) as bars:

        def progress(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total or None)
            bars.update(tasks[what], completed=done)

        yield progress
