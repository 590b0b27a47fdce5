"""Arguments and options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from dbq.training.recipe import recipe_names


def complete_recipe(incomplete: str) -> list[str]:
    """Names of recipes, for shell completion."""
    return [name for name in recipe_names() if name.startswith(incomplete)]


JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
RecipeArgument = Annotated[
    str,
    typer.Argument(help="Name of a recipe, or path of a .toml.", autocompletion=complete_recipe),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="A.B=V", help="Change a key of the recipe; may be repeated."),
]
