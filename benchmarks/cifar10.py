"""Every training on CIFAR-10 behind docs/results.md.

python benchmarks/cifar10.py [--data DIR] [--weights DIR] [--runs DIR] [--only PATTERN] [--precision P]

Each training has a directory of its own below --runs (trainings.py). --precision bf16 computes the
products of a step in 16 bits, where a CPU with AVX-512 BF16 is faster; tests stay in float32. At the
end, results/cifar10.json is written from all that are finished.
"""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass
from pathlib import Path

from machine import options
from trainings import collect, train_all, train_line

# The float ResNet-20 was trained with these; its successors read what it read.
MEAN, STD = "data.mean=[0.485,0.456,0.406]", "data.std=[0.229,0.224,0.225]"
# Files in --weights, by how a recipe's name begins.
FLOAT = {
    "resnet20": "resnet20-cifar10-fp.safetensors",
    "shufflenet": "shufflenet_v2-0.5-cifar10.safetensors",
}


@dataclass(frozen=True)
class Training:
    """One run; `after` names the run whose network it starts from, instead of the float network."""

    group: str
    label: str
    recipe: str
    overrides: tuple[str, ...] = ()
    seed: int = 0
    after: str = ""

    @property
    def name(self) -> str:
        return f"{self.group}-{self.label}-{self.seed}"


# Each ingredient of the short recipes left out, at equal epochs.
SHORT = ("train.epochs=2",)
WITHOUT = {
    "short": (),
    "no-features": ("extra.features=0",),
    "no-logits": ("extra.distill=0",),
    "no-fit": ("quantize.fit=0", "quantize.calibrate=2000"),
    "linear-temperature": ("temperature.end=0", "temperature.increment=130"),
    "moving-norms": ("extra.still_norms=0",),
}
ABLATION = ("train.epochs=2", "temperature.start=20", "temperature.increment=90")
TRAININGS = [
    *(Training("resnet20", "2t", "resnet20-2t-quick", seed=seed) for seed in range(3)),
    *(Training("resnet20", "1t", "resnet20-1t-quick", seed=seed) for seed in range(3)),
    Training("resnet20", "2t-a8", "resnet20-2t-a8-quick", after="resnet20-2t-0"),
    Training("resnet20", "1t-a8", "resnet20-1t-a8-quick", after="resnet20-1t-0"),
    *(Training(length, label, f"resnet20-{label}-{length}", seed=seed)
      for length in ("short", "longer") for label in ("2t", "1t", "2t-a8", "1t-a8")
      for seed in range(3)),
    *(Training("shufflenet", label, f"shufflenet_v2-cifar10-{label}", seed=seed)
      for label in ("2t", "1t") for seed in range(3)),
    *(Training(f"ingredients-{branches}t", label, f"resnet20-{branches}t-short",
               (*SHORT, *changes), seed)
      for branches in (2, 1) for label, changes in WITHOUT.items() for seed in range(2)),
    Training("ablation", "ours", "resnet20-2t-quick", ABLATION),
    Training("ablation", "paper-init", "resnet20-2t-quick",
             (*ABLATION, "quantize.options.init=kmeans")),
    Training("ablation", "fixed-thresholds", "resnet20-2t-quick",
             (*ABLATION, "quantize.options.learn_thresholds=false")),
    Training("ablation", "constant-temperature", "resnet20-2t-quick",
             (*ABLATION, "temperature.start=110", "temperature.increment=0")),
    Training("mobilenet", "fp", "mobilenet_v1-cifar10-fp"),
    *(Training("mobilenet", plan, f"mobilenet_v1-cifar10-{plan}", after="mobilenet-fp-0")
      for plan in ("fx8-3", "dbq-1t", "dbq-2t-4")),
]  # fmt: skip


def line(training: Training, arguments: argparse.Namespace) -> list[str]:
    """The `dbq train` line of a training."""
    settings = [f"data.directory={arguments.data}", f"train.seed={training.seed}"]
    if arguments.precision:
        settings.append(f"machine.precision={arguments.precision}")
    if training.recipe.startswith("resnet20"):
        settings += [MEAN, STD]
    if training.after:
        settings.append(f"model.weights={arguments.runs / training.after}")
        if training.group == "resnet20":
            settings.append(f"extra.teacher={arguments.weights / FLOAT['resnet20']}")
    elif training.group != "mobilenet":
        file = FLOAT[re.split("[-_]", training.recipe)[0]]
        settings.append(f"model.weights={arguments.weights / file}")
    settings += training.overrides
    return train_line(training.recipe, arguments.runs / training.name, settings)


def main() -> None:
    parser = options(
        __doc__,
        data="data",
        weights=Path("data"),
        runs=Path("runs/cifar10"),
        only="*",
        precision="",
    )
    arguments = parser.parse_args()
    usual = parser.parse_args(["--precision", arguments.precision])
    places = {t.name: {"group": t.group, "label": t.label} for t in TRAININGS}
    lines = {training.name: line(training, arguments) for training in TRAININGS}
    train_all(lines, arguments.runs, arguments.only)
    collect(
        "cifar10",
        {training.name: line(training, usual) for training in TRAININGS},
        arguments.runs,
        name_of=lambda row: f"{row['group']}-{row['label']}-{row['seed']}",
        describe=lambda name, run: places[name],
    )


if __name__ == "__main__":
    main()
