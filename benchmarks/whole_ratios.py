"""What rounding the scales of branches to whole ratios costs: ResNet-20 on CIFAR-10, without training.

    python benchmarks/whole_ratios.py [--data DIR] [--weights FILE]

The network is prepared by a plan of two branches and calibrated, then lowered with separate scales and
with whole ratios; the engine classifies all 10,000 test images with both.
"""

from __future__ import annotations

import torch
from calibration import BATCH, CALIBRATION_IMAGES, MEAN, STD
from machine import headline, options, save
from tabular import ROOT

import dbq
from dbq.data.options import DataOptions
from dbq.data.table import load_data
from dbq.deploy.engine import load
from dbq.deploy.file.fileformat import write_program
from dbq.model.pixels import denormalise

PLAN, EXAMPLES = "resnet-2t-a8", 32


def main() -> None:
    data = ROOT / "data"
    weights = data / "resnet20-cifar10-fp.safetensors"
    arguments = options(__doc__, data=data, weights=weights).parse_args()
    train, test = load_data(DataOptions("cifar10", str(arguments.data), MEAN, STD))
    print(f"ResNet-20, CIFAR-10, {PLAN}, no training, {headline()}")
    model = dbq.create_model("resnet20", weights=arguments.weights)
    dbq.prepare(model, dbq.load_plan(PLAN), torch.zeros(1, 3, 32, 32))
    groups = torch.split(torch.arange(CALIBRATION_IMAGES), BATCH)
    dbq.calibrate(model, train.batches(groups, None))
    examples = next(iter(test.batches([torch.arange(EXAMPLES)]))).images
    programs = [
        dbq.lower(model, examples, mean=MEAN, std=STD, whole_ratios=whole)
        for whole in (False, True)
    ]
    nets = [load(write_program(program)) for program in programs]
    right, different = [0, 0], 0
    for batch in test.batches(torch.split(torch.arange(len(test)), BATCH)):
        images, labels = denormalise(batch.images, MEAN, STD), batch.labels.numpy()
        separate, whole = (net(images).argmax(1) for net in nets)
        right = [
            right[0] + int((separate == labels).sum()),
            right[1] + int((whole == labels).sum()),
        ]
        different += int((separate != whole).sum())
    top1 = [100 * count / len(test) for count in right]
    print(
        f"separate scales {top1[0]:.2f} %, whole ratios {top1[1]:.2f} %, {different} classes differ"
    )
    agreement = programs[1].facts["agreement"]
    print(save("whole_ratios", plan=PLAN, images=len(test), separate_top1=top1[0],
               whole_top1=top1[1], different_classes=different,
               moved_mean=agreement["moved_mean"], moved_most=agreement["moved_most"]))  # fmt: skip


if __name__ == "__main__":
    main()
