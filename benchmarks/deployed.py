"""Trained networks as .dbq files, against torch: top-1 on all of CIFAR-10's test images.

python benchmarks/deployed.py --data DIR [--runs runs/cifar10]

Each run of benchmarks/cifar10.py with 8-bit activations is exported, run by the native engine on all
10,000 test images, and compared with torch's eval(), image by image. torch's float32 is not exact
either: both are compared with float64 on some images.
"""

from __future__ import annotations

import copy
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import options, save

from dbq.data.table import load_data, normalisation
from dbq.deploy.engine import load
from dbq.deploy.file.fileformat import save as save_program
from dbq.experiments.export import program_of_run
from dbq.model.pixels import denormalise
from dbq.training.record.rundir import RunDir
from dbq.training.record.saved import saved_network

RUNS = ("resnet20-2t-a8-0", "resnet20-1t-a8-0", "mobilenet-dbq-2t-4-0", "mobilenet-fx8-3-0")
BATCH = 250
FLOAT64_IMAGES = 2000  # float64 is slow


@torch.no_grad()
def compare(run: Path, data: str) -> dict[str, Any]:
    """Accuracy of both, and the number of images they classify differently."""
    model, recipe, _ = saved_network(run)
    program = program_of_run(run, data)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "net.dbq"
        size = save_program(program, path)
        net = load(path, threads=2)
    options = replace(recipe.data, directory=data)
    _, test = load_data(options)
    exact = copy.deepcopy(model).double()
    mean, std = normalisation(options)
    counts = np.zeros(3, int)  # right by torch, right by libdbq, different
    off = np.zeros(3, int)  # images seen by float64; of these float32 differs, libdbq differs
    for batch in test.batches(torch.split(torch.arange(len(test)), BATCH)):
        by_torch = model(batch.images).argmax(1).numpy()
        by_engine = net(denormalise(batch.images, mean, std)).argmax(1)
        labels = batch.labels.numpy()
        right = (by_torch == labels).sum(), (by_engine == labels).sum()
        counts += [*right, (by_torch != by_engine).sum()]
        if off[0] < FLOAT64_IMAGES:
            by_float64 = exact(batch.images.double()).argmax(1).numpy()
            off += [len(labels), (by_torch != by_float64).sum(), (by_engine != by_float64).sum()]
    images = len(test)
    return {
        "run": run.name, "plan": recipe.plan.name, "images": images,
        "torch_top1": 100 * counts[0] / images, "engine_top1": 100 * counts[1] / images,
        "different_classes": int(counts[2]),
        "float64": dict(zip(("images", "torch", "engine"), off.tolist(), strict=True)),
        "bytes": size, "agreement": program.facts["agreement"], "isa": net.isa,
    }  # fmt: skip


def main() -> None:
    arguments = options(__doc__, data="data", runs=Path("runs/cifar10")).parse_args()
    rows = []
    for name in RUNS:
        if not RunDir(arguments.runs / name).is_finished:
            print(f"{name}: not finished, left out; see benchmarks/cifar10.py", file=sys.stderr)
            continue
        rows.append(compare(arguments.runs / name, arguments.data))
        print(
            "{run}: torch {torch_top1:.2f} %, libdbq {engine_top1:.2f} %, {different_classes} of "
            "{images} images differ, {bytes:,} bytes, against float64 {float64}".format(**rows[-1])
        )
    if rows:
        print(save("deployed", rows=rows))


if __name__ == "__main__":
    main()
