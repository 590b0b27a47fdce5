"""docs/comparison.md and its summary in README.md, from results/comparison_*.json."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from dbq.support.text import counted

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
Entry = dict[str, Any]


def _amount(metric: str, unit: float, digits: int) -> Callable[[Entry], str]:
    return lambda entry: f"{entry['cost'][metric] / unit:.{digits}f}"


def _if_known(key: str) -> Callable[[Entry], str]:
    return lambda entry: "" if entry[key] is None else f"{entry[key]:.2f}"


COLUMNS: dict[str, Callable[[Entry], str]] = {
    "method": lambda entry: NAMES[entry["name"].partition("-")[0]],
    "weights": lambda entry: entry["name"].partition("-")[2] or "32b",
    "top-1": _if_known("top1"),
    "best epoch": _if_known("best_top1"),
    "paper": _if_known("paper_top1"),
    "C_C, 10⁹ FA": _amount("C_C", 1e9, 3),
    "C_S, 10⁹ FA": _amount("C_S", 1e9, 3),
    "C_R, Mb": _amount("C_R", 1e6, 2),
    "C_M, Mb": _amount("C_M", 1e6, 2),
    "training step x float": _if_known("step_ratio"),
}
IN_README = (
    "method",
    "weights",
    "top-1",
    "paper",
    "C_S, 10⁹ FA",
    "C_M, Mb",
    "training step x float",
)


def comparison_table(found: Found, columns: Iterable[str] = COLUMNS) -> Iterator[str]:
    chosen = [c for c in columns if any(COLUMNS[c](entry) for entry in found["entries"])]
    yield f"| {' | '.join(chosen)} |"
    yield "|---" * len(chosen) + "|"
    for entry in found["entries"]:
        yield f"| {' | '.join(COLUMNS[column](entry) for column in chosen)} |"


def conditions(found: Found) -> str:
    epochs = counted(found["epochs"], "epoch")
    facts = found["machine"]
    return (
        f"{epochs} each from float weights of {found['start_top1']:.2f} %, seed {found['seed']}, recipe "
        f"`{found['recipe']}`, the same rate and batch for all. Machine: {facts['cpu']}, "
        f"{facts['instructions']}, torch {facts['torch']}."
    )


def not_trained(found: Found) -> list[str]:
    """Who is not in the table yet, said aloud."""
    missing = ", ".join(f"`{name}`" for name in found["missing"])
    return [f"Not trained yet: {missing}.", ""] if missing else []


def summary_section(found: dict[str, Found]) -> list[str]:
    lines = [
        "Other methods in the same harness: CIFAR-10, top-1 in % of the hard network on all 10,000 test "
        "images.",
        "",
    ]
    for name, data in found.items():
        lines += [f"{TITLES[name]}: {conditions(data)}", "", *comparison_table(data, IN_README), ""]
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
    yield (
        "- LQ-Net with one bit and XNOR's binary weights have the same forward pass, the sign times the "
        "mean modulus. They differ by the gradient: XNOR's publication has a factor of about the scale, "
        "so its weights move a tenth as far in the same epochs."
    )
    ratios = {e["name"]: e["step_ratio"] for e in found["resnet20"]["entries"]}
    known = {name: ratio for name, ratio in ratios.items() if ratio is not None}
    if known:
        lq = ", ".join(f"{n} {r:.2f}x" for n, r in known.items() if n.startswith("lqnet"))
        dbq = ", ".join(f"{n} {r:.2f}x" for n, r in known.items() if n.startswith("dbq"))
        yield (
            "- Training steps are timed in one interleaved run, all methods taking turns on the same "
            f"batches. The paper states 1.4x to 3.7x for LQ-Net and a minimal overhead for DBQ: {lq}; "
            f"{dbq}. In 20 rounds such ratios vary by a few hundredths; README has DBQ's in 60. LQ-Net "
            "here solves its least squares in closed form for all kernels at once."
        )
