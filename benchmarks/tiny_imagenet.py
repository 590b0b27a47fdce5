"""The paper's ablation of MobileNetV1 (Table 3) on Tiny-ImageNet, behind docs/tiny_imagenet.md.

python benchmarks/tiny_imagenet.py [--data DIR] [--weights DIR] [--imagenet DIR] [--runs DIR]
                                   [--only PATTERN]

DIR of --weights holds mobilenet_v1-imagenet.safetensors; DIR/train of --imagenet has a folder for each
of the 1,000 classes, which say what the rows of its classifier are. The float network is trained first,
from these weights; every row starts from it. Each training is a `dbq train` in a directory below --runs:
finished ones are kept, interrupted ones resumed, and two of these scripts may run side by side with
different shell patterns. At the end results/tiny_imagenet.json is written from all that are finished.
"""

from __future__ import annotations

import argparse
import math
import shlex
import subprocess
import sys
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from statistics import median
from typing import Any

from machine import options, save
from safetensors.torch import save_file
from tabular import RESULTS, result

from dbq.data.folder import class_folders
from dbq.experiments.report.facts import RunFacts, read_run
from dbq.networks.weights import read_weights
from dbq.training.record.rundir import RunDir

FLOAT = "mobilenet_v1-tiny_imagenet-fp"
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
KEPT = ("top1", "top5", "best_top1", "best_epoch", "epochs", "seconds", "seed", "plan", "recipe",
        "revision", "machine", "cost", "test")  # fmt: skip


@dataclass(frozen=True)
class Training:
    """One run, from the run `after` or from the file of ImageNet's weights."""

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


def start(arguments: argparse.Namespace) -> Path:
    """ImageNet's weights with the classifier's rows of the 200 classes, made when first asked for.

    Its outputs are divided by four: at 64x64 they are wrong with much confidence, and the first steps
    of training would answer to that by unlearning everything.
    """
    file: Path = arguments.runs / "start.safetensors"
    if not file.exists():
        state = read_weights(arguments.weights / "mobilenet_v1-imagenet.safetensors")
        known = class_folders(arguments.imagenet / "train")
        rows = [known.index(wnid) for wnid in class_folders(Path(arguments.data) / "train")]
        state |= {key: state[key][rows] / 4 for key in ("fc.weight", "fc.bias")}
        file.parent.mkdir(parents=True, exist_ok=True)
        save_file({key: value.contiguous() for key, value in state.items()}, file)
    return file


def command(training: Training, arguments: argparse.Namespace) -> list[str]:
    """The `dbq train` line of a training."""
    weights = arguments.runs / training.after if training.after else start(arguments)
    settings = (f"data.directory={arguments.data}", f"train.seed={training.seed}",
                f"model.weights={weights}", *AS_STARTED)  # fmt: skip
    sets = [part for item in settings for part in ("--set", item)]
    out = str(arguments.runs / training.name)
    return ["dbq", "train", training.recipe, "--out", out, "--resume", *sets]


def branches(run: RunFacts) -> dict[str, Any]:
    """Zeros of the pointwise layers in order, of all their weights, and ratios of branch scales."""
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


def collect(arguments: argparse.Namespace) -> None:
    """Write what is finished to results/; rows of runs that are not here stay."""
    before = result("tiny_imagenet")["rows"] if (RESULTS / "tiny_imagenet.json").exists() else []
    known = {(row["recipe"], row["seed"]): row for row in before}
    rows: list[dict[str, Any]] = []
    missing: list[str] = []
    for training in TRAININGS:
        run = RunDir(arguments.runs / training.name)
        if run.is_finished:
            found = run.result().to_json()
            line = shlex.join(command(training, arguments))
            facts, _ = read_run(run.path, training.name)
            recorded = {key: found[key] for key in KEPT}
            rows.append({"command": line, **recorded, **branches(facts)})
        elif kept := known.get((training.recipe, training.seed)):
            rows.append(kept)
        else:
            missing.append(training.name)
    saved = save("tiny_imagenet", missing=missing, rows=rows)
    print(f"{len(rows)} of {len(TRAININGS)} trainings in {saved}")
    if missing:
        print(f"not finished: {', '.join(missing)}", file=sys.stderr)


def main() -> None:
    arguments = options(
        __doc__,
        data="data/tiny-imagenet-200",
        weights=Path("data"),
        imagenet=Path("data/imagenet"),
        runs=Path("runs/tiny_imagenet"),
        only="*",
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
