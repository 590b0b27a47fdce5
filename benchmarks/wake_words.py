"""MLPerf Tiny's Visual Wake Words network without labels, as .dbq files for benchmarks/mcu.py.

    python benchmarks/wake_words.py --coco DIR,DIR --weights mobilenet_v1-0.25-vww96.safetensors

A COCO directory has annotations/instances_{train,val}2017.json and the images that these name. The
training images, without their labels, are what the network is quantized with; accuracy is that on the
validation images, in libdbq. Labels follow the data set's rule: a person on at least 0.5 % of the
image. Images are cropped to their middle square. Files go to --out. -> results/wake_words.json
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from machine import headline, options, save
from PIL import Image
from tabular import show
from torch import nn

import dbq
from dbq.data.coco.annotations import label_images
from dbq.deploy.csource.exact.compact import compacted
from dbq.deploy.engine import load
from dbq.deploy.file.fileformat import write_program

SIDE = 96
PLANS = {"1t": "dbq-1t-a8", "2t": "dbq-2t-4"}
COLUMNS = {"plan": "{plan}", "form": "{form}", "top-1": "{top1:.1f}", "images": "{images}",
           "bytes": "{bytes:,}"}  # fmt: skip

Pixels = npt.NDArray[np.uint8]


def gather(folders: list[Path], part: str) -> tuple[Pixels, npt.NDArray[np.int64]]:
    """The images that are there, each once, as the network sees them, and whether a person is seen."""
    found: dict[int, tuple[Path, int]] = {}
    for folder in folders:
        file = folder / "annotations" / f"instances_{part}2017.json"
        for number, (name, label) in label_images(file, "person", 0.005).items():
            if (folder / name).exists():
                found[number] = folder / name, label
    pixels = [square(found[number][0]) for number in sorted(found)]
    return np.stack(pixels), np.array([found[number][1] for number in sorted(found)])


def square(file: Path) -> Pixels:
    image = Image.open(file).convert("RGB")
    width, height = image.size
    side = min(width, height)
    left, top = (width - side) // 2, (height - side) // 2
    cut = image.crop((left, top, left + side, top + side))
    return np.asarray(cut.resize((SIDE, SIDE), Image.Resampling.BILINEAR))


def network(weights: Path) -> nn.Module:
    return dbq.create_model(
        "mobilenet_v1", num_classes=2, width=0.25, padding="same", weights=weights
    ).eval()


def as_tensor(pixels: Pixels) -> torch.Tensor:
    return torch.tensor(pixels).permute(0, 3, 1, 2).float() / 255


def main() -> None:
    arguments = options(
        __doc__, coco="data/coco", out=Path("build/wake_words"),
        weights=Path("data/mobilenet_v1-0.25-vww96.safetensors"),
    ).parse_args()  # fmt: skip
    folders = [Path(folder) for folder in arguments.coco.split(",")]
    if missing := [path for path in (*folders, arguments.weights) if not path.exists()]:
        sys.exit(f"needs {', '.join(map(str, missing))}")
    print(f"Visual Wake Words, {headline()}")
    (train, _), (test, labels) = gather(folders, "train"), gather(folders, "val")
    images = as_tensor(train)
    with torch.no_grad():
        right = (network(arguments.weights)(as_tensor(test)).argmax(1).numpy() == labels).mean()
    rows: list[dict[str, Any]] = [
        {
            "plan": "float",
            "form": "torch",
            "top1": 100 * float(right),
            "images": len(test),
            "bytes": 0,
        }
    ]
    arguments.out.mkdir(parents=True, exist_ok=True)
    for label, plan in PLANS.items():
        model = network(arguments.weights)
        dbq.quantize(model, plan, images)
        program = dbq.lower(model.eval(), images[:8], classes=["no person", "person"])
        dbq.save(program, arguments.out / f"mobilenet_v1-vww-{label}.dbq")
        for form, each in (("as lowered", program), ("compact", compacted(program))):
            content = write_program(each)
            with load(content) as net:
                right = (net(test).argmax(1) == labels).mean()
            rows.append({"plan": plan, "form": form, "top1": 100 * float(right),
                         "images": len(test), "bytes": len(content)})  # fmt: skip
    print(show(COLUMNS, rows))
    print(save("wake_words", fitted_images=len(train), rows=rows))


if __name__ == "__main__":
    main()
