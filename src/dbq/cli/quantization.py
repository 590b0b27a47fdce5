"""`dbq quantize`: parsing and printing only."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

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
from dbq.cli.terminal import print_json, progress_bars
from dbq.errors import DbqError
from dbq.support.text import as_argument, printable


class Effort(StrEnum):
    """How much time to take."""

    fast = "fast"
    default = "default"
    best = "best"


def quantize(
    network: ModelArgument,
    weights: Annotated[Path, typer.Option(help="Float weights, .safetensors or .pth.")],
    images: Annotated[
        Path, typer.Option(help="Folder of images such as the network will see; no labels needed.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The deployed file.")],
    plan: PlanOption = "dbq-2t-4",
    budget: Annotated[
        Effort, typer.Option(help="fast: few images; default; best: distils as well.")
    ] = Effort.default,
    memory: Annotated[
        float, typer.Option(min=0.1, help="Gigabytes of activations to keep at a time.")
    ] = 2.0,
    width: WidthOption = 1.0,
    classes: ClassesOption = None,
    size: SizeOption = None,
    options: NetworkOptions = None,
    mean: Annotated[
        str,
        typer.Option(
            metavar="R,G,B", help="Mean of the pixels, from 0 to 1; ImageNet's if not given."
        ),
    ] = "",
    std: Annotated[str, typer.Option(metavar="R,G,B", help="Their standard deviation.")] = "",
    seed: Annotated[int, typer.Option(min=0, help="Of the choice of images.")] = 0,
    state: Annotated[
        Path | None,
        typer.Option(help="Write the quantized weights too, for dbq train to go on from."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Quantize a trained network without labels: float weights in, deployed file out.

    Every layer is fitted to the outputs of the float network on the images. A fifth of the images
    is held out, and a stage that does not help there is undone.

    \b
    Examples:
      dbq quantize resnet20 --weights resnet20.safetensors --images photographs/ \\
          --plan resnet-2t-a8 -o net.dbq
      dbq quantize resnet20 --weights resnet20.safetensors --images photographs/ \\
          --plan resnet-2t-a8 --budget best -o net.dbq --state start.safetensors
    """
    from dbq.data.views import MEAN, STD
    from dbq.deploy.file.fileformat import save
    from dbq.experiments.quantization import Request, quantized_program
    from dbq.lowering.agreement import Agreement
    from dbq.training.processes.memory import keep_freed_memory

    keep_freed_memory()
    request = Request(
        network, weights, images, plan, width, classes, network_options(options), size,
        _numbers(mean, "--mean") or MEAN, _numbers(std, "--std") or STD,
        budget.value, int(memory * 2**30), seed,
    )  # fmt: skip
    with progress_bars(as_json) as progress:
        model, done, program = quantized_program(request, progress)
    files: dict[str, Any] = {"file": str(out), "bytes": save(program, out)}
    if state is not None:
        from dbq.networks.tensorfile import tensor_bytes
        from dbq.support.atomic import write_atomically

        write_atomically(state, tensor_bytes(model.state_dict(), {"plan": done.plan}))
        files["state"] = str(state)
    if as_json:
        print_json({**files, **done.to_json(), "facts": dict(program.facts)})
        return
    typer.echo(str(done))
    typer.echo(str(Agreement(**program.facts["agreement"])))
    typer.echo(printable(f"{out}: {files['bytes']:,} bytes"))
    typer.echo(f"next: dbq run {as_argument(out)} IMAGE, or dbq bench {as_argument(out)}")


def _numbers(text: str, option: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(",")) if text else ()
    except ValueError:
        raise DbqError(f"{option} {text!r}: expected numbers such as 0.485,0.456,0.406") from None
