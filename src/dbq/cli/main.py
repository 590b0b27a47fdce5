"""The command line: parsing and printing only.

A command is a function with @app.command(). It imports what it needs when it runs, so that help and
completion stay quick. A DbqError becomes one line on stderr and exit status 2.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from dbq.cli.comparison import compare, methods, search
from dbq.cli.data import data_app
from dbq.cli.deploy import bench, export, inspect, run
from dbq.cli.report import paper, report
from dbq.cli.sweep import sweep
from dbq.cli.terminal import JsonOption, print_json, progress_bars
from dbq.cli.training import evaluate, recipes_app, train
from dbq.errors import DbqError
from dbq.plans.shipped import PLANS
from dbq.version import __version__


def _fail(message: str) -> NoReturn:
    typer.echo(f"error: {' '.join(message.split())}", err=True)
    raise typer.Exit(2)


OUT_OF_MEMORY = ("can't allocate memory", "out of memory")  # torch's words on a CPU and on a GPU


class Commands(TyperGroup):
    """Turns errors that a user can act on into one line."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except DbqError as error:
            _fail(str(error))
        except KeyboardInterrupt:
            typer.echo("interrupted", err=True)
            raise typer.Exit(130) from None
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


app.command()(train)
app.command("eval")(evaluate)
for command in (export, inspect, run, bench, methods, compare, search, sweep, report, paper):
    app.command()(command)
app.add_typer(recipes_app, name="recipes")
app.add_typer(data_app, name="data")


class By(StrEnum):
    """What the rows of the cost table are."""

    layer = "layer"
    role = "role"
    ops = "ops"


def complete_model(incomplete: str) -> list[str]:
    """Names of networks, for shell completion."""
    from dbq.networks.table import MODELS

    return [name for name in MODELS if name.startswith(incomplete)]


def complete_plan(incomplete: str) -> list[str]:
    """Names of plans, for shell completion."""
    return [name for name in PLANS if name.startswith(incomplete)]


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dbq {__version__}")
        raise typer.Exit()


ModelArgument = Annotated[
    str, typer.Argument(help="Name of a network.", autocompletion=complete_model)
]
PlanOption = Annotated[
    str,
    typer.Option(help="Name of a plan, or path of a .toml file.", autocompletion=complete_plan),
]


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Ternary-branch quantization for lightweight CNNs: quantize, count, deploy, compare."""


@app.command()
def cost(
    model: ModelArgument,
    plan: PlanOption = "fp",
    width: Annotated[float, typer.Option(help="Width multiplier.")] = 1.0,
    classes: Annotated[
        int | None, typer.Option(min=1, help="Number of classes; the network's own if not given.")
    ] = None,
    size: Annotated[
        int | None, typer.Option(min=1, help="Side of the image; the network's own if not given.")
    ] = None,
    weights: Annotated[
        Path | None, typer.Option(help="Float weights, .safetensors or .pth: their zeros make C_S.")
    ] = None,
    fold_bn: Annotated[
        bool, typer.Option("--fold-bn", help="Fold batch norms into the layers before them.")
    ] = False,
    by: Annotated[By, typer.Option(help="A row for each layer, role, or kind of operation.")] = (
        By.role
    ),
    as_json: JsonOption = False,
) -> None:
    """What one inference costs: C_C, C_S, C_R and C_M of the paper.

    \b
    C_C  1-bit full adders          C_S  the same, skipping zero weights
    C_R  bits of weights and inputs C_M  bits of the model alone

    \b
    Examples:
      dbq cost mobilenet_v1
      dbq cost mobilenet_v1 --plan dbq-2t-4 --by layer
      dbq cost resnet20 --plan resnet-2t --weights resnet20.safetensors
      dbq cost mobilenet_v1 --width 0.25 --classes 2 --by ops --json
    """
    import torch

    from dbq.costs.rules import cost as cost_of
    from dbq.model.preparation import prepare
    from dbq.networks.table import create_model, input_size
    from dbq.plans.shipped import load_plan

    chosen = load_plan(plan)
    network = create_model(model, num_classes=classes, width=width, weights=weights)
    side = size or input_size(model)
    image = torch.zeros(1, 3, side, side)
    prepare(network, chosen, image)
    result = cost_of(network, image, fold_bn=fold_bn)
    if weights is None and not chosen.is_float:
        result = replace(result, note="zeros and C_S are those of untrained, random weights")
    if as_json:
        options = {"width": width, "classes": classes, "size": side, "fold_bn": fold_bn}
        print_json({"model": model, "plan": chosen.name, **options, **result.to_json()})
        return
    folded = ", batch norm folded" if fold_bn else ""
    typer.echo(f"{model}, width {width:g}, {side}x{side}, plan {chosen.name}{folded}")
    typer.echo(result.table(by.value))


@app.command()
def tables(as_json: JsonOption = False) -> None:
    """The complexity tables of the paper: each printed figure, then ours.

    \b
    Examples:
      dbq tables
      dbq tables --json
    """
    from dbq.experiments.paper.tables import paper_tables

    found = paper_tables()
    if as_json:
        print_json({"tables": [table.to_json() for table in found]})
        return
    typer.echo("\n\n".join(str(table) for table in found))
    typer.echo("\n✓ ours rounds to the printed figure, ≠ it does not; - cannot be or need not be")
    typer.echo("computed; / not given in the paper. Accuracies are the paper's.")


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Directory for the three runs.")] = Path("runs/demo"),
    as_json: JsonOption = False,
) -> None:
    """The whole story in a minute or two, on real data that needs no download.

    Trains a small MobileNetV1 on scikit-learn's handwritten digits, quantizes it with one and with
    two ternary branches, fine-tunes each, and prints accuracies and costs.

    \b
    Examples:
      dbq demo
      dbq demo --out /tmp/digits --json
    """
    import torch

    from dbq.experiments.demo import results_table, run, to_json

    torch.set_num_threads(1)  # 8x8 images: more threads would only wait for each other
    if (out / "digits-2t" / "result.json").exists() and not as_json:
        typer.echo(f"{out} holds finished runs, shown again; delete it to train anew", err=True)
    with progress_bars(quiet=as_json) as progress:
        rows = run(out, progress)
    if as_json:
        print_json(to_json(rows))
        return
    typer.echo(results_table(rows))


@app.command()
def doctor(as_json: JsonOption = False) -> None:
    """What this machine has, and what dbq will use of it.

    \b
    Examples:
      dbq doctor
      dbq doctor --json
    """
    from dbq.cli.doctor import examine

    found = examine()
    if as_json:
        print_json(found)
        return
    width = max(map(len, found))
    for name, value in found.items():
        typer.echo(f"{name:{width}}  {value}")


def main() -> None:
    """The `dbq` command."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal without ✓ shows ?, not a traceback
    app()
