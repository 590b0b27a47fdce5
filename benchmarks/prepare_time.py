"""How long `dbq.prepare` takes.

python benchmarks/prepare_time.py
"""

from __future__ import annotations

import statistics
import time

import torch
from machine import headline, save

import dbq
from dbq.networks.table import input_size
from dbq.support.text import as_text, plain_table

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
    rows = [
        {"network": network, "plan": plan, "seconds": seconds(network, plan)}
        for network, plan in CASES
    ]
    table = plain_table(["network", "plan", "seconds"], left=2)
    for row in rows:
        table.add_row(str(row["network"]), str(row["plan"]), f"{row['seconds']:.2f}")
    print(as_text(table))
    print(save("prepare_time", "python benchmarks/prepare_time.py", rows=rows))


if __name__ == "__main__":
    main()
