"""`dbq sweep`: parsing and printing only."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dbq.cli.options import JsonOption, SetOption
from dbq.cli.terminal import command_line, print_json
from dbq.errors import TrainingError
from dbq.experiments.sweep.sweep import load_sweep, sweep_names
from dbq.support.text import printable

if TYPE_CHECKING:
    from dbq.experiments.sweep.outcome import Outcome
    from dbq.experiments.sweep.runner import Task


def complete_sweep(incomplete: str) -> list[str]:
    """Names of sweeps, for shell completion."""
    return [name for name in sweep_names() if name.startswith(incomplete)]


def sweep(
    context: typer.Context,
    sweep: Annotated[
        str,
        typer.Argument(help="Name of a sweep, or path of a .toml.", autocompletion=complete_sweep),
    ],
    out: Annotated[Path, typer.Option(help="Directory for the runs and the table.")],
    workers: Annotated[
        int, typer.Option(min=1, help="Processes to train with; one thread each if several.")
    ] = 1,
    ray: Annotated[
        str,
        typer.Option(metavar="ADDRESS", help="Train on a Ray cluster instead; auto finds it."),
    ] = "",
    overrides: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Train every point of a grid over recipe keys, and compare the results.

    Float baselines are trained once and shared. Finished runs are kept and unfinished ones resumed. A
    run that fails does not stop the others; the next call of the command tries it again. On a Ray
    cluster, --out must be a shared directory with the same path on all machines.

    \b
    Examples:
      dbq sweep cifar10-vehicles --out runs/vehicles --workers 2
      dbq sweep mine.toml --out runs/mine
      dbq sweep mine.toml --out runs/mine --json
      dbq sweep mine.toml --out /shared/mine --ray auto
    """
    from dbq.experiments.sweep.cluster import RayTasks
    from dbq.experiments.sweep.runner import Processes, run_sweep

    if ray and workers > 1:
        raise TrainingError("--workers are processes on this machine: leave it out with --ray")
    chosen = load_sweep(sweep, overrides or ())
    epochs = sum(run.recipe.train.epochs for run in chosen.runs(out))
    crew = partial(RayTasks, address=ray) if ray else partial(Processes, count=workers)
    try:
        # stdout is for the result, and Ray prints there what happens to its nodes.
        with _progress(epochs, quiet=as_json) as watch, redirect_stdout(sys.stderr):
            found = run_sweep(chosen, out, crew, watch)
    except KeyboardInterrupt:
        typer.echo(f"all runs are saved; to continue: {command_line(context)}", err=True)
        raise
    if as_json:
        print_json(found.to_json())
    else:
        files = [out / "sweep.json", *_pictures(found, out)]
        typer.echo(f"{found}\n\n{', '.join(map(str, files))}")
    if not found.is_complete:
        what = f"{len(found.failed)} failed, {len(found.unfinished)} not finished"
        typer.echo(f"{what}; to continue: {command_line(context)}", err=True)
        raise typer.Exit(1)


def _pictures(found: Outcome, out: Path) -> list[Path]:
    """Draw the figure and the page, if the packages for it are installed and a run is finished."""
    if not found.rows:
        return []
    if importlib.util.find_spec("vl_convert") is None:
        typer.echo("to get a figure and a page as well: pip install 'dbq[train]'", err=True)
        return []
    from dbq.experiments.sweep.pictures import draw_sweep

    return draw_sweep(found, out)


@contextmanager
def _progress(epochs: int, quiet: bool) -> Iterator[Callable[[Sequence[Task]], None]]:
    """A bar for the whole sweep, in epochs, and a line for each run that ends."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True, quiet=quiet)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    seen: dict[str, str] = {}
    hidden = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as bars:
        bar = bars.add_task("starting", total=epochs)

        def watch(tasks: Sequence[Task]) -> None:
            ends = {task.name: task.end for task in tasks}
            for name, end in ends.items():
                if end and seen.get(name, end) != end:  # not news if it had ended before we started
                    line = printable(f"{name} {end}")
                    console.print(line, markup=False, highlight=False, soft_wrap=True)
            seen.update(ends)
            done = list(ends.values()).count("finished")
            failed = sum(bool(end) for end in ends.values()) - done
            text = f"{done} of {len(ends)} runs" + (f", {failed} failed" if failed else "")
            completed = sum(task.files.epochs_done for task in tasks)
            bars.update(bar, description=text, completed=completed)

        yield watch
