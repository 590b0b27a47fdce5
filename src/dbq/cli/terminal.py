"""Output that the commands share: JSON on stdout, progress bars on stderr."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from dbq.support.text import as_argument


def print_json(data: Any) -> None:
    """Data on stdout, nothing else."""
    typer.echo(json.dumps(data, indent=2))


def command_line(context: typer.Context) -> str:
    """What to type to call the command again with the same arguments and options."""
    words = ["dbq", str(context.info_name)]
    for parameter in context.command.params:
        value = context.params.get(str(parameter.name))
        if not value or value == parameter.default:
            continue
        values = value if isinstance(value, list | tuple) else [value]
        for each in values:
            words += [parameter.opts[0]] if parameter.param_type_name == "option" else []
            word = as_argument(each) if isinstance(each, Path) else shlex.quote(str(each))
            words += [] if each is True else [word]
    return " ".join(words)


@contextmanager
def progress_bars(quiet: bool) -> Iterator[Callable[[str, int, int], None]]:
    """A bar for each `what` of `progress(what, done, total)`; nothing if `quiet`."""
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
