"""The `dbq` command: all subcommands, and how errors are shown.

A subcommand is a function in a module of its own group, registered here. It imports what it needs when
it runs, so that help and completion stay quick. A DbqError becomes one line on stderr and exit status 2.
"""

from __future__ import annotations

import sys
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from dbq.cli.comparison import compare, methods, search
from dbq.cli.cost import cost, tables
from dbq.cli.data import data_app
from dbq.cli.demo import demo
from dbq.cli.deploy import bench, export, inspect, page, run
from dbq.cli.doctor import doctor
from dbq.cli.quantization import quantize
from dbq.cli.report import paper, report
from dbq.cli.sweep import sweep
from dbq.cli.training import evaluate, recipes_app, train
from dbq.errors import DbqError
from dbq.support.text import printable
from dbq.support.workers import dead_workers_named
from dbq.version import __version__


def _fail(message: str) -> NoReturn:
    typer.echo(f"error: {printable(' '.join(message.split()))}", err=True)
    raise typer.Exit(2)


OUT_OF_MEMORY = ("can't allocate memory", "out of memory")  # what torch says on a CPU and on a GPU


class Commands(TyperGroup):
    """Turns errors that a user can act on into one line."""

    def invoke(self, ctx: Any) -> Any:
        try:
            with dead_workers_named():
                return super().invoke(ctx)
        except DbqError as error:
            _fail(str(error))
        except KeyboardInterrupt:
            typer.echo("interrupted", err=True)
            raise typer.Exit(130) from None
        except OSError as error:
            if error.filename is None:
                raise
            _fail(f"{error.filename}: {error.strerror}")
        except (MemoryError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and not any(p in str(error) for p in OUT_OF_MEMORY):
                raise
            _fail(
                "not enough memory: make the image, the network or train.batch smaller, or raise "
                "train.accumulate"
            )


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


for command in (demo, quantize, train, export, inspect, run, page, bench, cost, tables, methods,
                compare, search, sweep, report, paper, doctor):  # fmt: skip
    app.command()(command)
app.command("eval")(evaluate)
app.add_typer(recipes_app, name="recipes")
app.add_typer(data_app, name="data")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dbq {__version__}")
        raise typer.Exit()


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Ternary-branch quantization for lightweight CNNs: quantize, count, deploy, compare.

    \b
    Examples:
      dbq doctor
      dbq cost mobilenet_v1 --plan dbq-2t-4
      dbq recipes list
    """


def main() -> None:
    """The `dbq` command."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal without ✓ shows ?, not a traceback
    app()
