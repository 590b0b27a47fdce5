"""The tables of docs/mcu.md, from results/mcu.json, mcu_peer.json and mcu_files.json."""

from __future__ import annotations

from collections.abc import Callable

from tabular import result, table

# Shapes that the network has several layers of; the peer ran each shape once.
REPEATED = {"depthwise 128, stride 1, 6 x 6": 5, "pointwise 128 to 128, 6 x 6": 5}


def mcu() -> str:
    one, two = (network["machines"] for network in result("mcu")["networks"][:2])
    heads = [
        "processor",
        "1T: instructions",
        "a MAC",
        "1T flash",
        "2T: instructions",
        "a MAC",
        "2T flash",
    ]
    rows = []
    for first, second in zip(one, two, strict=True):
        cells = [first["processor"]]
        for found in (first, second):
            cells += [f"{found['instructions'] / 1e6:.1f} M", f"{found['instructions_per_mac']:.2f}",
                      f"{found['flash']:,}"]  # fmt: skip
        rows.append(cells)
    return table(heads, rows)


def kernels() -> str:
    """What the kernels take on a Cortex-M4 with nothing left out, beside CMSIS-NN on the same shapes."""
    networks = [
        (row["layers"], row["all_channels"])
        for network in result("mcu")["networks"][:2]
        for row in network["machines"]
        if row["machine"] == "arm-m4"
    ]
    peer = result("mcu_peer")["layers"]

    def ours(part: str) -> list[str]:
        cells = []
        for layers, everything in networks:
            chosen = [name for name in layers if part in name]
            counted = sum(everything["layers"][name] for name in chosen)
            cells.append(f"{counted / sum(layers[name][1] for name in chosen):.2f}")
        return cells

    def theirs(part: str) -> str:
        chosen = [row for row in peer if row["layer"].startswith(part)]
        counted, macs = (
            sum(r[key] * REPEATED.get(r["layer"], 1) for r in chosen)
            for key in ("instructions", "macs")
        )
        return f"{counted / macs:.2f}"

    middle = "pointwise 128 to 128, 6 x 6"
    rows = [
        ["pointwise layers, instructions a MAC", *ours("pointwise"), theirs("pointwise")],
        [f"of these, {middle.removeprefix('pointwise ')}", *ours("blocks.8.pointwise"), theirs(middle)],
        ["depthwise layers, instructions a MAC", *ours("depthwise"), theirs("depthwise")],
        ["whole network, instructions a MAC",
         *(f"{everything['instructions_per_mac']:.2f}" for _, everything in networks), ""],
        ["flash", *(f"{everything['flash']:,}" for _, everything in networks), ""],
    ]  # fmt: skip
    return table(["Cortex-M4, all channels", "1T", "2T", "CMSIS-NN, int8"], rows)


OTHERS = {"resnet20-2t": "ResNet-20, 2T", "digits-1t": "digits, 1T", "digits-2t": "digits, 2T"}


def others() -> str:
    """ResNet-20 and the demo's networks: what they take, and what they get right."""
    networks = {
        network["file"].removesuffix(".dbq"): network for network in result("mcu")["networks"]
    }
    right = {
        (row["network"], row["form"]): f"{row['top1']:.1f} %" for row in result("mcu_files")["rows"]
    }
    chosen = [networks[name] for name in OTHERS]
    rows: list[list[str]] = []
    for machines in zip(*(network["machines"] for network in chosen), strict=True):
        counts = [f"{found['instructions'] / 1e6:.1f} M" for found in machines]
        rows.append([f"{machines[0]['processor']}, instructions", *counts])

    def of_m4(name: str) -> list[str]:
        found = [row for network in chosen for row in network["machines"]
                 if row["machine"] == "arm-m4"]  # fmt: skip
        return [f"{row[name]:,}" for row in found]

    rows += [
        ["million MACs", *(f"{network['macs'] / 1e6:.2f}" for network in chosen)],
        ["flash on Cortex-M4", *of_m4("flash")],
        ["RAM", *of_m4("ram")],
        ["top-1", *(right[name, "compact"] for name in OTHERS)],
        ["top-1 without `--compact`", *(right[name, "as lowered"] for name in OTHERS)],
    ]
    return table(["", *OTHERS.values()], rows)


TABLES: dict[str, Callable[[], str]] = {
    "mcu": mcu,
    "mcu kernels": kernels,
    "mcu others": others,
}
