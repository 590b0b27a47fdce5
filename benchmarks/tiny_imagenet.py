"""The paper's ablation of MobileNetV1 (Table 3), and MobileNetV2, on Tiny-ImageNet: docs/results.md.

python benchmarks/tiny_imagenet.py [--data DIR] [--weights DIR] [--imagenet DIR] [--runs DIR]
                                   [--only PATTERN]

DIR of --weights holds mobilenet_v1-imagenet.safetensors and mobilenet_v2-imagenet.safetensors; DIR/train
of --imagenet has a folder for each of the 1,000 classes, which say what the rows of their classifiers
are. Float networks are trained first, from these weights; every row starts from one. Each training has a
directory of its own below --runs (trainings.py). At the end results/tiny_imagenet.json is written from
all that are finished.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from statistics import median
from typing import Any

from machine import options
from safetensors.torch import save_file
from trainings import collect, train_all, train_line

from dbq.data.files.folder import class_folders
from dbq.experiments.report.facts import read_run
from dbq.networks.weights import read_weights
from dbq.training.record.rundir import RunDir

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
class Network:
    """The last linear layer, and what a recipe must say to fit the file of ImageNet's weights."""

    classifier: str
    settings: tuple[str, ...] = ()


NETWORKS = {
    # TensorFlow's padding and pixels from -1 to 1.
    "mobilenet_v1": Network("fc", ("model.options.padding=same", "data.normalise=tf")),
    "mobilenet_v2": Network("classifier.1"),
}
# Instead of codes by output error: those that `prepare` finds, and batch norms re-estimated.
PREPARED = ("quantize.fit=0", "quantize.calibrate=1000")
TRIPLED = ("train.epochs=3",)


@dataclass(frozen=True)
class Training:
    """One run: of the float network from ImageNet's weights, or of a row from the float network."""

    network: str
    row: str = "fp"
    seed: int = 0
    prepared: bool = False
    tripled: bool = False

    @property
    def recipe(self) -> str:
        return f"{self.network}-tiny_imagenet-{self.row}"

    @property
    def name(self) -> str:
        prepared = "-prepared" if self.prepared else ""
        return f"{self.recipe}{prepared}{'-tripled' if self.tripled else ''}-{self.seed}"


# What tells one row of the results from another.
PLACE = ("network", "row", "seed", "prepared", "tripled")
TRAININGS = [
    Training("mobilenet_v1"),
    *(Training("mobilenet_v1", row, seed) for seed in range(2) for row in ROWS),
    *(Training("mobilenet_v1", row, prepared=True) for row in ("dbq-1t", "dbq-2t-4")),
    *(Training("mobilenet_v1", row, tripled=True) for row in ("dbq-1t", "dbq-2t-4")),
    Training("mobilenet_v2"),
    *(Training("mobilenet_v2", row) for row in ("fp-longer", "dbq-2t-4")),
]


def start_of(network: str, arguments: argparse.Namespace) -> Path:
    path: Path = arguments.runs / f"{network}-start.safetensors"
    return path


def write_start(network: str, arguments: argparse.Namespace) -> None:
    """ImageNet's weights with the classifier's rows of the 200 classes.

    Its outputs are divided by four: at 64x64 they are wrong with much confidence, and the first steps
    of training would answer to that by unlearning everything.
    """
    state = read_weights(arguments.weights / f"{network}-imagenet.safetensors")
    known = class_folders(arguments.imagenet / "train")
    rows = [known.index(wnid) for wnid in class_folders(Path(arguments.data) / "train")]
    layer = NETWORKS[network].classifier
    state |= {key: state[key][rows] / 4 for key in (f"{layer}.weight", f"{layer}.bias")}
    arguments.runs.mkdir(parents=True, exist_ok=True)
    state = {key: value.contiguous() for key, value in state.items()}
    save_file(state, start_of(network, arguments))


def line(training: Training, arguments: argparse.Namespace) -> list[str]:
    """The `dbq train` line of a training."""
    weights = arguments.runs / Training(training.network).name
    if training.row == "fp":
        weights = start_of(training.network, arguments)
    settings = [
        f"data.directory={arguments.data}",
        f"train.seed={training.seed}",
        f"model.weights={weights}",
        *NETWORKS[training.network].settings,
        *(PREPARED if training.prepared else ()),
        *(TRIPLED if training.tripled else ()),
    ]
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
    parser = options(
        __doc__,
        data="data/tiny-imagenet-200",
        weights=Path("data"),
        imagenet=Path("data/imagenet"),
        runs=Path("runs/tiny_imagenet"),
        only="*",
    )
    arguments, usual = parser.parse_args(), parser.parse_args([])
    trainings = {training.name: training for training in TRAININGS}
    lines = {name: line(training, arguments) for name, training in trainings.items()}
    for network in NETWORKS:
        name = Training(network).name
        if fnmatchcase(name, arguments.only) and not RunDir(arguments.runs / name).is_finished:
            write_start(network, arguments)
    train_all(lines, arguments.runs, arguments.only)
    collect(
        "tiny_imagenet",
        {name: line(training, usual) for name, training in trainings.items()},
        arguments.runs,
        name_of=lambda row: Training(*(row[key] for key in PLACE)).name,
        describe=lambda name, run: {
            **{key: getattr(trainings[name], key) for key in PLACE},
            **branches(name, run),
        },
    )


if __name__ == "__main__":
    main()
