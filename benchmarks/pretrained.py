"""Folders of `dbq.save_pretrained`, read by another process: the same logits on all of CIFAR-10's test?

    python benchmarks/pretrained.py [--cifar10 DIR] [--weights DIR]

The reader imports torch and `dbq.from_pretrained`. It cannot import the rooms that train, fit or run
whole jobs, and cannot unpickle: both are taken away before it begins.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from machine import headline, options, save
from tabular import ROOT, show
from torch import Tensor

import dbq
from dbq.data.options import DataOptions
from dbq.data.table import load_data

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
BATCH, CALIBRATION = 250, 256
RESNET: tuple[str, str, dict[str, Any]] = ("resnet20-cifar10-fp.safetensors", "resnet20", {})
SHUFFLE = ("shufflenet_v2-0.5-cifar10.safetensors", "shufflenet_v2",
           {"width": 0.5, "num_classes": 10, "small_input": True})  # fmt: skip
CASES = [(*RESNET, plan) for plan in ("resnet-2t", "resnet-2t-a8", "resnet-1t-a8", "fp")]
CASES += [(*SHUFFLE, "dbq-2t-4")]
READER = """
import pickle, sys
for room in ("training", "posttraining", "experiments", "lowering", "data"):
    sys.modules[f"dbq.{room}"] = None
import torch
pickle.load = pickle.loads = pickle.Unpickler = torch.load = None
import dbq
from safetensors.torch import load_file, save_file
folder, images, out, batch = sys.argv[1:]
model = dbq.from_pretrained(folder)
with torch.no_grad():
    found = [model(part) for part in load_file(images)["images"].split(int(batch))]
save_file({"logits": torch.cat(found)}, out)
"""
COLUMNS = {"network": "{network}", "plan": "{plan}", "images": "{images:,}",
           "same logits": "{same:,}", "top-1": "{top1:.2f}", "bytes": "{bytes:,}"}  # fmt: skip


def read_elsewhere(folder: Path, images: Path, out: Path) -> Tensor:
    """The logits of the network in a folder, by a process that knows nothing else of it."""
    from safetensors.torch import load_file

    command = [sys.executable, "-c", READER, str(folder), str(images), str(out), str(BATCH)]
    subprocess.run(command, check=True)
    return load_file(out)["logits"]


@torch.no_grad()
def main() -> None:
    from safetensors.torch import save_file

    arguments = options(
        __doc__, cifar10=ROOT / "data/cifar10", weights=ROOT / "data"
    ).parse_args()  # fmt: skip
    train, test = load_data(DataOptions("cifar10", str(arguments.cifar10), MEAN, STD))
    some = next(iter(train.batches([torch.arange(CALIBRATION)]))).images
    batches = list(test.batches(torch.split(torch.arange(len(test)), BATCH)))
    labels = torch.cat([batch.labels for batch in batches])
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        save_file({"images": torch.cat([b.images for b in batches])}, place / "images.safetensors")
        for file, network, given, plan in CASES:
            model = dbq.create_model(network, weights=arguments.weights / file, **given).eval()
            dbq.prepare(model, plan, some[:1])
            dbq.calibrate(model, [some])
            folder = dbq.save_pretrained(
                model, place / f"{network}-{plan}", network=network, plan=plan, options=given,
                example_input=some[:2], mean=MEAN, std=STD,
            )  # fmt: skip
            expected = torch.cat([model.eval()(batch.images) for batch in batches])
            found = read_elsewhere(folder, place / "images.safetensors", place / "logits")
            rows.append({
                "network": network, "plan": plan, "images": len(found),
                "same": int((found == expected).all(1).sum()),
                "top1": 100 * float((found.argmax(1) == labels).float().mean()),
                "bytes": sum(path.stat().st_size for path in folder.iterdir()),
            })  # fmt: skip
    print(f"folders read elsewhere, {headline()}")
    print(show(COLUMNS, rows))
    print(save("pretrained", rows=rows))


if __name__ == "__main__":
    main()
