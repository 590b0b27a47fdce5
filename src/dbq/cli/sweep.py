"""`dbq sweep`: parsing and printing only."""

from __future__ import annotations

import importlib.util
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dbq.cli.terminal import JsonOption, print_json
from dbq.cli.training import SetOption
from dbq.errors import TrainingError
from dbq.experiments.sweep.sweep import load_sweep, sweep_names

if TYPE_CHECKING:
    from dbq.experiments.sweep.outcome import Outcome
    from dbq.experiments.sweep.queue import Status
    from dbq.experiments.sweep.work import Job


def complete_sweep(incomplete: str) -> list[str]:
    """Names of sweeps, for shell completion."""
    return [name for name in sweep_names() if name.startswith(incomplete)]


def sweep(
    sweep: Annotated[
        str,
        typer.Argument(help="Name of a sweep, or path of a .toml.", autocompletion=complete_sweep),
    ],
    out: Annotated[Path, typer.Option(help="Directory for the runs and the table.")],
    workers: Annotated[
        int, typer.Option(min=1, help="Processes to train with; one thread each if several.")
    ] = 1,
    store: Annotated[
        str,
        typer.Option(
            metavar="URL", help="Where workers meet; SQLite in the directory if not given."
        ),
    ] = "",
    grace: Annotated[
        int,
        typer.Option(min=2, help="Seconds without a sign of life until a worker counts as dead."),
    ] = 60,
    overrides: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Train every point of a grid over recipe keys, and set the results side by side.

    Float baselines are trained once and shared. Finished runs are kept, unfinished ones gone on with,
    and a run that fails does not stop the others: run the command again to try those. To work on one
    sweep with several machines, start the same command on each, with a PostgreSQL store and with a
    shared directory that has the same path on all.

    \b
    Examples:
      dbq sweep cifar10-vehicles --out runs/vehicles --workers 2
      dbq sweep visual_wake_words --out runs/vww --set data.directory=/data/coco
      dbq sweep mine.toml --out /shared/mine --store postgresql+psycopg://user@host/sweeps
    """
    if importlib.util.find_spec("optuna") is None:
        raise TrainingError("dbq sweep needs optuna: pip install 'dbq[sweep]'")
    from dbq.experiments.sweep.work import Job, run_sweep

    job = Job(load_sweep(sweep, overrides or ()), out, store, grace)
    again = _command(sweep, out, workers, store, overrides or [])
    try:
        with _progress(job, quiet=as_json) as watch:
            found = run_sweep(job, workers, watch)
    except KeyboardInterrupt:
        typer.echo(f"all runs are saved, go on with: {again}", err=True)
        raise
    if as_json:
        print_json(found.to_json())
    else:
        files = [out / "sweep.json", *_pictures(found, out)]
        typer.echo(f"{found}\n\n{', '.join(map(str, files))}")
    if not found.is_complete:
        what = f"{len(found.failed)} failed, {len(found.unfinished)} not finished"
        typer.echo(f"{what}; to go on with them: {again}", err=True)
        raise typer.Exit(1)


def _pictures(found: Outcome, out: Path) -> list[Path]:
    """The figure and the page, where what draws them is installed and there is something to see."""
    if not found.rows:
        return []
    if importlib.util.find_spec("vl_convert") is None:
        typer.echo("for a figure and a page as well: pip install 'dbq[report]'", err=True)
        return []
    from dbq.experiments.sweep.pictures import draw_sweep

    return draw_sweep(found, out)


def _command(sweep: str, out: Path, workers: int, store: str, overrides: list[str]) -> str:
    """What to type to go on."""
    words = ["dbq", "sweep", sweep, "--out", str(out), "--workers", str(workers)]
    words += ["--store", store] if store else []
    return shlex.join([*words, *(word for each in overrides for word in ("--set", each))])


@contextmanager
def _progress(job: Job, quiet: bool) -> Iterator[Callable[[dict[str, Status]], None]]:
    """A bar for the whole sweep, in epochs, and a line for each run that comes to its end."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from dbq.experiments.sweep.work import epochs_done

    runs = job.sweep.runs(job.out)
    epochs = sum(run.recipe.train.epochs for run in runs)
    console = Console(stderr=True, quiet=quiet)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    seen: dict[str, Status] = {}
    hidden = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as bars:
        task = bars.add_task("starting", total=epochs)

        def watch(status: dict[str, Status]) -> None:
            for name, found in status.items():
                news = found.state in ("finished", "failed") and seen.get(name, found) != found
                if news:  # what had ended before we came is none
                    console.print(f"{name} {found}", markup=False, highlight=False, soft_wrap=True)
            seen.update(status)
            done = sum(epochs_done(job.out, run) for run in runs)
            bars.update(task, description=_counts(status), completed=done)

        yield watch


def _counts(status: dict[str, Status]) -> str:
    """How many runs are in which state, in a few words."""
    states = [found.state for found in status.values()]
    parts = [f"{states.count('finished')} of {len(states)} runs"]
    parts += [f"{states.count(s)} {s}" for s in ("running", "failed") if s in states]
    return ", ".join(parts)
