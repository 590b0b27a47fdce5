"""Arguments and options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from dbq.plans.shipped import PLANS
from dbq.training.recipe import recipe_names


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
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
RecipeArgument = Annotated[
    str,
    typer.Argument(help="Name of a recipe, or path of a .toml.", autocompletion=complete_recipe),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="A.B=V", help="Change a key of the recipe; may be repeated."),
]
