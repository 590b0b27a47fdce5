"""The paper's ablation of MobileNetV1 (Table 3) on Tiny-ImageNet, behind docs/tiny_imagenet.md.

python benchmarks/tiny_imagenet.py [--data DIR] [--weights DIR] [--imagenet DIR] [--runs DIR]
                                   [--only PATTERN]

DIR of --weights holds mobilenet_v1-imagenet.safetensors; DIR/train of --imagenet has a folder for each
of the 1,000 classes, which say what the rows of its classifier are. The float network is trained first,
from these weights; every row starts from it. Each training has a directory of its own below --runs
(trainings.py). At the end results/tiny_imagenet.json is written from all that are finished.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from machine import options
from safetensors.torch import save_file
from trainings import collect, train_all, train_line

from dbq.data.folder import class_folders
from dbq.experiments.report.facts import read_run
from dbq.networks.weights import read_weights
from dbq.training.record.rundir import RunDir

FLOAT, START = "mobilenet_v1-tiny_imagenet-fp", "start.safetensors"
# Of the file with the starting weights: TensorFlow's padding and pixels from -1 to 1.
AS_STARTED = ("model.options.padding=same", "data.normalise=tf")
ROWS = (
    "fp-longer",
    "fx8-1",
    "fx8-2",
    "fx8-3",
    "dbq-1t",
    "dbq-2t-1",
    "dbq-2t-2",
    "dbq-2t-3",
    "dbq-2t-4",
)


@dataclass(frozen=True)
class Training:
    """One run, from the run `after` or from START."""

    recipe: str
    seed: int
    after: str

    @property
    def name(self) -> str:
        return f"{self.recipe}-{self.seed}"


TRAININGS = [
    Training(FLOAT, 0, ""),
    *(Training(f"mobilenet_v1-tiny_imagenet-{row}", seed, f"{FLOAT}-0")
      for seed in range(2) for row in ROWS),
]  # fmt: skip


def write_start(arguments: argparse.Namespace) -> None:
    """ImageNet's weights with the classifier's rows of the 200 classes.

    Its outputs are divided by four: at 64x64 they are wrong with much confidence, and the first steps
    of training would answer to that by unlearning everything.
    """
    state = read_weights(arguments.weights / "mobilenet_v1-imagenet.safetensors")
    known = class_folders(arguments.imagenet / "train")
    rows = [known.index(wnid) for wnid in class_folders(Path(arguments.data) / "train")]
    state |= {key: state[key][rows] / 4 for key in ("fc.weight", "fc.bias")}
    arguments.runs.mkdir(parents=True, exist_ok=True)
    save_file({key: value.contiguous() for key, value in state.items()}, arguments.runs / START)


def line(training: Training, arguments: argparse.Namespace) -> list[str]:
    """The `dbq train` line of a training."""
    weights = arguments.runs / (training.after or START)
    settings = [f"data.directory={arguments.data}", f"train.seed={training.seed}",
                f"model.weights={weights}", *AS_STARTED]  # fmt: skip
    return train_line(training.recipe, arguments.runs / training.name, settings)


def branches(name: str, directory: RunDir) -> dict[str, Any]:
    """Zeros of the pointwise layers in order, of all their weights, and ratios of branch scales."""
    run, _ = read_run(directory.path, name)
    layers = [layer for layer in run.layers if layer["role"] == "pointwise"]
    sizes = [math.prod(map(int, layer["shape"].split("x"))) for layer in layers]
    zeros = [layer["zeros"] for layer in layers]
    usual = [ratio for ratio in run.ratios if 1.2 <= ratio <= 1.7]  # the paper's: 99 % of them
    return {
        "zeros": zeros,
        "mean_zeros": sum(map(math.prod, zip(sizes, zeros, strict=True))) / sum(sizes),
        "median_ratio": median(run.ratios) if run.ratios else None,
        "usual_ratios": len(usual) / len(run.ratios) if run.ratios else None,
    }


def main() -> None:
    arguments = options(
        __doc__,
        data="data/tiny-imagenet-200",
        weights=Path("data"),
        imagenet=Path("data/imagenet"),
        runs=Path("runs/tiny_imagenet"),
        only="*",
    ).parse_args()
    if not RunDir(arguments.runs / f"{FLOAT}-0").is_finished:
        write_start(arguments)
    lines = {training.name: line(training, arguments) for training in TRAININGS}
    train_all(lines, arguments.runs, arguments.only)
    collect(
        "tiny_imagenet",
        lines,
        arguments.runs,
        name_of=lambda row: f"{row['recipe']}-{row['seed']}",
        describe=branches,
    )


if __name__ == "__main__":
    main()
