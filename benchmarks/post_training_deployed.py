"""The networks of benchmarks/post_training.py as .dbq files: top-1 in the engine against torch's.

    python benchmarks/post_training_deployed.py [--only NETWORK/PLAN] [--states DIR] [--files DIR]
                                                [--imagenet DIR] [--cifar10 DIR] [--weights DIR]
                                                [--race]

Each network that was kept is lowered with branches joined to whole ratios and with separate scales,
and libdbq runs all test images. A row is saved when it is measured. --race, later and on a quiet
machine, runs the files in turns with those of int8 peers, one thread, one image; it needs the packages
of benchmarks/engine.py.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from machine import headline, options, save
from post_training import CASES, some_images
from tabular import RESULTS, ROOT, result

import dbq
from dbq.data.options import DataOptions
from dbq.data.table import load_data
from dbq.deploy.engine import load
from dbq.deploy.file.fileformat import save as save_program

BATCH, EXAMPLES, ROUNDS = 50, 32, 40
NAMES = {"mobilenet_v1": "mobilenet_v1-1.0", "mobilenet_v2": "mobilenet_v2-1.0"}


def compare(name: str, plan: str, arguments: Any) -> dict[str, Any]:
    """Accuracy in the engine with joined and with separate branches; what differs between them."""
    case = CASES[name]
    train, test = load_data(
        DataOptions(case.data, str(getattr(arguments, case.data)), *case.pixels)
    )
    examples = some_images(train, EXAMPLES)
    model = dbq.create_model(name, weights=arguments.weights / case.file, **case.options).eval()
    dbq.prepare(model, plan, examples[:1], fit=False)
    model.load_state_dict(torch.load(arguments.states / f"{name}-{plan}.pt"))
    mean, std = case.pixels
    programs = [
        dbq.lower(model, examples, mean=mean, std=std, whole_ratios=whole, report=None)
        for whole in (True, False)
    ]
    arguments.files.mkdir(parents=True, exist_ok=True)
    paths = [
        arguments.files / f"{NAMES.get(name, name)}-{plan}{form}.dbq" for form in ("", "-separate")
    ]
    sizes = [save_program(program, path) for program, path in zip(programs, paths, strict=True)]
    nets = [load(path, threads=1) for path in paths]
    right, different = np.zeros(2, int), 0
    for batch in test.batches(torch.split(torch.arange(len(test)), BATCH), raw=True):
        pixels = batch.images.permute(0, 2, 3, 1).contiguous().numpy()
        joined, separate = (net(pixels).argmax(1) for net in nets)
        labels = batch.labels.numpy()
        right += [(joined == labels).sum(), (separate == labels).sum()]
        different += int((joined != separate).sum())
    top1 = (100 * right / len(test)).tolist()
    (by_torch,) = [row["top1"] for row in result("post_training")["rows"]
                   if (row["network"], row["plan"], row["what"]) == (name, plan, "all")]  # fmt: skip
    agreement = programs[0].facts["agreement"]
    return {"network": name, "plan": plan, "images": len(test), "torch": by_torch, "joined": top1[0],
            "separate": top1[1], "different_classes": different, "bytes": sizes[0],
            "moved_mean": agreement["moved_mean"], "moved_most": agreement["moved_most"],
            "isa": nets[0].isa}  # fmt: skip


def race(name: str, files: Path) -> None:
    """Milliseconds of the files that were tested, and of the int8 peers of the same network."""
    from engine import contenders, interleave, start
    from engine_files import NETWORKS, make

    rows = {row["plan"]: row for row in earlier() if row["network"] == name}
    engine_name = NAMES.get(name, name)
    make(engine_name, files)
    field = [c for c in contenders(engine_name, files)
             if c.kind == "int8" or c.label.removeprefix("dbq ") in rows]  # fmt: skip
    runs = {c.label: start(c, NETWORKS[engine_name], 1, 1) for c in field}
    ms = {label: median(times) for label, times in interleave(runs, ROUNDS).items()}
    peers = {c.label: ms[c.label] for c in field if c.kind == "int8"}
    best = min(peers, key=lambda label: peers[label])
    sizes = {c.label: c.file.stat().st_size + _beside(c.file) for c in field if c.kind == "int8"}
    for plan, row in rows.items():
        if f"dbq {plan}" in ms:
            keep({**row, "ms": ms[f"dbq {plan}"], "peer": best, "peer_ms": peers[best],
                  "peer_bytes": min(sizes.values())})  # fmt: skip
            print(f"{name} {plan}: {ms[f'dbq {plan}']:.2f} ms, {best} {peers[best]:.2f} ms")


def _beside(path: Path) -> int:
    """Bytes of the weights that an .xml has in a file of its own."""
    weights = path.with_suffix(".bin")
    return weights.stat().st_size if path.suffix == ".xml" and weights.exists() else 0


def main() -> None:
    arguments = options(
        __doc__, only="", imagenet=ROOT / "data/imagenet", cifar10=ROOT / "data/cifar10",
        weights=ROOT / "data", states=ROOT / "build/states", files=ROOT / "build/post_training",
        race=False,
    ).parse_args()  # fmt: skip
    print(headline())
    for name, case in CASES.items():
        if arguments.race:
            if arguments.only in (name, ""):
                race(name, arguments.files)
            continue
        for plan in case.plans:
            if arguments.only not in (f"{name}/{plan}", name, ""):
                continue
            if not (arguments.states / f"{name}-{plan}.pt").exists():
                print(f"skipped {name}/{plan}: benchmarks/post_training.py has not kept it")
                continue
            try:
                row = compare(name, plan, arguments)
            except dbq.DbqError as problem:
                print(f"skipped {name}/{plan}: {problem}")
                continue
            print(
                "{network} {plan}: torch {torch:.2f}, joined {joined:.2f}, separate {separate:.2f}, "
                "{bytes:,} bytes".format(**row), flush=True
            )  # fmt: skip
            keep(row)


def earlier() -> list[dict[str, Any]]:
    path = RESULTS / "post_training_deployed.json"
    return result("post_training_deployed")["rows"] if path.exists() else []


def keep(row: dict[str, Any]) -> None:
    """Save the row among those of earlier calls."""
    rows = [old for old in earlier() if any(old[k] != row[k] for k in ("network", "plan"))] + [row]
    save("post_training_deployed", rows=rows)


if __name__ == "__main__":
    main()
