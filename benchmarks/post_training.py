"""Networks quantized without labels by `dbq.quantize`: top-1 against the float network's.

    python benchmarks/post_training.py [--only NETWORK/PLAN] [--tested N] [--imagenet DIR]
    [--cifar10 DIR] [--weights DIR]
                                       [--states DIR] [--ablation] [--uniform]

Images for the fit are training images without their labels: 1,000 of ImageNet, 1,024 of CIFAR-10.
Top-1 is over all test images there are. Needs the data sets and float weights; what is missing is
named and skipped. A row is saved when it is measured and kept by later calls for other rows.
Seconds are those of one thread's processor time. --tested N tests with every n-th image only.
The quantized networks are kept in --states DIR for benchmarks/post_training_deployed.py.
--ablation leaves one part out at a time. --uniform has 3 and 4 bits in place of branches, rounded to the
nearest of steps between a kernel's largest weights, and fitted as branches are.
"""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from machine import headline, options, save
from tabular import RESULTS, ROOT, result, show
from torch import Tensor, nn

import dbq
from dbq.data.options import DataOptions
from dbq.data.split import Split
from dbq.data.table import load_data
from dbq.model.calibration import HowNorms
from dbq.plans.precision import Precision
from dbq.posttraining.fitting.layerwise import Choices
from dbq.training.processes.memory import keep_freed_memory

IMAGENET, HALVES = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)), ((0.5,) * 3, (0.5,) * 3)


@dataclass(frozen=True)
class Case:
    """A network with its float weights and its images."""

    file: str
    data: str
    images: int
    pixels: tuple[tuple[float, ...], tuple[float, ...]]  # mean and standard deviation
    plans: dict[str, int]  # plan: steps of distillation
    options: dict[str, Any] = field(default_factory=dict)


CASES = {
    "resnet20": Case(
        "resnet20-cifar10-fp.safetensors", "cifar10", 1024, IMAGENET,
        {"resnet-2t": 600, "resnet-1t": 600, "resnet-2t-a8": 600, "resnet-1t-a8": 600, "fx8-3": 0},
    ),
    "mobilenet_v2": Case(
        "mobilenet_v2-imagenet.safetensors", "imagenet", 1000, IMAGENET,
        {"dbq-2t-4": 0, "dbq-2t-1": 0, "dbq-1t-a8": 0, "fx8-3": 0},
    ),
    "mobilenet_v1": Case(
        "mobilenet_v1-imagenet.safetensors", "imagenet", 1000, HALVES,
        {"dbq-2t-4": 0, "dbq-1t-a8": 0, "fx8-3": 0}, {"padding": "same", "activation": "relu6"},
    ),
}  # fmt: skip
PARTS: dict[str, Choices | HowNorms] = {
    "without distillation": Choices(),
    "prepare and calibrate": "pairs",
    "codes by weight error": Choices(codes=False),
    "without the float prefix": Choices(target=False),
    "without pairs": Choices(norms=False),
    "without shortcuts": Choices(shortcuts=False),
    "without ranges": Choices(ranges=False),
    "kernels each for itself": Choices(together=False),
    "all pixels alike": Choices(importance=False),
}
UNIFORM: dict[str, Choices | HowNorms] = {"rounded": "keep", "fitted": Choices()}
COLUMNS = {"network": "{network}", "plan": "{plan}", "what": "{what}", "float": "{float:.2f}",
           "top-1": "{top1:.2f}", "difference": "{difference:+.2f}",
           "seconds": "{seconds:.0f}"}  # fmt: skip


@torch.no_grad()
def top1(model: nn.Module, test: Split, chosen: Tensor) -> float:
    right = 0
    for batch in test.batches(torch.split(chosen, 50)):
        images = batch.images.contiguous(memory_format=torch.channels_last)
        right += int((model.eval()(images).argmax(1) == batch.labels).sum())
    return 100 * right / len(chosen)


def some_images(train: Split, count: int) -> Tensor:
    order = torch.randperm(len(train), generator=torch.Generator().manual_seed(0))
    parts = [batch.images for batch in train.batches(torch.split(order[:count], 100))]
    return torch.cat(parts).contiguous(memory_format=torch.channels_last)


def measure(
    model: nn.Module,
    plan: str | dbq.Plan,
    images: Tensor,
    test: Split,
    chosen: Tensor,
    choices: Choices | HowNorms,
    steps: int,
) -> dict[str, Any]:
    """Quantize the model; processor seconds, and accuracy of the hard network.

    By `dbq.quantize`, or by `prepare` and what `calibrate` does to batch norms.
    """
    start = time.process_time()
    if isinstance(choices, str):
        dbq.prepare(model, plan, images[:1])
        dbq.calibrate(model, torch.split(images, 100), statistics=choices)
        same = None
    else:
        done = dbq.quantize(model, plan, images, budget="best", steps=steps, choices=choices)
        same = done.agreement.same
    seconds = time.process_time() - start
    return {"top1": top1(model, test, chosen), "same": same, "seconds": seconds}


def main() -> None:
    arguments = options(
        __doc__, only="", imagenet=ROOT / "data/imagenet", cifar10=ROOT / "data/cifar10",
        weights=ROOT / "data", ablation=False, tested=0, uniform=False, states=ROOT / "build/states",
    ).parse_args()  # fmt: skip
    keep_freed_memory()
    torch.set_num_threads(1)
    print(headline())
    for name, case in CASES.items():
        wanted = [p for p in case.plans if arguments.only in (f"{name}/{p}", name, "")]
        if wanted:
            run(name, case, wanted, arguments)


def run(name: str, case: Case, plans: list[str], arguments: Any) -> None:
    weights = arguments.weights / case.file
    if not weights.exists():
        print(f"skipped {name}: no float weights at {weights} (--weights DIR)")
        return
    try:
        folder = str(getattr(arguments, case.data))
        train, test = load_data(DataOptions(case.data, folder, *case.pixels))
        model = dbq.create_model(name, weights=weights, **case.options).eval()
    except dbq.DbqError as problem:
        print(f"skipped {name}: {problem}")
        return
    model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    every = max(1, len(test) // (arguments.tested or len(test)))
    chosen = torch.arange(0, len(test), every)
    images = some_images(train, case.images)
    measured = [
        row["float"] for row in earlier() if (row["network"], row["tested"]) == (name, len(chosen))
    ]
    of_float = measured[0] if measured else top1(model, test, chosen)
    parts: dict[str, Choices | HowNorms] = {"all": Choices()}
    if arguments.ablation:
        parts = PARTS
    cases: list[tuple[str, str | dbq.Plan]] = [(plan, plan) for plan in plans]
    if arguments.uniform:
        parts = UNIFORM
        cases = [
            (f"{plan} with {bits}b", _uniform(plan, bits)) for plan in plans for bits in (3, 4)
        ]
    for plan, chosen_plan in cases:
        for what, choices in parts.items():
            steps = case.plans[plan] if what == "all" else 0
            quantized = copy.deepcopy(model)
            row = {"network": name, "plan": plan, "what": what, "float": of_float,
                   "steps": steps, "images": len(images), "tested": len(chosen),
                   **measure(quantized, chosen_plan, images, test, chosen, choices, steps)}  # fmt: skip
            row["difference"] = row["top1"] - of_float
            if what == "all":
                arguments.states.mkdir(parents=True, exist_ok=True)
                torch.save(quantized.state_dict(), arguments.states / f"{name}-{plan}.pt")
            print(show(COLUMNS, keep(row)[-1:], left=3), flush=True)


def _uniform(plan: str, bits: int) -> dbq.Plan:
    """The plan with fixed-point weights where it has branches."""
    return dbq.load_plan(plan).with_method("ternary", "fixed", weight=Precision("fixed", bits))


def earlier() -> list[dict[str, Any]]:
    path: Path = RESULTS / "post_training.json"
    return result("post_training")["rows"] if path.exists() else []


def keep(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Save the row among those of earlier calls."""
    key = ("network", "plan", "what")
    rows = [old for old in earlier() if any(old[k] != row[k] for k in key)] + [row]
    save("post_training", rows=rows)
    return rows


if __name__ == "__main__":
    main()
