"""Every training on CIFAR-10 behind docs/results.md.

python benchmarks/cifar10.py [--data DIR] [--weights DIR] [--runs DIR] [--only PATTERN] [--precision P]

Each training is a `dbq train` in a directory of its own below --runs. Finished ones are kept and
interrupted ones resumed, so the script may be stopped at any time, and two of them may run side by side
with different shell patterns (one that matches nothing trains nothing). --precision bf16 computes the
products of a step in 16 bits, where a CPU with AVX-512 BF16 is faster; tests stay in float32. At the
end, results/cifar10.json is written from all that are finished; rows of runs that are not here stay.
"""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from machine import options, save
from tabular import result

from dbq.training.record.rundir import RunDir

# The float ResNet-20 was trained with these; its successors read what it read.
MEAN, STD = "data.mean=[0.485,0.456,0.406]", "data.std=[0.229,0.224,0.225]"
# Files in --weights, by how a recipe's name begins.
FLOAT = {
    "resnet20": "resnet20-cifar10-fp.safetensors",
    "shufflenet": "shufflenet_v2-0.5-cifar10.safetensors",
}
KEPT = ("top1", "top5", "best_top1", "best_epoch", "epochs", "seconds", "seed", "plan", "recipe",
        "revision", "machine", "cost", "test")  # fmt: skip


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
    *(Training("short", label, f"resnet20-{label}-short", seed=seed)
      for label in ("2t", "1t", "2t-a8", "1t-a8") for seed in range(3)),
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


def command(training: Training, arguments: argparse.Namespace) -> list[str]:
    """The `dbq train` line of a training."""
    overrides = [f"data.directory={arguments.data}", f"train.seed={training.seed}"]
    if arguments.precision:
        overrides.append(f"machine.precision={arguments.precision}")
    if training.recipe.startswith("resnet20"):
        overrides += [MEAN, STD]
    if training.after:
        overrides.append(f"model.weights={arguments.runs / training.after}")
        if training.group == "resnet20":
            overrides.append(f"extra.teacher={arguments.weights / FLOAT['resnet20']}")
    elif training.group != "mobilenet":
        file = FLOAT[re.split("[-_]", training.recipe)[0]]
        overrides.append(f"model.weights={arguments.weights / file}")
    sets = [part for item in (*overrides, *training.overrides) for part in ("--set", item)]
    out = str(arguments.runs / training.name)
    return ["dbq", "train", training.recipe, "--out", out, "--resume", *sets]


def collect(arguments: argparse.Namespace) -> None:
    """Write what is finished to results/."""
    rows: list[dict[str, Any]] = []
    missing: list[str] = []
    known = {(row["group"], row["label"], row["seed"]): row for row in result("cifar10")["rows"]}
    for training in TRAININGS:
        run = RunDir(arguments.runs / training.name)
        if not run.is_finished:
            kept = known.get((training.group, training.label, training.seed))
            rows += [kept] if kept else []
            missing += [] if kept else [training.name]
            continue
        found = run.result().to_json()
        facts = {key: found[key] for key in KEPT}
        line = shlex.join(command(training, arguments))
        rows.append({"group": training.group, "label": training.label, "command": line, **facts})
    saved = save("cifar10", missing=missing, rows=rows)
    print(f"{len(rows)} of {len(TRAININGS)} trainings in {saved}")
    if missing:
        print(f"not finished: {', '.join(missing)}", file=sys.stderr)


def main() -> None:
    arguments = options(
        __doc__,
        data="data",
        weights=Path("data"),
        runs=Path("runs/cifar10"),
        only="*",
        precision="",
    ).parse_args()
    for training in TRAININGS:
        finished = RunDir(arguments.runs / training.name).is_finished
        if fnmatchcase(training.name, arguments.only) and not finished:
            print(training.name, file=sys.stderr)
            line = command(training, arguments)
            done = subprocess.run([sys.executable, "-m", "dbq", *line[1:]], check=False)
            if done.returncode:
                sys.exit(f"{training.name} ended with status {done.returncode}")
    collect(arguments)


if __name__ == "__main__":
    main()
