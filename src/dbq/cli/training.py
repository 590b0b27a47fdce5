"""`dbq train`, `dbq eval` and `dbq recipes`: parsing and printing only."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dbq.cli.options import JsonOption, RecipeArgument, SetOption, complete_recipe
from dbq.cli.terminal import print_json
from dbq.errors import RecipeError, TrainingError
from dbq.support.text import as_text, plain_table, printable, short
from dbq.training.recipe import Recipe, load_recipe, recipe_names

if TYPE_CHECKING:
    from dbq.training.record.result import Result

recipes_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="""The shipped training recipes.

    \b
    Examples:
      dbq recipes list
      dbq recipes show resnet20-2t
    """,
)


def train(
    recipe: RecipeArgument,
    out: Annotated[Path, typer.Option(help="Directory for the run.")],
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue from the last checkpoint, if there is one.")
    ] = False,
    overrides: SetOption = None,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Write DIR/tensorboard as well.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Train by a recipe; writes the network, its metrics and its result into a directory.

    Accuracy is that of the hard network on the whole test set: every weight is one of its few levels,
    as when it is deployed. While it trains it is soft: levels are joined by sigmoids, whose steepness T
    (the temperature) rises. Ctrl-C saves a checkpoint and stops.

    \b
    Examples:
      dbq train digits-fp --out runs/fp
      dbq train digits-2t --out runs/2t --set model.weights=runs/fp
      dbq train digits-2t --out runs/2t --resume
      dbq train mine.toml --out runs/mine --set train.epochs=3 --set machine.channels_last=true
      torchrun --nproc-per-node=2 -m dbq train digits-2t --out runs/two --set machine.sync_bn=true
    """
    from rich.console import Console

    from dbq.training.run import train as run
    from dbq.training.watchers.display import TerminalWatcher
    from dbq.training.watchers.watching import Watcher

    chosen = _recipe_of_run(recipe, out, overrides or []) if resume else None
    chosen = chosen or load_recipe(recipe, overrides or ())
    watchers: list[Watcher] = []
    first = os.environ.get("RANK", "0") == "0"  # of the processes torchrun started
    with ExitStack() as stack:
        if first and not as_json:
            watchers.append(stack.enter_context(TerminalWatcher(Console(stderr=True))))
        if first and tensorboard:
            from dbq.training.watchers.tensorboard import TensorBoardWatcher

            watchers.append(TensorBoardWatcher(out))
        result = run(chosen, out, resume=resume, watchers=tuple(watchers))
    if first and as_json:
        print_json(result.to_json())
    elif first:
        typer.echo(_result_text(result, out))


def _recipe_of_run(recipe: str, out: Path, overrides: list[str]) -> Recipe | None:
    """The recipe that the run in `out` was started with, if any: its --set need not be repeated."""
    from dbq.support.imports import announce_code
    from dbq.training.record.rundir import RunDir

    run = RunDir(out)
    if not run.is_started:
        return None
    started, named = run.recipe(overrides), load_recipe(recipe).name
    if started.name != named:
        raise TrainingError(
            f"{out} is a run of recipe {started.name}, not of {named}: choose another --out"
        )
    announce_code(out, *started.code)
    return started


def evaluate(
    network: Annotated[
        Path,
        typer.Argument(help="Directory of a run, one of its networks, a .dbq file, other weights."),
    ],
    recipe: Annotated[
        str | None,
        typer.Option(
            help="Recipe of weights that are not from dbq train.", autocompletion=complete_recipe
        ),
    ] = None,
    overrides: SetOption = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Where the data set is, if not where the recipe says; for a .dbq file of a network "
            "of your own, a folder with a folder of images for each class."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure top-1 and top-5 of the hard network on the whole test set.

    Hard means as it is deployed: every weight is one of its few levels, without training's smooth
    steps between them.

    \b
    Examples:
      dbq eval runs/2t
      dbq eval runs/2t/best.safetensors --json
      dbq eval runs/2t/net.dbq
      dbq eval mine.dbq --data photographs
      dbq eval resnet20.safetensors --recipe resnet20-fp
      dbq eval resnet20.safetensors --recipe resnet20-fp --set quantize.plan=resnet-2t
    """
    if overrides and recipe is None:
        raise RecipeError("--set changes a recipe: give one by --recipe, or drop --set")
    chosen = load_recipe(recipe, overrides or ()) if recipe else None
    found = _evaluated(network, chosen, data)
    if as_json:
        print_json(found)
        return
    plan = f" ({printable(found['plan'])})" if found["plan"] else ""
    epoch = "" if found["epoch"] is None else f", epoch {found['epoch'] + 1}"
    typer.echo(
        f"{printable(found['recipe'])}{plan}{epoch}: "
        f"top-1 {found['top1']:.2f} %, top-5 {found['top5']:.2f} % of {found['images']} images "
        f"({printable(found['data'])}, {found['split']})"
    )


def _evaluated(network: Path, recipe: Recipe | None, data: Path | None) -> dict[str, Any]:
    """Only a .dbq file on a folder of class folders is evaluated without torch."""
    if network.suffix == ".dbq":
        from dbq.deploy.engine import load
        from dbq.deploy.pictures.classification import evaluate_folder

        with load(network) as net:
            names_its_data = net.facts.get("data") is not None
        if data is not None and not names_its_data:
            return evaluate_folder(network, data)
        from dbq.experiments.export import evaluate_deployed

        return evaluate_deployed(network, str(data or ""))
    from dbq.training.record.saved import evaluate_file

    return evaluate_file(network, recipe, str(data or ""))


@recipes_app.command("list")
def list_recipes(as_json: JsonOption = False) -> None:
    """List the shipped recipes, with the accuracy the paper states for each.

    \b
    Examples:
      dbq recipes list
      dbq recipes list --json
    """
    recipes = [load_recipe(name) for name in recipe_names()]
    if as_json:
        rows = [
            {"name": r.name, "about": r.about, "data": r.data.name, "network": r.model.name,
             "plan": r.quantize.plan.name, "epochs": r.train.epochs, "paper_top1": r.paper}
            for r in recipes
        ]  # fmt: skip
        print_json(rows)
        return
    table = plain_table(["recipe", "data", "network", "plan", "epochs", "paper"], left=4)
    for recipe in recipes:
        paper = "" if recipe.paper is None else f"{recipe.paper:.2f}"
        table.add_row(
            recipe.name, recipe.data.name, recipe.model.label, recipe.quantize.plan.name,
            str(recipe.train.epochs), paper,
        )  # fmt: skip
    typer.echo(as_text(table, width=105))


@recipes_app.command("show")
def show_recipe(
    recipe: RecipeArgument, overrides: SetOption = None, as_json: JsonOption = False
) -> None:
    """Print a recipe with every default written out, as a start for your own.

    \b
    Examples:
      dbq recipes show resnet20-2t
      dbq recipes show resnet20-2t --set train.epochs=10 > mine.toml
    """
    import tomllib

    text = load_recipe(recipe, overrides or ()).to_toml()
    if as_json:
        print_json(tomllib.loads(text))
    else:
        typer.echo("\n".join(map(printable, text.rstrip().split("\n"))))


def _result_text(result: Result, out: Path) -> str:
    from dbq.training.record.rundir import RunDir

    paper = "" if result.paper_top1 is None else f", paper {result.paper_top1:.2f} %"
    test = result.test
    costs = ", ".join(f"{name} {short(value)}" for name, value in result.cost.metrics.items())
    return (
        f"top-1 {result.top1:.2f} % (best {result.best_top1:.2f} % in epoch "
        f"{result.best_epoch + 1}{paper}), top-5 {result.top5:.2f} %, hard network, "
        f"{test.images} images ({test.data}, {test.split})\n{costs}\n"
        f"network: {RunDir(out).final}"
    )
