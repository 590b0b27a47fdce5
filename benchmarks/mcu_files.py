"""ResNet-20 with two branches and the demo's digits networks, as .dbq files for benchmarks/mcu.py.

    python benchmarks/mcu_files.py [--out DIR] [--cifar10 DIR] [--weights FILE]

ResNet-20 is quantized without labels, by 1,024 training images of CIFAR-10; the digits networks are
those that `dbq demo` trains. Top-1 is that of libdbq on all test images, of each file and of the same
network with short scales (`--compact`). Files go to --out. -> results/mcu_files.json
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from machine import headline, options, save
from post_training import CASES, some_images
from tabular import show

import dbq
from dbq.data.options import DataOptions
from dbq.data.split import Split
from dbq.data.table import load_data
from dbq.deploy.csource.exact.compact import compacted
from dbq.deploy.engine import load
from dbq.deploy.file.fileformat import load_program, write_program
from dbq.deploy.program import Program
from dbq.experiments.demo import run as run_demo
from dbq.training.recipe import load_recipe

PLAN, EXAMPLES, BATCH = "resnet-2t-a8", 32, 100
COLUMNS = {"network": "{network}", "form": "{form}", "top-1": "{top1:.2f}", "images": "{images:,}",
           "bytes": "{bytes:,}"}  # fmt: skip


def resnet(cifar10: Path, weights: Path) -> tuple[Program, Split]:
    case = CASES["resnet20"]
    mean, std = case.pixels
    train, test = load_data(DataOptions("cifar10", str(cifar10), mean, std))
    images = some_images(train, case.images)
    model = dbq.create_model("resnet20", weights=weights, **case.options).eval()
    dbq.quantize(model, PLAN, images)
    return dbq.lower(model.eval(), images[:EXAMPLES], mean=mean, std=std, report=None), test


def digits(out: Path) -> Iterator[tuple[str, Program, Split]]:
    _, test = load_data(load_recipe("digits-fp").data)
    for row in run_demo(out / "demo", lambda what, done, total: None):
        if row.file:
            yield row.recipe, load_program(Path(row.file)), test


def top1(content: bytes, test: Split) -> float:
    right = 0
    with load(content) as net:
        for batch in test.batches(torch.split(torch.arange(len(test)), BATCH), raw=True):
            pixels = batch.images.permute(0, 2, 3, 1).contiguous().numpy()
            right += int((net(pixels).argmax(1) == batch.labels.numpy()).sum())
    return 100 * right / len(test)


def main() -> None:
    arguments = options(
        __doc__, out=Path("build/mcu"), cifar10=Path("data/cifar10"),
        weights=Path("data/resnet20-cifar10-fp.safetensors"),
    ).parse_args()  # fmt: skip
    if missing := [p for p in (arguments.cifar10, arguments.weights) if not p.exists()]:
        sys.exit(f"needs {', '.join(map(str, missing))}")
    print(f"Networks for microcontrollers, {headline()}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    program, test = resnet(arguments.cifar10, arguments.weights)
    rows: list[dict[str, Any]] = []
    for name, each, split in [("resnet20-2t", program, test), *digits(arguments.out)]:
        dbq.save(each, arguments.out / f"{name}.dbq")
        for form, content in (
            ("as lowered", write_program(each)),
            ("compact", write_program(compacted(each))),
        ):
            rows.append({"network": name, "form": form, "top1": top1(content, split),
                         "images": len(split), "bytes": len(content)})  # fmt: skip
    print(show(COLUMNS, rows))
    print(save("mcu_files", rows=rows))


if __name__ == "__main__":
    main()
