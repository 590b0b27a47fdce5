"""Tables of the engine's speed and of deployed networks, from results/.

There is one file for each kind of machine, by the best instruction set that the engine has kernels for:
engine-avx2.json and engine-avx512.json. Tables have what was measured, kind by kind.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tabular import RESULTS, Row, measured, result, table

KINDS = {"avx2": "AVX2", "avx512": "AVX-512 with VNNI"}
# Multiply-accumulates a cycle that a kernel's own bottleneck allows. A 32-byte load of the table kernels
# stands for 48 of one branch, and the processor does two loads a cycle. Products of bytes: one dot
# product of 64 bytes a cycle, or 1.56 pairs of multiply-add and add of 32 bytes. Both in one loop:
# twelve weights of 128 pixels take eight loads of 64 bytes for the table, six for twelve products.
# Shuffles: twelve weights of 128 outputs take 12 shuffles, 12 additions, 6 products, two of all a cycle.
LIMITS = {
    "ternary-table": 2 * 48,
    "dense-quads avx512": 64,
    "dense-quads avx2": 1.56 * 32,
    "table-and-quads": 1536 / 14,
    "shuffles-and-quads": 1536 / 15,
}


def engines() -> dict[str, Row]:
    """What was measured, by the kind of machine."""
    files = {kind: f"engine-{kind}" for kind in KINDS}
    return {k: result(name) for k, name in files.items() if (RESULTS / f"{name}.json").exists()}


def _times(by_threads: Row) -> str:
    """The number for the fewest threads, then the others in brackets."""
    first, *others = (f"{number:.2f}" for number in by_threads.values())
    return f"{first} ({', '.join(others)})" if others else first


def speed() -> str:
    """Ours and the best of the others, one row per plan."""
    heads = ["network", "plan", "machine", "ms, 1 thread (2)", "best int8 peer", "best float32",
             "x int8, 1 thread (2)"]  # fmt: skip
    rows = []
    found = engines()
    each = [(name, kind, engine["networks"][name]) for name in NETWORKS
            for kind, engine in found.items() if name in engine["networks"]]  # fmt: skip
    for name, kind, network in each:
        contenders = {row["contender"]: row for row in network["contenders"]}
        int8 = {t: contenders[peer]["ms"][t] for t, peer in network["best_int8_peer"].items()}
        floats = [row["ms"] for row in contenders.values() if row["kind"] == "float32"]
        float32 = {t: min(ms[t] for ms in floats) for t in ("1", "2")}
        for row in contenders.values():
            if row["kind"] == "ours":
                plan, ratio = row["contender"].removeprefix("dbq "), row["ratio"]
                rows.append([name, f"`{plan}`", KINDS[kind], _times(row["ms"]), _times(int8),
                             _times(float32), f"**{ratio['1']:.2f}** ({ratio['2']:.2f})"])  # fmt: skip
    return table(heads, rows)


def _by_kind(name: str, cells: Callable[[Row, Row], tuple[list[str], list[list[str]]]]) -> str:
    """A table for each kind of machine the network was measured on, below its name."""
    parts = [
        f"{KINDS[kind]}:\n\n{table(*cells(engine['networks'][name], engine))}"
        for kind, engine in engines().items()
        if name in engine["networks"]
    ]
    return "\n\n".join(parts) or "Not measured yet."


def contenders(name: str) -> str:
    return _by_kind(name, lambda network, _: contender_cells(network))


def all_measured() -> str:
    """Where the numbers come from, for each kind of machine."""
    return "\n\n".join(measured(f"engine-{kind}") for kind in engines())


def contender_cells(network: Row) -> tuple[list[str], list[list[str]]]:
    """Heads and rows: what was measured of one network."""
    first, *others = network["best_int8_peer"]  # numbers of threads
    more = f" ({', '.join(others)})" if others else ""
    heads = ["", f"ms, {first} thread{more}", f"x int8{more}",
             f"images/s, batch 16, {network['batch_threads']} threads", "file, MB", "load, ms",
             "network in memory, MB", "library, MB", "correlation", "zeros per branch"]  # fmt: skip
    return heads, [
        [row["contender"], _times(row["ms"]), _times(row["ratio"]),
         f"{row['images_per_second']:.0f}", f"{row['bytes'] / 1e6:.2f}", f"{row['load_ms']:.0f}",
         f"{row['network_mb']:.1f}", f"{row['library_mb']:.0f}",
         "" if row["correlation"] is None else f"{row['correlation']:.3f}",
         _zeros(network["zeros"].get(row["contender"].removeprefix("dbq "), []))]
        for row in network["contenders"]
    ]  # fmt: skip


def _zeros(shares: list[float]) -> str:
    return ", ".join(f"{100 * share:.0f} %" for share in shares)


def layers(name: str) -> str:
    """Where the time goes with two branches on one thread, layer by layer."""
    return _by_kind(
        name,
        lambda network, engine: layer_cells(next(iter(network["layers"].values())), engine["ghz"]),
    )


def layer_cells(measured: list[Row], ghz: float | None) -> tuple[list[str], list[list[str]]]:
    """Heads and rows: the layers of one network that take time."""
    total = sum(layer["us"] for layer in measured)
    heads = ["layer", "precision", "kernel", "µs", "share", "GMAC/s", "of the kernel's limit"]
    rows = [
        [layer["layer"], layer["precision"], layer["kernel"], f"{layer['us']:.0f}",
         f"{100 * layer['us'] / total:.1f} %",
         "" if layer["gmacs"] is None else f"{layer['gmacs']:.1f}",
         _limit_share(layer, ghz)]
        for layer in measured if layer["kernel"]
    ]  # fmt: skip
    return heads, [*rows, ["**total**", "", "", f"**{total:.0f}**", "", "", ""]]


def _limit_share(row: Row, ghz: float | None) -> str:
    """GMAC/s as a share of what the kernel's bottleneck allows. A table serves one branch at a time."""
    kernel = row["kernel"]
    limit = LIMITS.get(kernel) or LIMITS.get(kernel.partition(" ")[0])
    if ghz is None or row["gmacs"] is None or limit is None:
        return ""
    branches = int(row["precision"][:-1]) if kernel.startswith("ternary-table") else 1
    return f"{100 * row['gmacs'] / (limit * ghz / branches):.0f} %"


def deployed() -> str:
    heads = ["network", "plan", "torch eval()", "libdbq", "classified differently",
             "float32 torch, libdbq against float64 torch", ".dbq file"]  # fmt: skip
    return table(heads, (
        [row["run"].partition("-")[0], f"`{row['plan']}`", f"{row['torch_top1']:.2f}",
         f"{row['engine_top1']:.2f}", f"{row['different_classes']} of {row['images']:,}",
         "{torch}, {engine} of {images:,}".format(**row["float64"]),
         f"{row['bytes'] / 1e3:.0f} kB"]
        for row in result("deployed")["rows"]
    ))  # fmt: skip


def whole_ratios() -> str:
    row = result("whole_ratios")
    return (
        f"ResNet-20, plan `{row['plan']}`, prepared and calibrated without training: weights move by "
        f"{100 * row['moved_mean']:.1f} % on average and {100 * row['moved_most']:.1f} % in one kernel; "
        f"of {row['images']:,} test images {row['separate_top1']:.2f} % are right with separate scales "
        f"and {row['whole_top1']:.2f} % with whole ratios. {measured('whole_ratios')}"
    )


NETWORKS = ("mobilenet_v1-1.0", "mobilenet_v1-0.25", "mobilenet_v2-1.0", "shufflenet_v2-1.0",
            "mobilenet_v3-small", "resnet20")  # fmt: skip
TABLES: dict[str, Callable[[], str]] = {
    "speed": speed,
    "measured engines": all_measured,
    "deployed": deployed,
    "whole-ratios": whole_ratios,
    **{f"contenders {name}": partial(contenders, name) for name in NETWORKS},
    **{f"layers {name}": partial(layers, name) for name in NETWORKS},
}
