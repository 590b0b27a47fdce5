"""What results/engine.json and results/deployed.json say, as Markdown; benchmarks/pages.py writes it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Row = dict[str, Any]
# Every 32-byte load of sums of the table kernels stands for 48 multiply-accumulates of a branch, and the
# processor does two loads a cycle.
MACS_PER_CYCLE = 2 * 48


MISSED = [
    "### Where targets are missed: the cycles, and what was tried",
    "",
    "The profiles below say which layers the time goes to. By cause:",
    "",
    "- Pointwise layers take four fifths of MobileNetV1, at half to three fifths of the load-port"
    " limit. The loop over lists alone does 1.5 of 2 loads with additions a cycle; the rest goes "
    "into building tables, into finishing sums (scale, clamp, pack) that were written to memory "
    "and read again, and into mispredicted branches where runs of a list end.",
    "- Tried and kept: groups of four channels where a layer has 768 sums or more, one pass for "
    "equal neighbouring lists, 3x3 depthwise kernels of their own (1.37 to 0.92 ms). Tried "
    "without gain: wider tiles, prefetching lists, a fourth vector of 128 bits, larger tables. "
    "Not tried: finishing from registers, sharing rows between tables.",
    "- ResNet-20 has 3x3 layers with 16 outputs: tables do not pay for so few, byte products do "
    "72 GMAC/s there. Pairing channels once a row, instead of once for each of the nine taps, is "
    "the next idea.",
    "- Two threads: layers are about twice as fast, whole runs 1.3 to 1.7 times. It is not the "
    "threads' sleep (spinning for 1 ms changes nothing), not their affinity, not the peers' "
    "threads, not the cores (loads alone scale by 2.0), and images shared out to threads scale by"
    " 2.0. Not understood.",
    "- The machine's speed changes by up to 1.5x within seconds; ratios of single runs vary by 5 "
    "to 10 %.",
]


def deployed_table(data: Row) -> Iterator[str]:
    yield (
        "| network | plan | torch eval() | libdbq | classified differently "
        "| float32 torch, libdbq against float64 torch | .dbq file |"
    )
    yield "|---|---|---|---|---|---|---|"
    for row in data["rows"]:
        name = row["run"].partition("-")[0]
        yield (
            f"| {name} | {row['plan']} | {row['torch_top1']:.2f} | {row['engine_top1']:.2f} "
            f"| {row['different_classes']} of {row['images']:,} "
            "| {torch}, {engine} of {images:,} ".format(**row["float64"])
            + f"| {row['bytes'] / 1e3:.0f} kB |"
        )


def speed_table(data: Row) -> Iterator[str]:
    """Ours and the best of the others, one line for each plan."""
    yield (
        "| network | plan | ms, 1 thread (2) | best int8 peer | best float32 "
        "| x int8, 1 thread (2) | target |"
    )
    yield "|---|---|---|---|---|---|---|"
    for name, network in data["networks"].items():
        rows = network["contenders"]
        peers = {row["contender"]: row for row in rows}
        int8 = " ".join(
            f"{peers[peer]['ms'][t]:.2f}" if t == "1" else f"({peers[peer]['ms'][t]:.2f})"
            for t, peer in network["best_int8_peer"].items()
        )
        float32 = _times(
            {t: min(r["ms"][t] for r in rows if r["kind"] == "float32") for t in ("1", "2")}
        )
        for row in rows:
            if row["kind"] == "ours":
                plan, ratio = row["contender"].removeprefix("dbq "), row["ratio"]
                yield (
                    f"| {name} | {plan} | {_times(row['ms'])} | {int8} | {float32} "
                    f"| **{ratio['1']:.2f}** ({ratio['2']:.2f}) | {_target(network, plan)} |"
                )


def _times(ms: dict[str, float]) -> str:
    return f"{ms['1']:.2f} ({ms['2']:.2f})"


def _target(network: Row, plan: str) -> str:
    for goal in network["targets"]:
        if goal["plan"] == plan and goal["kind"] == "target":
            return f"{goal['target']:.2f}: {'met' if goal['met'] else 'missed'}"
    return ""


def machine_line(data: Row) -> str:
    facts = data["machine"]
    versions = ", ".join(f"{name} {number}" for name, number in data["versions"].items())
    return (
        f"Machine: {facts['cpu']}, {facts['instructions']}, {facts['cores']} cores, "
        f"{data['ghz']:.2f} GHz measured; {versions}."
    )


def engine_page(engine: Row, deployed: Row) -> str:
    """docs/engine.md."""
    lines = [
        "# The engine, measured",
        "",
        "Written by `python benchmarks/pages.py` from `results/engine.json` "
        "(`python benchmarks/engine.py`) and `results/deployed.json` (`python benchmarks/deployed.py`).",
        "",
        "Contenders take turns in one process; milliseconds are medians over rounds, ratios medians "
        "over rounds of (best correct int8 peer / ours in that round). Batch 1. Peers get float "
        "planes, ours the uint8 image. Weights are random, with the share of zeros that is shown.",
        "",
        machine_line(engine),
        "",
        *speed_table(engine),
        "",
        *MISSED,
        "",
        "## Trained networks as files",
        "",
        "All 10,000 test images of CIFAR-10, image by image. torch's own float32 is not exact either: "
        "where a value is near the middle between two codes, either may be right.",
        "",
        *deployed_table(deployed),
    ]
    for name, network in engine["networks"].items():
        lines += ["", f"## {name}", "", *_contenders(network), "", *_layers(engine, network)]
    return "\n".join(lines) + "\n"


def _contenders(network: Row) -> Iterator[str]:
    batch = network["batch_threads"]
    yield (
        f"| | ms, 1 thread (2) | x int8 (2) | images/s, batch 16, {batch} threads | file, MB "
        "| load, ms "
        "| network in memory, MB | library, MB | against its own emulation |"
    )
    yield "|---|---|---|---|---|---|---|---|---|"
    for row in network["contenders"]:
        ratio = row["ratio"]
        close = "" if row["correlation"] is None else f"{row['correlation']:.3f}"
        yield (
            f"| {row['contender']} | {_times(row['ms'])} | {ratio['1']:.2f} ({ratio['2']:.2f}) "
            f"| {row['images_per_second']:.0f} | {row['bytes'] / 1e6:.2f} | {row['load_ms']:.0f} "
            f"| {row['network_mb']:.1f} | {row['library_mb']:.0f} | {close} |"
        )
    zeros = "; ".join(
        f"{plan}: " + ", ".join(f"{100 * share:.0f} %" for share in shares)
        for plan, shares in network["zeros"].items()
        if shares
    )
    yield ""
    yield (
        f"Zeros in each branch: {zeros}. The last column is the correlation of a peer's logits with "
        "those of a float emulation of its own quantized network; a peer below "
        f"{network['least_correlation']} (saturated sums) does not count."
    )


def _layers(engine: Row, network: Row) -> Iterator[str]:
    """Where the time goes with two branches, by kind of kernel and layer by layer."""
    plan = next(iter(network["layers"]))
    layers = network["layers"][plan]
    total = sum(layer["us"] for layer in layers)
    yield f"Where the time goes, {plan}, one thread, {total / 1e3:.2f} ms:"
    yield ""
    yield "| layer | precision | kernel | µs | share | GMAC/s | of the load-port limit |"
    yield "|---|---|---|---|---|---|---|"
    for layer in layers:
        if not layer["kernel"]:
            continue
        speed = "" if layer["gmacs"] is None else f"{layer['gmacs']:.1f}"
        share = limit_share(layer, engine["ghz"])
        limit = "" if share is None else f"{100 * share:.0f} %"
        yield (
            f"| {layer['layer']} | {layer['precision']} | {layer['kernel']} | {layer['us']:.0f} "
            f"| {100 * layer['us'] / total:.1f} % | {speed} | {limit} |"
        )


def limit_share(row: Row, ghz: float | None) -> float | None:
    """GMAC/s of a ternary layer as a share of what the load ports allow."""
    if ghz is None or row["gmacs"] is None or not row["precision"].endswith("T"):
        return None
    return float(row["gmacs"] / (MACS_PER_CYCLE * ghz / int(row["precision"][:-1])))
