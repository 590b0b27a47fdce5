"""How long `dbq.prepare` takes.

python benchmarks/prepare_time.py
"""

from __future__ import annotations

import statistics
import time

import torch
from machine import headline, save
from tabular import show

import dbq
from dbq.networks.table import input_size

CASES = [
    ("mobilenet_v1", "dbq-2t-4"),
    ("mobilenet_v1", "dbq-1t"),
    ("mobilenet_v2", "dbq-2t-4"),
    ("shufflenet_v2", "dbq-2t-4"),
    ("resnet20", "resnet-2t"),
]


def seconds(network: str, plan: str, repeats: int = 3) -> float:
    times = []
    for _ in range(repeats):
        torch.manual_seed(0)
        model = dbq.create_model(network)
        pixels = input_size(network)
        image = torch.randn(1, 3, pixels, pixels)
        start = time.perf_counter()
        dbq.prepare(model, plan, image)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> None:
    print(f"prepare, {headline()}")
    rows = [{"network": n, "plan": plan, "seconds": seconds(n, plan)} for n, plan in CASES]
    print(show({"network": "{network}", "plan": "{plan}", "seconds": "{seconds:.2f}"}, rows))
    print(save("prepare_time", rows=rows))


if __name__ == "__main__":
    main()
