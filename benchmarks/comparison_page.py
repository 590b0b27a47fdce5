"""docs/comparison.md and its summary in README.md, from results/comparison_*.json."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

TITLES = {
    "resnet20": "ResNet-20, weights only",
    "mobilenet_v1": "MobileNetV1 0.5 at 32x32, pointwise layers; all else 8 bit",
}
# What each name stands for; the files under quantizers/ have the equations and the sources.
NAMES = {
    "float": "float, trained on",
    "xnor": "XNOR-Net's binary weights",
    "twn": "TWN",
    "ttq": "TTQ",
    "qnet": "Quantization Networks",
    "lqnet": "LQ-Net",
    "abcnet": "ABC-Net",
    "lsq": "LSQ",
    "uniq": "UNIQ",
    "dbq": "**DBQ**",
}

Found = dict[str, Any]


def comparison_table(found: Found) -> Iterator[str]:
    yield (
        "| method | weights | top-1 | best epoch | paper | C_C, 10⁹ FA | C_S, 10⁹ FA | C_R, Mb "
        "| C_M, Mb | training step x float |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for entry in found["entries"]:
        method, _, precision = entry["name"].partition("-")
        cost, ratio, paper = entry["cost"], entry["step_ratio"], entry["paper_top1"]
        adders = " | ".join(f"{cost[key] / 1e9:.3f}" for key in ("C_C", "C_S"))
        bits = " | ".join(f"{cost[key] / 1e6:.2f}" for key in ("C_R", "C_M"))
        yield (
            f"| {NAMES[method]} | {precision or '32b'} | {entry['top1']:.2f} | {entry['best_top1']:.2f} "
            f"| {'' if paper is None else f'{paper:.2f}'} | {adders} | {bits} "
            f"| {'' if ratio is None else f'{ratio:.2f}'} |"
        )


def conditions(found: Found) -> str:
    epochs = f"{found['epochs']} epoch{'s' if found['epochs'] > 1 else ''}"
    facts = found["machine"]
    return (
        f"{epochs} each from the same float weights, seed {found['seed']}, recipe "
        f"`{found['recipe']}`, the same rate and batch for all. Machine: {facts['cpu']}, "
        f"{facts['instructions']}, torch {facts['torch']}."
    )


def not_trained(found: Found) -> list[str]:
    """Who is not in the table yet, said aloud."""
    missing = ", ".join(f"`{name}`" for name in found["missing"])
    return [f"Not trained yet: {missing}.", ""] if missing else []


def summary_section(found: dict[str, Found]) -> list[str]:
    if not found:
        return []
    lines = [
        "Other methods in the same harness: CIFAR-10, top-1 in % of the hard network on all 10,000 test "
        "images.",
        "",
    ]
    for name, data in found.items():
        lines += [f"{TITLES[name]}: {conditions(data)}", "", *comparison_table(data), ""]
        lines += not_trained(data)
    lines += ["What this does and does not show: [docs/comparison.md](docs/comparison.md).", ""]
    return lines


def comparison_page(found: dict[str, Found]) -> str:
    lines = [
        "# Methods side by side",
        "",
        "Written by `benchmarks/pages.py` from `results/comparison_*.json`; do not edit. Every method "
        "gets the same network, starting weights, data, epochs, rate and cost accounting; only the "
        "quantizer of the layers that DBQ makes ternary differs. Accuracy is top-1 in % of the hard "
        "network on all 10,000 test images of CIFAR-10, after the last epoch and in the best one.",
        "",
    ]
    if not found:
        lines += ["The comparisons have not been run to their end yet: `make results` does it.", ""]
    for name, data in found.items():
        lines += [
            f"## {TITLES[name]}",
            "",
            conditions(data),
            "",
            *comparison_table(data),
            "",
            *not_trained(data),
            f"![accuracy against cost](../results/comparison_{name}.svg)",
            "",
            "```",
            data["command"],
            "```",
            "",
        ]
    return "\n".join([*lines, *reading(found)]) + "\n"


def reading(found: dict[str, Found]) -> Iterator[str]:
    """How to read the tables: what the numbers are not."""
    yield "## How to read this"
    yield ""
    yield (
        "- The budget is short. It says which method recovers quickly from a trained float network, not "
        "which one is best after the many epochs of its own publication. The rate and the temperature "
        "schedule were chosen for DBQ and are given to all; one seed; a standard error of a single "
        "accuracy is 0.27 at 92 %."
    )
    yield (
        "- The paper's column is its Table 2: 50 epochs for DBQ (from 92.00 %), LQ-Net's own published "
        "numbers (from 92.10 %). It has no figures for the others on this network."
    )
    yield (
        "- Costs are those of the cost model: binary branches have no zeros to skip (C_S = C_C), levels "
        "of a table (UNIQ) are counted by their bits, TTQ's two scales as one ternary branch."
    )
    ratios = {e["name"]: e["step_ratio"] for e in found.get("resnet20", {}).get("entries", [])}
    known = {name: ratio for name, ratio in ratios.items() if ratio is not None}
    if known:
        lq = ", ".join(f"{n} {r:.2f}x" for n, r in known.items() if n.startswith("lqnet"))
        dbq = ", ".join(f"{n} {r:.2f}x" for n, r in known.items() if n.startswith("dbq"))
        yield (
            "- Training steps are timed in one interleaved run, all methods taking turns on the same "
            f"batches. The paper states 1.4x to 3.7x for LQ-Net and a minimal overhead for DBQ: {lq}; "
            f"{dbq}. LQ-Net here solves its least squares in closed form for all kernels at once."
        )
