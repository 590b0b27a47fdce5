"""`dbq export`, `dbq inspect`, `dbq run`, `dbq page` and `dbq bench`: parsing and printing only."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from dbq.cli.options import JsonOption
from dbq.cli.terminal import print_json
from dbq.errors import EngineError
from dbq.support.text import as_argument, as_text, plain_table, printable, short

if TYPE_CHECKING:
    from dbq.deploy.csource.boards.verify import Verified
    from dbq.deploy.csource.files import ExportedC
    from dbq.deploy.program import Program

FileArgument = Annotated[Path, typer.Argument(help="A .dbq file.")]
ThreadsOption = Annotated[int, typer.Option(min=1, help="Threads of the engine.")]


def export(
    network: Annotated[
        Path,
        typer.Argument(
            help="Directory of a run of dbq train, one of its networks, or a .dbq file."
        ),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The file; net.dbq in the run if not given.")
    ] = None,
    onnx: Annotated[Path | None, typer.Option(help="Write an ONNX model as well.")] = None,
    data: Annotated[
        str, typer.Option(help="Where the data set is, if not where the recipe says.")
    ] = "",
    c: Annotated[
        Path | None,
        typer.Option("--c", help="Write C source for microcontrollers to this directory."),
    ] = None,
    name: Annotated[str, typer.Option(help="What the C functions are called.")] = "",
    compact: Annotated[
        bool, typer.Option("--compact", help="Shorten scales for C: less flash, another network.")
    ] = False,
    flash: Annotated[str, typer.Option(help="Refuse C source over this, such as 256kB.")] = "",
    ram: Annotated[
        str, typer.Option(help="The same for RAM; slower code is used if it fits.")
    ] = "",
    layout: Annotated[
        str, typer.Option(help="C source as a library: arduino, zephyr or cmsis-pack.")
    ] = "",
    verify: Annotated[
        str,
        typer.Option(
            help="Run the C source under QEMU: arm-m4, rv32imc, ..., or several by comma."
        ),
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """Write a trained network as one small file that runs without Python; or as ONNX; or as C source.

    The integer program is compared with the network on test images, or on noise if there are none.

    \b
    Examples:
      dbq export runs/2t
      dbq export runs/2t -o digits.dbq --onnx digits.onnx
      dbq export net.dbq --c firmware --name net --compact --ram 64kB --verify arm-m4
    """
    for_c = COptions(name, compact, flash, ram, verify, layout)
    if c is None and any(for_c):
        raise EngineError(
            "--name, --compact, --flash, --ram, --layout and --verify are for --c DIR"
        )
    if network.suffix == ".dbq" and network.is_file():
        _export_file(network, onnx, c, for_c, as_json)
        return
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
    written = _write_c(program, c, for_c) if c is not None else None
    if as_json:
        extra = {"c": written.to_json()} if written else {}
        print_json({**files, **extra, "facts": dict(program.facts)})
        return
    typer.echo(f"{Agreement(**program.facts['agreement'])} ({program.facts['compared_on']})")
    typer.echo(printable(f"{target}: {size:,} bytes" + (f", and {onnx}" if onnx else "")))
    if written:
        typer.echo(str(written))
    typer.echo(f"next: dbq run {as_argument(target)} IMAGE, or dbq bench {as_argument(target)}")


def page(
    file: FileArgument,
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write.")],
    labels: Annotated[
        Path | None,
        typer.Option(help="A text file, a class name in each line; else the file's own."),
    ] = None,
    draw: Annotated[
        bool, typer.Option("--draw", help="Small colour images can be drawn too, white on black.")
    ] = False,
) -> None:
    """Write a network as one HTML file that runs it in a browser, without a server.

    The page takes images by drop, paste, choice or camera; small grey ones can be drawn.

    \b
    Examples:
      dbq page net.dbq -o demo.html
      dbq page net.dbq -o demo.html --labels classes.txt
    """
    from dbq.deploy.page.page import write_page

    size = write_page(file, out, labels, draw=draw)
    typer.echo(printable(f"{out}: {size:,} bytes; open it in a browser"))


class COptions(NamedTuple):
    """The options of `dbq export` that are for --c; sizes as they were typed."""

    name: str
    compact: bool
    flash: str
    ram: str
    machines: str  # to verify on
    layout: str


def _export_file(
    network: Path, onnx: Path | None, c: Path | None, options: COptions, as_json: bool
) -> None:
    """A .dbq file as ONNX, as C source, or both."""
    from dbq.deploy.file.fileformat import load_program

    if onnx is None and c is None:
        raise EngineError(f"{network} is exported already: expected --onnx FILE or --c DIR")
    program = load_program(network)
    if onnx is not None:
        from dbq.deploy.onnx.export import export_onnx

        export_onnx(program, onnx)
    written = _write_c(program, c, options) if c is not None else None
    if as_json:
        print_json({"onnx": str(onnx or ""), "c": written.to_json() if written else None})
    else:
        typer.echo(str(written) if written else printable(str(onnx)))


class _WrittenC:
    """C source as it was written, and what machines did with it."""

    def __init__(self, exported: ExportedC, machines: list[Verified]) -> None:
        self.exported, self.machines = exported, machines

    def to_json(self) -> dict[str, Any]:
        files = [str(file) for file in self.exported.files]
        machines = [asdict(machine) for machine in self.machines]
        return {"files": files, **self.exported.footprint.to_json(), "verified": machines}

    def __str__(self) -> str:
        files = printable(", ".join(map(str, self.exported.files)))
        return "\n".join([str(self.exported), files, *map(str, self.machines)])


def _write_c(program: Program, directory: Path, options: COptions) -> _WrittenC:
    from dbq.deploy.csource.boards.machines import machine_of
    from dbq.deploy.csource.boards.verify import verify
    from dbq.deploy.csource.files import export_c
    from dbq.support.text import bytes_of

    words = [word.strip() for word in options.machines.split(",")]
    chosen = [machine_of(word) for word in words if word]
    flash, ram = (bytes_of(size) if size else None for size in (options.flash, options.ram))
    exported = export_c(
        program, directory, options.name, compact=options.compact, flash=flash, ram=ram,
        layout=options.layout,
    )  # fmt: skip
    found = [verify(exported.source, machine) for machine in chosen]
    if wrong := [each.machine for each in found if each.wrong]:
        raise EngineError(f"outputs differ from the reference on {', '.join(wrong)}")
    return _WrittenC(exported, found)


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
    from dbq.deploy.pictures.images import images_in

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
