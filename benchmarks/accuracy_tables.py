"""Tables of trainings on CIFAR-10, of calibration without training, and of what training costs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from statistics import mean

from tabular import Row, recipe_link, result, table

PAPER = {"2t": "91.93 (50 epochs, from 92.00)", "1t": "91.06 (50 epochs, from 92.00)"}
NAMES = {
    "2t": "two branches",
    "1t": "one branch",
    "2t-a8": "two branches, 8 bits elsewhere",
    "1t-a8": "one branch, 8 bits elsewhere",
    "ours": "as shipped",
    "paper-init": "the paper's initialisation (k-means)",
    "fixed-thresholds": "thresholds not learned",
    "constant-temperature": "constant temperature",
    "fp": "float",
    "fx8-3": "8 bits everywhere (`fx8-3`)",
    "dbq-1t": "one branch in pointwise layers, float elsewhere (`dbq-1t`)",
    "dbq-2t-4": "two branches in pointwise layers, 8 bits elsewhere (`dbq-2t-4`)",
}
INITIALISATIONS = {"alternate": "`alternate` (default)", "kmeans": "`kmeans` (the paper's)"}
STEPS = {"resnet20": "ResNet-20, 100", "mobilenet_v1": "MobileNetV1 1.0 at 224, 32"}


def runs_of(group: str) -> dict[str, list[Row]]:
    """The runs of a group by label, seeds in order."""
    runs: dict[str, list[Row]] = {}
    for row in result("cifar10")["rows"]:
        if row["group"] == group:
            runs.setdefault(row["label"], []).append(row)
    return runs


def _top1(runs: list[Row], key: str) -> str:
    return ", ".join(f"{run[key]:.2f}" for run in runs)


def means(group: str) -> str:
    """One row for all seeds of a label."""
    paper = ["paper"] if group != "shufflenet" else []
    heads = ["weights", "recipe", "epochs", "top-1: mean (each seed)", "best epoch", *paper,
             "C_S, 10⁹ FA", "C_M, Mb"]  # fmt: skip
    return table(heads, (
        [NAMES[label], recipe_link(runs[0]["recipe"]), str(runs[0]["epochs"]),
         f"**{mean(run['top1'] for run in runs):.2f}** ({_top1(runs, 'top1')})",
         _top1(runs, "best_top1"), *(PAPER.get(label, "") for _ in paper),
         f"{runs[0]['cost']['C_S'] / 1e9:.2f}", f"{runs[0]['cost']['C_M'] / 1e6:.2f}"]
        for label, runs in runs_of(group).items()
    ))  # fmt: skip


def single_runs(group: str) -> str:
    """One row per run, with all four costs."""
    heads = ["", "epochs", "final epoch", "best epoch", "C_C, 10⁹ FA", "C_S, 10⁹ FA", "C_R, Mb",
             "C_M, Mb"]  # fmt: skip
    return table(heads, (
        [NAMES[label], str(run["epochs"]), f"{run['top1']:.2f}", f"{run['best_top1']:.2f}",
         *(f"{run['cost'][key] / 1e9:.3f}" for key in ("C_C", "C_S")),
         *(f"{run['cost'][key] / 1e6:.2f}" for key in ("C_R", "C_M"))]
        for label, (run,) in runs_of(group).items()
    ))  # fmt: skip


def every_run() -> str:
    heads = ["run", "recipe", "seed", "top-1", "best (epoch)", "processor", "minutes", "revision"]
    return table(heads, (
        [f"{run['group']} {run['label']}", recipe_link(run["recipe"]), str(run["seed"]),
         f"{run['top1']:.2f}", f"{run['best_top1']:.2f} ({run['best_epoch'] + 1})",
         run["machine"]["instructions"], f"{run['seconds'] / 60:.0f}", f"`{run['revision']}`"]
        for run in result("cifar10")["rows"]
    ))  # fmt: skip


def calibration() -> str:
    heads = ["plan", "initialisation", "relative weight error", "quantized",
             "calibrated on plain images", "calibrated on augmented images"]  # fmt: skip
    return table(heads, (
        [f"`{row['plan']}`", INITIALISATIONS.get(row["initialisation"], ""), f"{row['error']:.3f}",
         *(f"{row[key]:.2f}" for key in ("top1", "plain", "augmented"))]
        for row in result("calibration")["rows"]
    ))  # fmt: skip


def train_step() -> str:
    return table(["network, batch", "plan", "time x float", "peak memory x float"], (
        [STEPS[row["network"]], f"`{row['plan']}`", f"{row['ratio']:.2f}",
         f"{row['memory_ratio']:.2f}"]
        for row in result("train_step")["rows"] if row["plan"] != "fp"
    ))  # fmt: skip


def prepare_time() -> str:
    return table(["network", "plan", "seconds"], (
        [row["network"], f"`{row['plan']}`", f"{row['seconds']:.1f}"]
        for row in result("prepare_time")["rows"]
    ))  # fmt: skip


TABLES: dict[str, Callable[[], str]] = {
    "resnet20": partial(means, "resnet20"),
    "short": partial(means, "short"),
    "shufflenet": partial(means, "shufflenet"),
    "ablation": partial(single_runs, "ablation"),
    "mobilenet": partial(single_runs, "mobilenet"),
    "every-run": every_run,
    "calibration": calibration,
    "train-step": train_step,
    "prepare-time": prepare_time,
}
