"""What `dbq.export_onnx` writes, in onnxruntime and openvino: accuracy, agreement, speed, size.

    python benchmarks/engine_onnx.py --data DIR [--runs runs/cifar10]

Trained CIFAR-10 networks on all 10,000 test images, against the integer program run by libdbq; then one
image at a time on one thread, taking turns.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from engine import interleave
from engine_runtimes import RUNTIMES, Run
from machine import headline, options, save
from tabular import Row, show

import dbq
from dbq.data.options import DataOptions
from dbq.data.table import load_data
from dbq.deploy.onnx.export import FORMS
from dbq.experiments.export import program_of_run
from dbq.model.pixels import denormalise

RUNS = ("resnet20-2t-a8-0", "mobilenet-dbq-2t-4-0", "mobilenet-fx8-3-0")
BATCH, ROUNDS = 100, 15
COLUMNS = {"run": "{run}", "runtime": "{runtime}", "form": "{form}", "top-1": "{top1:.2f}",
           "different": "{different}", "ms": "{ms:.2f}", "bytes": "{bytes:,}"}  # fmt: skip

Images = npt.NDArray[np.uint8]


def test_images(data: str) -> tuple[Images, npt.NDArray[np.int64]]:
    """Test images as uint8, and their labels."""
    import torch

    _, test = load_data(DataOptions("cifar10", data, mean=(0.0,) * 3, std=(1.0,) * 3))
    groups = torch.split(torch.arange(len(test)), 1000)
    batches = [(batch.images, batch.labels.numpy()) for batch in test.batches(groups)]
    images = [denormalise(x, (0.0,) * 3, (1.0,) * 3) for x, _ in batches]
    return np.concatenate(images), np.concatenate([labels for _, labels in batches])


def classes(runtime: str, path: Path, images: Images) -> npt.NDArray[np.int64]:
    buffer = images[:BATCH].copy()  # runtimes keep a view of their input
    run = RUNTIMES[runtime](path, 1, buffer, buffer)
    found = []
    for start in range(0, len(images), BATCH):
        buffer[:] = images[start : start + BATCH]
        found.append(np.asarray(run()).argmax(axis=1))
    return np.concatenate(found)


def measure(run: Path, data: str, directory: Path) -> list[Row]:
    images, labels = test_images(data)
    program = program_of_run(run, data)
    files: dict[tuple[str, str], Path] = {("dbq", "program"): directory / "net.dbq"}
    dbq.save(program, files["dbq", "program"])
    for form in FORMS:
        path = dbq.export_onnx(program, directory / f"{form}.onnx", form=form)
        for runtime in ("onnxruntime", "openvino"):
            files[runtime, form] = path
    found: dict[tuple[str, str], npt.NDArray[np.int64]] = {}
    for key, path in files.items():
        print(f"{run.name}: {', '.join(key)}", file=sys.stderr, flush=True)
        found[key] = classes(key[0], path, images)
    one = images[:1].copy()
    timed: dict[Any, Run] = {
        key: RUNTIMES[key[0]](path, 1, one, one) for key, path in files.items()
    }
    times = interleave(timed, ROUNDS)
    expected = found["dbq", "program"]
    return [
        {"run": run.name, "runtime": key[0], "form": key[1],
         "top1": 100 * float((found[key] == labels).mean()),
         "different": int((found[key] != expected).sum()), "images": len(images),
         "ms": statistics.median(times[key]), "bytes": path.stat().st_size}
        for key, path in files.items()
    ]  # fmt: skip


def main() -> None:
    arguments = options(__doc__, data="data", runs=Path("runs/cifar10")).parse_args()
    versions = {p: version(p) for p in ("onnxruntime", "openvino")}
    print(f"ONNX, {headline()}, {versions}")
    rows: list[Row] = []
    for name in RUNS:
        with tempfile.TemporaryDirectory() as directory:
            rows += measure(arguments.runs / name, arguments.data, Path(directory))
    print(show(COLUMNS, rows, left=3))
    print(save("engine_onnx", versions=versions, rows=rows))


if __name__ == "__main__":
    main()
