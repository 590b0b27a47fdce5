"""Is the input pipeline faster than training?

    python benchmarks/input_pipeline.py [--quick]

Images per second of the input pipeline alone and of a float training step alone, and their ratio. Files
are JPEGs of ImageNet's usual 500x375 pixels, smooth and random, few enough to stay in the system's
cache: this measures decoding, not the disk. Workers share the cores with the training step, so on a
machine with few cores the ratio should be well above 1. --quick checks that it runs, and saves nothing.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from machine import headline, options, save
from PIL import Image
from tabular import Row, show
from train_step import CASES, Step

from dbq.data.files.file_split import FileSplit
from dbq.data.options import DataOptions
from dbq.data.split import Split, TensorSplit
from dbq.training.processes.memory import keep_freed_memory

WORKERS = (0, 1, 2)
WIDTH, HEIGHT, QUALITY = 500, 375, 90
COLUMNS = {"network": "{network}", "images": "{images}", "workers": "{workers}",
           "pipeline /s": "{pipeline_per_s:.0f}", "training /s": "{training_per_s:.0f}",
           "ratio": "{ratio:.1f}"}  # fmt: skip


def cifar10(count: int) -> Split:
    """Random images in CIFAR-10's shape."""
    images = torch.randint(256, (count, 3, 32, 32), dtype=torch.uint8)
    return TensorSplit(
        images, torch.zeros(count, dtype=torch.long), name="train", classes=("any",),
        mean=(0.5,) * 3, std=(0.25,) * 3, pad=4, flip=True,
    )  # fmt: skip


def write_photographs(folder: Path, count: int) -> None:
    rng = np.random.default_rng(0)
    for i in range(count):
        coarse = Image.fromarray(rng.integers(0, 256, (30, 40, 3), dtype=np.uint8))
        image = coarse.resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC)
        image.save(folder / f"{i}.jpg", quality=QUALITY)


def photographs(folder: Path, count: int, workers: int) -> Split:
    return FileSplit(
        folder, [f"{i}.jpg" for i in range(count)], [0] * count, name="train", classes=("any",),
        side=224, options=DataOptions("imagenet", workers=workers),
    )  # fmt: skip


def pipeline_rate(split: Split, batch: int, batches: int) -> float:
    """Images per second between the first and the last batch; starting the workers is not counted."""
    groups = [torch.randint(len(split), (batch,)) for _ in range(batches + 1)]
    stream = split.batches(groups, draw=1)
    next(stream)
    start = time.perf_counter()
    for _ in stream:
        pass
    return batch * batches / (time.perf_counter() - start)


def step_rate(network: str, rounds: int) -> float:
    """Images per second of the float training step."""
    step = Step(network, "fp")
    step()  # warm-up
    return CASES[network][0] / statistics.median(step() for _ in range(rounds))


def measure(quick: bool) -> list[Row]:
    rows: list[Row] = []

    def add(network: str, source: str, workers: int, need: float, rates: list[float]) -> None:
        rate = statistics.median(rates)
        rows.append({
            "network": network, "images": source, "workers": workers,
            "pipeline_per_s": rate, "training_per_s": need, "ratio": rate / need,
        })  # fmt: skip

    rounds = 1 if quick else 5
    batch = CASES["resnet20"][0]
    need = step_rate("resnet20", 2 if quick else 40)
    memory = cifar10(1000 if quick else 50_000)
    rates = [pipeline_rate(memory, batch, 5 if quick else 500) for _ in range(rounds)]
    add("resnet20", "32x32 in memory", 0, need, rates)

    batch = CASES["mobilenet_v1"][0]
    need = step_rate("mobilenet_v1", 1 if quick else 10)
    count = 20 if quick else 400
    with tempfile.TemporaryDirectory() as directory:
        write_photographs(Path(directory), count)
        for workers in WORKERS:
            split = photographs(Path(directory), count, workers)
            rates = [pipeline_rate(split, batch, 2 if quick else 30) for _ in range(rounds)]
            add("mobilenet_v1", f"{WIDTH}x{HEIGHT} JPEG", workers, need, rates)
    return rows


def main() -> None:
    quick = options(__doc__, quick=False).parse_args().quick
    keep_freed_memory()
    print(f"input pipeline, {headline()}")
    rows = measure(quick)
    print(show(COLUMNS, rows))
    if not quick:
        print(save("input_pipeline", rows=rows))


if __name__ == "__main__":
    main()
