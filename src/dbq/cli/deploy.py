"""`dbq export`, `dbq inspect`, `dbq run` and `dbq bench`: parsing and printing only."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dbq.cli.options import JsonOption
from dbq.cli.terminal import print_json
from dbq.errors import EngineError
from dbq.support.text import as_argument, as_text, plain_table, printable, short

FileArgument = Annotated[Path, typer.Argument(help="A .dbq file.")]
ThreadsOption = Annotated[int, typer.Option(min=1, help="Threads of the engine.")]


def export(
    network: Annotated[
        Path, typer.Argument(help="Directory of a run of dbq train, or one of its networks.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The file; net.dbq in the run if not given.")
    ] = None,
    onnx: Annotated[Path | None, typer.Option(help="Write an ONNX model as well.")] = None,
    data: Annotated[
        str, typer.Option(help="Where the data set is, if not where the recipe says.")
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """Write a trained network as one small file that runs without Python.

    The integer program is compared with the network on test images, or on noise if there are none.

    \b
    Examples:
      dbq export runs/2t
      dbq export runs/2t -o resnet20.dbq --onnx resnet20.onnx --data data/cifar-10
    """
    from dbq.deploy.file.fileformat import save
    from dbq.experiments.export import program_of_run
    from dbq.lowering.agreement import Agreement
    from dbq.training.record.rundir import RunDir

    program = program_of_run(network, data)
    target = out or RunDir(network if network.is_dir() else network.parent).deployed
    size = save(program, target)
    files = {"file": str(target), "bytes": size}
    if onnx is not None:
        from dbq.deploy.onnx.export import export_onnx

        export_onnx(program, onnx)
        files["onnx"] = str(onnx)
    if as_json:
        print_json({**files, "facts": dict(program.facts)})
        return
    typer.echo(f"{Agreement(**program.facts['agreement'])} ({program.facts['compared_on']})")
    typer.echo(printable(f"{target}: {size:,} bytes" + (f", and {onnx}" if onnx else "")))
    typer.echo(f"next: dbq run {as_argument(target)} IMAGE, or dbq bench {as_argument(target)}")


def inspect(
    file: FileArgument,
    kernels: Annotated[
        bool, typer.Option("--kernels", help="Show the kernels that run on this machine instead.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the layers of a .dbq file, their precision, size and sparsity; or the kernels that run them.

    \b
    Examples:
      dbq inspect net.dbq
      dbq inspect net.dbq --kernels
      dbq inspect net.dbq --json
    """
    from dbq.deploy.engine import load
    from dbq.deploy.file.fileformat import load_program
    from dbq.deploy.inspection import describe

    found = load(file).describe() if kernels else describe(load_program(file))
    if as_json:
        print_json(found.to_json())
    else:
        typer.echo(str(found))


def run(
    file: FileArgument,
    images: Annotated[
        list[Path], typer.Argument(help="Image files of any format and size, or folders of them.")
    ],
    top: Annotated[int, typer.Option(min=1, help="How many classes to show.")] = 5,
    threads: ThreadsOption = 1,
    as_json: JsonOption = False,
) -> None:
    """Classify images with a .dbq file.

    Images are scaled and cropped at the centre as in the test of the data set.

    \b
    Examples:
      dbq run net.dbq cat.jpg
      dbq run net.dbq photographs/ --top 1
      dbq run net.dbq *.png --top 1 --json
    """
    from dbq.deploy.engine import load
    from dbq.deploy.images import images_in

    paths = [path for given in images for path in images_in(given)]
    with load(file, threads) as net:
        try:
            guesses = [net.classify(path, top) for path in paths]
        except EngineError as error:
            raise EngineError(f"{file}: {error}") from None
    rows: list[dict[str, Any]] = []
    for path, best in zip(paths, guesses, strict=True):
        top_classes = [{"class": g.name, "index": g.index, "logit": g.logit} for g in best]
        rows.append({"image": str(path), "top": top_classes})
    if as_json:
        print_json(rows)
        return
    for row in rows:
        typer.echo(printable(row["image"]))
        for each in row["top"]:
            typer.echo(f"  {each['logit']:9.3f}  {printable(each['class'])}")


def bench(
    file: FileArgument,
    threads: ThreadsOption = 1,
    seconds: Annotated[float, typer.Option(min=0.1, help="How long to measure.")] = 2.0,
    batch: Annotated[int, typer.Option(min=1, help="Images in a call.")] = 1,
    as_json: JsonOption = False,
) -> None:
    """Measure how fast a .dbq file runs on this machine: whole calls, and each layer.

    \b
    Examples:
      dbq bench net.dbq
      dbq bench net.dbq --threads 2 --batch 16 --json
    """
    from dbq.deploy.bench import measure
    from dbq.deploy.engine import load

    with load(file, threads) as net:
        found = measure(net, seconds, batch)
    if as_json:
        print_json(found)
    else:
        typer.echo(_bench_text(found))


def _bench_text(found: dict[str, Any]) -> str:
    table = plain_table(["layer", "kernel", "µs", "GMAC/s"], left=2)
    for layer in found["layers"]:
        if layer["kernel"]:
            speed = layer["gmac_per_second"]
            table.add_row(layer["name"], layer["kernel"], f"{layer['microseconds']:.1f}",
                          f"{speed:.1f}" if speed else "")  # fmt: skip
    return as_text(
        table,
        f"{printable(found['network'])}, {found['isa']}, {found['threads']} threads, "
        f"batch {found['batch']}: "
        f"median {found['milliseconds']:.3f} ms of {found['calls']} calls, fastest "
        f"{found['fastest_milliseconds']:.3f} ms, {found['images_per_second']:.0f} images/s; "
        f"{short(found['peak_memory'])}B of memory, loaded in {found['load_milliseconds']:.1f} ms",
    )
