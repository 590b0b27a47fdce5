"""Arguments and options that several commands share."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from dbq.errors import DbqError
from dbq.plans.shipped import PLANS
from dbq.training.recipe import parse_keys, recipe_names


def complete_recipe(incomplete: str) -> list[str]:
    """Names of recipes, for shell completion."""
    return [name for name in recipe_names() if name.startswith(incomplete)]


def complete_model(incomplete: str) -> list[str]:
    """Names of networks, for shell completion."""
    from dbq.networks.table import MODELS

    return [name for name in MODELS if name.startswith(incomplete)]


def complete_plan(incomplete: str) -> list[str]:
    """Names of plans, for shell completion."""
    return [name for name in PLANS if name.startswith(incomplete)]


ModelArgument = Annotated[
    str,
    typer.Argument(
        help="Name of a network: ours, package.module:function, timm:NAME or torchvision:NAME.",
        autocompletion=complete_model,
    ),
]
PlanOption = Annotated[
    str,
    typer.Option(help="Name of a plan, or path of a .toml file.", autocompletion=complete_plan),
]
WidthOption = Annotated[float, typer.Option(help="Width multiplier.")]
ClassesOption = Annotated[
    int | None, typer.Option(min=1, help="Number of classes; the network's own if not given.")
]
SizeOption = Annotated[
    int | None, typer.Option(min=1, help="Side of the image; the network's own if not given.")
]
NetworkOptions = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="A=V", help="An option of the network; may be repeated."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
RecipeArgument = Annotated[
    str,
    typer.Argument(help="Name of a recipe, or path of a .toml.", autocompletion=complete_recipe),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="A.B=V", help="Change a key of the recipe; may be repeated."),
]


def network_options(texts: list[str] | None) -> dict[str, Any]:
    """The `--option`s of a network, without those that have an option of their own."""
    given = parse_keys(texts or (), "--option")
    for name in ("num_classes", "width", "weights"):
        if name in given:
            raise DbqError(f"--option {name}: give --classes, --width or --weights")
    return given
