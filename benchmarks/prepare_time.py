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

# network, plan, seconds it may take
CASES = [
    ("mobilenet_v1", "dbq-2t-4", 5.0),
    ("mobilenet_v1", "dbq-1t", None),
    ("mobilenet_v2", "dbq-2t-4", None),
    ("shufflenet_v2", "dbq-2t-4", None),
    ("resnet20", "resnet-2t", None),
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
        {"network": network, "plan": plan, "seconds": seconds(network, plan), "target": target}
        for network, plan, target in CASES
    ]
    table = plain_table(["network", "plan", "seconds", "target"], left=2)
    for row in rows:
        target = f"<= {row['target']:g}" if row["target"] else ""
        table.add_row(str(row["network"]), str(row["plan"]), f"{row['seconds']:.2f}", target)
    print(as_text(table))
    print(save("prepare_time", "python benchmarks/prepare_time.py", rows=rows))


if __name__ == "__main__":
    main()
