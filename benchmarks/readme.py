"""Write the README's table of measurements from results/.

python benchmarks/readme.py [--check]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
BEGIN = "<!-- results:begin (written by benchmarks/readme.py) -->\n"
END = "<!-- results:end -->"


def result(name: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((ROOT / "results" / f"{name}.json").read_text())
    return data


def section() -> str:
    calibration, step, prepare = (result(n) for n in ("calibration", "train_step", "prepare_time"))
    facts = step["machine"]
    lines = [
        "ResNet-20 on the 10,000 CIFAR-10 test images, quantized and *not trained*, top-1 in %:",
        "",
        "| plan | initialisation | relative weight error | quantized | + `calibrate`, 2,000 images |",
        "|---|---|---|---|---|",
    ]
    for row in calibration["rows"]:
        after = "" if row["calibrated"] is None else f"{row['calibrated']:.2f}"
        way = {"kmeans": "`kmeans` (the paper's)", "alternate": "`alternate` (default)"}
        lines.append(
            f"| {row['plan']} | {way.get(row['initialisation'], '')} | {row['error']:.3f} "
            f"| {row['top1']:.2f} | {after} |"
        )
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
        "Made by `make bench`; numbers in `results/`.",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    path = ROOT / "README.md"
    text = path.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    new = before + BEGIN + section() + END + after
    if "--check" in sys.argv:
        if new != text:
            sys.exit("README.md is not what results/ says: run python benchmarks/readme.py")
        return
    path.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
