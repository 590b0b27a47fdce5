"""What `dbq.export_onnx` writes, in onnxruntime and openvino: accuracy, agreement, speed, size.

    python benchmarks/engine_onnx.py [--cifar10 DIR] [--weights DIR] [--files DIR]

ResNet-20, quantized without training from published float weights, on all 10,000 test images of
CIFAR-10, against the integer program run by libdbq; then one image at a time on one thread, taking
turns. What a runtime refuses to read is recorded in its words. The files go to DIR and are kept:

    python benchmarks/engine_onnx.py --files DIR --timing

measures the times again, which is short, and needs a machine that does nothing else.
"""

from __future__ import annotations

import statistics
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from engine import interleave
from engine_runtimes import RUNTIMES, Run
from machine import headline, options, save
from tabular import ROOT, Row, result, show

import dbq
from dbq.data.options import DataOptions
from dbq.data.table import load_data
from dbq.deploy.onnx.export import FORMS, WEIGHT_BITS
from dbq.model.pixels import denormalise

PLANS = ("resnet-2t-a8", "resnet-1t-a8", "fx8-3")
WEIGHTS = "resnet20-cifar10-fp.safetensors"
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
BATCH, ROUNDS, TURN = 100, 15, 0.02
COLUMNS = {"plan": "{plan}", "runtime": "{runtime}", "form": "{form}", "bits": "{bits}",
           "top-1": "{top1:.2f}", "different": "{different}", "codes": "{same_logits}",
           "ms": "{ms:.2f}", "bytes": "{bytes:,}", "ratio": "{ratio:.2f}"}  # fmt: skip

Images = npt.NDArray[np.uint8]
Key = tuple[str, str, int]  # runtime, form, bits of the weights


def cifar10(directory: str) -> tuple[Any, Images, npt.NDArray[np.int64]]:
    """Some training images, normalised; the test images as uint8, and their labels."""
    import torch

    train, test = load_data(DataOptions("cifar10", directory, MEAN, STD))
    order = torch.randperm(len(train), generator=torch.Generator().manual_seed(0))[:256]
    some = torch.cat([batch.images for batch in train.batches([order])])
    batches = list(test.batches(torch.split(torch.arange(len(test)), 1000)))
    images = [denormalise(batch.images, MEAN, STD) for batch in batches]
    return some, np.concatenate(images), np.concatenate([b.labels.numpy() for b in batches])


def write(plan: str, weights: Path, images: Any, directory: Path) -> None:
    """The program and every form of it."""
    model = dbq.create_model("resnet20", weights=weights / WEIGHTS).eval()
    dbq.quantize(model, plan, images, budget="fast")
    program = dbq.lower(model, images[:16], mean=MEAN, std=STD, report=None)
    dbq.save(program, directory / f"{plan}.dbq")
    for form in FORMS:
        for bits in WEIGHT_BITS:
            path = directory / f"{plan}-{form}-{bits}.onnx"
            dbq.export_onnx(program, path, form=form, weight_bits=bits)


def files(plan: str, directory: Path) -> dict[Key, Path]:
    """By runtime; of forms that are the same file, the one with the fewest bits."""
    found: dict[Key, Path] = {("dbq", "program", 0): directory / f"{plan}.dbq"}
    for form in FORMS:
        seen: set[bytes] = set()
        for bits in WEIGHT_BITS:
            path = directory / f"{plan}-{form}-{bits}.onnx"
            if (content := path.read_bytes()) not in seen:
                found |= {(r, form, bits): path for r in ("onnxruntime", "openvino")}
            seen.add(content)
    return found


def logits(runtime: str, path: Path, images: Images) -> npt.NDArray[np.float32]:
    buffer = images[:BATCH].copy()  # runtimes keep a view of their input
    run = RUNTIMES[runtime](path, 1, buffer, buffer)
    found = []
    for start in range(0, len(images), BATCH):
        buffer[:] = images[start : start + BATCH]
        found.append(np.array(run()))
    return np.concatenate(found)


def compare(plan: str, directory: Path, images: Images, labels: Any) -> list[Row]:
    """Accuracy, and how many images differ from the program's; times are measured later."""
    rows: list[Row] = []
    paths = files(plan, directory)
    size = paths["dbq", "program", 0].stat().st_size
    expected = logits("dbq", paths["dbq", "program", 0], images)
    for (runtime, form, bits), path in paths.items():
        print(f"{plan}: {runtime}, {form}, {bits}", file=sys.stderr, flush=True)
        row: Row = {"plan": plan, "runtime": runtime, "form": form, "bits": bits,
                    "bytes": path.stat().st_size, "ratio": path.stat().st_size / size}  # fmt: skip
        try:
            found = logits(runtime, path, images)
        except Exception as problem:  # of any class: it is the runtime's
            rows.append({**row, "refused": str(problem).strip().splitlines()[-1]})
            continue
        classes = found.argmax(axis=1)
        rows.append({**row, "images": len(images), "top1": 100 * float((classes == labels).mean()),
                     "different": int((classes != expected.argmax(axis=1)).sum()),
                     "same_logits": int((found == expected).all(axis=1).sum())})  # fmt: skip
    return rows


def time_forms(rows: list[Row], directory: Path) -> None:
    """Milliseconds for one image, into the rows that run."""
    one = np.random.default_rng(0).integers(0, 256, (1, 32, 32, 3), dtype=np.uint8)
    for plan in PLANS:
        paths, timed = files(plan, directory), {}
        for number, row in enumerate(rows):
            if row["plan"] == plan and "refused" not in row:
                path = paths[row["runtime"], row["form"], row["bits"]]
                timed[number] = RUNTIMES[row["runtime"]](path, 1, one, one)
        contenders: dict[Any, Run] = timed
        for number, times in interleave(contenders, ROUNDS, TURN).items():
            rows[number]["ms"] = statistics.median(times)


def main() -> None:
    arguments = options(
        __doc__, cifar10=ROOT / "data/cifar10", weights=ROOT / "data",
        files=ROOT / "build/onnx", timing=False,
    ).parse_args()  # fmt: skip
    versions = {p: version(p) for p in ("onnxruntime", "openvino")}
    print(f"ONNX, {headline()}, {versions}")
    if arguments.timing:
        rows = result("engine_onnx")["rows"]
    else:
        arguments.files.mkdir(parents=True, exist_ok=True)
        some, images, labels = cifar10(str(arguments.cifar10))
        rows = []
        for plan in PLANS:
            write(plan, arguments.weights, some, arguments.files)
            rows += compare(plan, arguments.files, images, labels)
    time_forms(rows, arguments.files)
    print(show(COLUMNS, [row for row in rows if "refused" not in row], left=3))
    print(save("engine_onnx", versions=versions, rows=rows))


if __name__ == "__main__":
    main()
