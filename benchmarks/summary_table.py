"""The one table of README.md: what was measured, beside what it compares with."""

from __future__ import annotations

from collections.abc import Callable
from statistics import mean

import tiny_imagenet_tables
from accuracy_tables import runs_of
from engine_tables import KINDS, engines
from tabular import Row, recipe_link, result, table

Cells = list[str]
SHUFFLENET = 90.65  # top-1 of the float network that runs start from, as its file says


def _file(name: str) -> str:
    return f"[{name}.json](results/{name}.json)"


def _row(name: str, plan: str) -> Row:
    return next(row for row in result(name)["rows"] if row["plan"] == plan)


def _trained(group: str, label: str, what: str, of_float: float) -> Cells:
    runs = runs_of(group)[label]
    top1 = mean(run["top1"] for run in runs)
    seeds = "one seed" if len(runs) == 1 else f"mean of {len(runs)} seeds"
    return [f"{what}, {runs[0]['epochs']} epochs, {seeds}",
            f"**{top1:.2f} %**", f"float {of_float:.2f} %",
            recipe_link(runs[0]["recipe"], ""), _file("cifar10")]  # fmt: skip


def _mobilenet() -> Cells:
    (branches,), (bytes_,) = (runs_of("mobilenet")[label] for label in ("dbq-2t-4", "fx8-3"))
    return ["MobileNetV1 0.25 at 32, two branches, 8-bit activations, 2 epochs",
            f"**{branches['top1']:.2f} %**", f"8 bit everywhere {bytes_['top1']:.2f} %",
            recipe_link(branches["recipe"], ""), _file("cifar10")]  # fmt: skip


def _tiny_imagenet() -> Cells:
    runs = tiny_imagenet_tables.runs_by_row()
    (branches, *_), (of_float, *_) = runs["dbq-2t-4"], runs["fp-longer"]
    return ["MobileNetV1 1.0 on Tiny-ImageNet at 64, two branches, 8-bit activations, 1 epoch",
            f"**{branches['top1']:.2f} %**", f"float, trained as long, {of_float['top1']:.2f} %",
            recipe_link(branches["recipe"], ""), _file("tiny_imagenet")]  # fmt: skip


def _deployed() -> Cells:
    row = _row("deployed", "resnet-2t-a8")
    return ["ResNet-20, two branches, 8-bit activations, as a .dbq file in the engine",
            f"**{row['engine_top1']:.2f} %**, {row['bytes'] / 1e3:.0f} kB",
            f"torch `eval()` {row['torch_top1']:.2f} %",
            recipe_link("resnet20-2t-a8-quick", ""), _file("deployed")]  # fmt: skip


def _speed(network: str, plan: str, what: str) -> list[Cells]:
    """A row for each kind of machine."""
    lines = []
    for kind, engine in engines().items():
        if network not in engine["networks"]:
            continue
        found = engine["networks"][network]
        rows = {row["contender"]: row for row in found["contenders"]}
        ours, peer = rows[f"dbq {plan}"], rows[found["best_int8_peer"]["1"]]
        lines.append([f"{what}, {KINDS[kind]}", f"**{ours['ms']['1']:.2f} ms**",
                      f"int8 {peer['ms']['1']:.2f} ms ({ours['ratio']['1']:.2f}x)",
                      f"plan `{plan}`", _file(f"engine-{kind}")])  # fmt: skip
    return lines


def summary() -> str:
    resnet20 = _row("calibration", "fp")["top1"]  # of the network that all runs start from
    return table(
        ["network", "measured", "compared with", "recipe or plan", "result"],
        [
            _trained("resnet20", "2t", "ResNet-20, two branches", resnet20),
            _trained("resnet20", "1t", "ResNet-20, one branch", resnet20),
            _trained("short", "1t", "ResNet-20, one branch from fitted codes", resnet20),
            _trained(
                "shufflenet",
                "2t",
                "ShuffleNetV2 0.5 at 32, two branches, 8-bit activations",
                SHUFFLENET,
            ),
            _mobilenet(),
            _tiny_imagenet(),
            _deployed(),
            *_speed("mobilenet_v1-1.0", "dbq-2t-4", "MobileNetV1 1.0 at 224, two branches"),
            *_speed("mobilenet_v1-1.0", "dbq-1t-a8", "MobileNetV1 1.0 at 224, one branch"),
            *_speed("shufflenet_v2-1.0", "dbq-2t-4", "ShuffleNetV2 1.0 at 224, two branches"),
            *_speed("resnet20", "resnet-2t-a8", "ResNet-20 at 32, two branches"),
        ],
    )


TABLES: dict[str, Callable[[], str]] = {"summary": summary}
