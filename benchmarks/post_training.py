"""Networks quantized without labels by `dbq.quantize`: top-1 against the float network's.

    python benchmarks/post_training.py [--only NETWORK/PLAN] [--tested N] [--imagenet DIR]
    [--cifar10 DIR] [--weights DIR]
                                       [--ablation]

Images for the fit are training images without their labels: 1,000 of ImageNet, 1,024 of CIFAR-10.
Top-1 is over all test images there are. Needs the data sets and float weights; what is missing is
named and skipped. A row is saved when it is measured and kept by later calls for other rows.
Seconds are those of one thread's processor time. --tested N tests with every n-th image only.
--ablation leaves one part out at a time.
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
from dbq.posttraining.layerwise import Choices
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
        {"resnet-2t": 150, "resnet-1t": 150, "resnet-2t-a8": 150, "resnet-1t-a8": 150, "fx8-3": 0},
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
PARTS = {
    "all": Choices(),
    "prepare and calibrate": None,
    "codes by weight error": Choices(codes=False),
    "without the float prefix": Choices(target=False),
    "without pairs": Choices(norms=False),
    "without shortcuts": Choices(shortcuts=False),
    "without ranges": Choices(ranges=False),
}
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
    plan: str,
    images: Tensor,
    test: Split,
    chosen: Tensor,
    choices: Choices | None,
    steps: int,
) -> dict[str, Any]:
    """Quantize a copy; processor seconds, and accuracy of the hard network."""
    model, start = copy.deepcopy(model), time.process_time()
    if choices is None:
        dbq.prepare(model, plan, images[:1])
        dbq.calibrate(model, torch.split(images, 100))
        same = None
    else:
        done = dbq.quantize(
            model, plan, images, budget="best" if steps else "default", steps=steps, choices=choices
        )
        same = done.agreement.same
    seconds = time.process_time() - start
    return {"top1": top1(model, test, chosen), "same": same, "seconds": seconds}


def main() -> None:
    arguments = options(
        __doc__, only="", imagenet=ROOT / "data/imagenet", cifar10=ROOT / "data/cifar10",
        weights=ROOT / "data", ablation=False, tested=0,
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
    images, of_float = some_images(train, case.images), top1(model, test, chosen)
    for plan in plans:
        for what, choices in PARTS.items() if arguments.ablation else [("all", Choices())]:
            steps = case.plans[plan] if what == "all" else 0
            row = {"network": name, "plan": plan, "what": what, "float": of_float,
                   "steps": steps, "images": len(images), "tested": len(chosen),
                   **measure(model, plan, images, test, chosen, choices, steps)}  # fmt: skip
            row["difference"] = row["top1"] - of_float
            print(show(COLUMNS, keep(row)[-1:], left=3), flush=True)


def keep(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Save the row among those of earlier calls."""
    key = ("network", "plan", "what")
    path: Path = RESULTS / "post_training.json"
    rows = result("post_training")["rows"] if path.exists() else []
    rows = [old for old in rows if any(old[k] != row[k] for k in key)] + [row]
    save("post_training", rows=rows)
    return rows


if __name__ == "__main__":
    main()
