"""`dbq cost` and `dbq tables`: parsing and printing only."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from dbq.cli.options import (
    ClassesOption,
    JsonOption,
    ModelArgument,
    NetworkOptions,
    PlanOption,
    SizeOption,
    WidthOption,
    network_options,
)
from dbq.cli.terminal import print_json
from dbq.support.text import printable


class By(StrEnum):
    """What the rows of the cost table are."""

    layer = "layer"
    role = "role"
    ops = "ops"


def cost(
    model: ModelArgument,
    plan: PlanOption = "fp",
    width: WidthOption = 1.0,
    classes: ClassesOption = None,
    size: SizeOption = None,
    weights: Annotated[
        Path | None, typer.Option(help="Float weights, .safetensors or .pth: their zeros make C_S.")
    ] = None,
    options: NetworkOptions = None,
    fold_bn: Annotated[
        bool, typer.Option("--fold-bn", help="Fold batch norms into the layers before them.")
    ] = False,
    by: Annotated[By, typer.Option(help="A row for each layer, role, or kind of operation.")] = (
        By.role
    ),
    as_json: JsonOption = False,
) -> None:
    """Count what one inference costs: C_C, C_S, C_R and C_M of the paper.

    \b
    C_C  1-bit full adders          C_S  the same, skipping zero weights
    C_R  bits of weights and inputs C_M  bits of the model alone

    \b
    Examples:
      dbq cost mobilenet_v1
      dbq cost mobilenet_v1 --plan dbq-2t-4 --by layer
      dbq cost resnet20 --plan resnet-2t --weights resnet20.safetensors
      dbq cost mobilenet_v1 --width 0.25 --classes 2 --by ops --json
      dbq cost mine.networks:tiny --option depth=8 --size 96 --plan dbq-2t-4
    """
    import torch

    from dbq.costs.rules import cost as cost_of
    from dbq.model.preparation import prepare
    from dbq.networks.table import create_model, input_size
    from dbq.plans.shipped import load_plan

    chosen, given = load_plan(plan), network_options(options)
    network = create_model(model, num_classes=classes, width=width, weights=weights, **given)
    side = size or input_size(network)
    image = torch.zeros(1, 3, side, side)
    prepare(network, chosen, image)
    result = cost_of(network, image, fold_bn=fold_bn)
    if weights is None and not chosen.is_float:
        result = replace(result, note="zeros and C_S are those of untrained, random weights")
    if as_json:
        choices = {"width": width, "classes": classes, "size": side, "fold_bn": fold_bn}
        print_json({"model": model, "plan": chosen.name, **choices, **result.to_json()})
        return
    folded = ", batch norm folded" if fold_bn else ""
    typer.echo(f"{model}, width {width:g}, {side}x{side}, plan {printable(chosen.name)}{folded}")
    typer.echo(result.table(by.value))


def tables(as_json: JsonOption = False) -> None:
    """Print the complexity tables of the paper: each printed figure, then ours.

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
