"""`dbq methods`, `dbq compare` and `dbq search`: parsing and printing only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from dbq.cli.options import JsonOption, RecipeArgument, SetOption
from dbq.cli.terminal import print_json
from dbq.errors import PlanError
from dbq.support.text import as_text, plain_table
from dbq.training.recipe import load_recipe


def methods(as_json: JsonOption = False) -> None:
    """List the weight quantizers: their precisions, and where they come from.

    \b
    Examples:
      dbq methods
      dbq methods --json
    """
    from dbq.experiments.comparison.methods import ABOUT, precisions
    from dbq.quantizers.table import QUANTIZERS

    rows = [
        {"method": name, "kind": kind, "precisions": precisions(name), "about": ABOUT[name]}
        for name, (kind, _) in QUANTIZERS.items()
    ]
    if as_json:
        print_json(rows)
        return
    table = plain_table(["method", "precisions", "what it is"], left=3)
    for row in rows:
        known = row["precisions"]
        span = f"{known[0]} to {known[-1]}" if len(known) > 2 else ", ".join(known)
        table.add_row(str(row["method"]), span, str(row["about"]))
    typer.echo(as_text(table))


def compare(
    recipe: RecipeArgument,
    methods: Annotated[
        str,
        typer.Option(help="Methods with commas between: float, METHOD:PRECISION (dbq methods)."),
    ],
    out: Annotated[Path, typer.Option(help="Directory for the runs, the table and the figure.")],
    rates: Annotated[
        str,
        typer.Option(
            help="Learning rates with commas between. Each method takes the one that is best on a tenth "
            "of the training images, held out from trials of half the epochs."
        ),
    ] = "",
    rounds: Annotated[
        int,
        typer.Option(min=0, help="Training steps to time for each method; needs an idle machine."),
    ] = 0,
    overrides: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Train several methods by one recipe and compare them.

    They share network, data, starting weights and epochs, and replace each other in the layers that the
    recipe's plan makes ternary. Finished runs are kept, so a comparison can be stopped and
    continued, and methods can be added.

    \b
    Examples:
      dbq compare digits-2t --methods twn,ttq,dbq:2T --out runs/three --set model.weights=runs/fp
      dbq compare digits-2t --methods float,dbq:1T --rounds 9 --out runs/1t --set model.weights=runs/fp
      dbq compare digits-2t --methods twn,dbq:1T --rates 0.01,0.03 --out runs/tuned \\
          --set model.weights=runs/fp
    """
    from dbq.experiments.comparison.comparison import compare as run
    from dbq.experiments.comparison.comparison import parse_all
    from dbq.experiments.comparison.figure import draw_comparison
    from dbq.experiments.comparison.rates import parse_rates

    base = load_recipe(recipe, overrides or ())
    contestants, tried = list(parse_all(methods)), parse_rates(rates)
    with _watching(as_json) as watch:
        found = run(base, contestants, out, rates=tried, rounds=rounds, watch=watch)
    figure = draw_comparison(found, out / "comparison.svg") if found.entries else None
    if as_json:
        print_json(found.to_json())
    else:
        typer.echo(f"{found}\n\n{out / 'comparison.json'}, {figure}")
    if found.failed:
        raise typer.Exit(1)


@contextmanager
def _watching(quiet: bool) -> Iterator[Any]:
    """A function from a contestant's name to the watchers of its run: one display for all."""
    from rich.console import Console

    from dbq.training.watchers.display import TerminalWatcher

    if quiet:
        yield lambda name: ()
        return
    with TerminalWatcher(Console(stderr=True)) as display:

        def watch(name: str) -> tuple[Any, ...]:
            display.message(f"{name}:")
            return (display,)

        yield watch


def search(
    recipe: RecipeArgument,
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the plan is written, a .toml.")],
    budget: Annotated[
        float | None,
        typer.Option(
            help="Share of the cost under --plan that may be spent, 0 to 1. With --choices, a number "
            "over 1 is the cost itself.",
        ),
    ] = None,
    flash: Annotated[
        str,
        typer.Option(
            help="In place of --budget: what the network may take as C source, such as 256kB."
        ),
    ] = "",
    ram: Annotated[str, typer.Option(help="With --flash: the same for RAM.")] = "",
    metric: Annotated[
        str,
        typer.Option(
            help="The cost: C_C, 1-bit full adders; C_R, bits of weights and inputs; or C_M, bits "
            "of the model. With --choices also C_S, full adders skipping zero weights, and bytes.",
        ),
    ] = "C_M",
    plan: Annotated[str, typer.Option(help="The plan to start from.")] = "fx8-3",
    choices: Annotated[
        str,
        typer.Option(
            help="Precisions to choose from, such as 1T,2T,3T,4b,8b, by the error of layers' outputs; "
            "without it, 2 to 8 bits by the error of weights.",
        ),
    ] = "",
    images: Annotated[int, typer.Option(min=1, help="Training images to look at.")] = 256,
    overrides: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find a precision for each layer of a float network under a budget, and write them as a plan.

    \b
    Examples:
      dbq search digits-fp --budget 0.6 -o mixed.toml --set model.weights=runs/fp
      dbq search digits-fp --budget 0.9 --plan dbq-2t-4 --choices 1T,2T,8b -o branches.toml \\
          --set model.weights=runs/fp
      dbq search digits-fp --flash 128kB --ram 64kB --plan dbq-2t-4 -o small.toml \\
          --set model.weights=runs/fp
      dbq train digits-2t --set quantize.plan=mixed.toml --out runs/mixed --set model.weights=runs/fp
    """
    from dbq.experiments.search import search_bits, search_choices, search_device
    from dbq.posttraining.search import CHOICES
    from dbq.support.atomic import write_atomically
    from dbq.support.text import bytes_of

    base = load_recipe(recipe, overrides or ())
    if (budget is None) == (not flash) or (ram and not flash):
        raise PlanError("expected either --budget, or --flash with or without --ram")
    size = None
    options = [choice.strip() for choice in choices.split(",")]
    if flash:
        options = options if choices else list(CHOICES)
        limits = bytes_of(flash), bytes_of(ram) if ram else None
        searched, size = search_device(base, images, *limits, plan, options)
        found, choices = searched.plan, ",".join(options)
    elif choices:
        assert budget is not None
        found = search_choices(base, images, budget, metric, plan, options).plan
    else:
        assert budget is not None
        found = search_bits(base, images, budget, metric, plan)
    write_atomically(out, found.to_toml().encode())
    weights = {name: rule.weight for name, rule in found.names.items()}
    if as_json:
        sizes = {name: str(weight) if choices else weight.size for name, weight in weights.items()}
        device = {"footprint": size.to_json()} if size else {}
        print_json({"plan": found.name, "file": str(out), "bits": sizes, **device})
        return
    table = plain_table(["layer", "weights" if choices else "bits"])
    for name, weight in weights.items():
        table.add_row(name, str(weight) if choices else str(weight.size))
    typer.echo(
        as_text(f"plan {found.name}", table, *([str(size)] if size else []), f"written to {out}")
    )
