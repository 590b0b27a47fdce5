"""Time and memory of a whole training step, quantized against float.

    python benchmarks/train_step.py

Forward, backward and SGD step. The networks take turns in one process; the ratio is the median over
rounds of (quantized / float in that round). Freed memory is kept (dbq.training.processes.memory),
because the time of page faults varies more than the effect that is measured. Peak memory is what
torch's tensors need at most in a step, from its record of allocations: the resident memory of a process
also depends on where its allocator finds room, and differed by a fifth between runs of one network.
"""

from __future__ import annotations

import statistics
import time
from itertools import accumulate

import torch
import torch.nn.functional as F
from machine import headline, options, save
from tabular import Row, show
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

import dbq
from dbq.training.processes.memory import keep_freed_memory

# network: batch, pixels, rounds, plans compared with "fp"
CASES = {
    "resnet20": (100, 32, 60, ["resnet-2t", "resnet-1t", "resnet-2t-a8"]),
    "mobilenet_v1": (32, 224, 16, ["dbq-2t-1", "dbq-1t", "dbq-2t-4"]),
}
COLUMNS = {"network": "{network}", "plan": "{plan}", "ms": "{ms:.0f}", "ms x float": "{ratio:.3f}",
           "peak MB": "{peak_mb:.0f}", "MB x float": "{memory_ratio:.2f}"}  # fmt: skip


class Step:
    """A network with its optimizer and a batch; calling it trains one step."""

    def __init__(self, name: str, plan: str) -> None:
        batch, pixels, *_ = CASES[name]
        torch.manual_seed(0)
        self.model: nn.Module = dbq.create_model(name)
        self.images: Tensor = torch.randn(batch, 3, pixels, pixels)
        self.labels = torch.randint(10, (batch,))
        dbq.prepare(self.model, plan, self.images[:1])
        self.model.train()
        groups = dbq.param_groups(self.model, weight_decay=4e-5)
        self.optimizer = torch.optim.SGD(groups, lr=1e-4, momentum=0.9)

    def __call__(self) -> float:
        start = time.perf_counter()
        torch.autograd.backward(F.cross_entropy(self.model(self.images), self.labels))
        self.optimizer.step()
        self.optimizer.zero_grad()
        return time.perf_counter() - start


def peak_memory(step: Step) -> float:
    """MB of tensors alive at the worst moment of a step, with those that outlive it."""
    step()  # the optimizer's state comes with the first step
    lasting = [*step.model.parameters(), *step.model.buffers(), step.images, step.labels]
    lasting += [x for of in step.optimizer.state.values() for x in of.values() if x is not None]
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        step()
    assert recorded.profiler is not None
    assert recorded.profiler.kineto_results is not None
    events = recorded.profiler.kineto_results.events()
    changes = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
    most = max(accumulate(size for _, size in changes))
    return float(sum(x.nbytes for x in lasting) + most) / 2**20


def measure(name: str) -> list[Row]:
    _, _, rounds, plans = CASES[name]
    steps = {plan: Step(name, plan) for plan in ["fp", *plans]}
    times: dict[str, list[float]] = {plan: [] for plan in steps}
    for step in steps.values():
        step()  # warm-up
    for turn in range(rounds):
        for plan in steps if turn % 2 else reversed(steps):
            times[plan].append(steps[plan]())
    rows = []
    memory = {plan: peak_memory(step) for plan, step in steps.items()}
    for plan in steps:
        ratios = [ours / base for ours, base in zip(times[plan], times["fp"], strict=True)]
        rows.append({
            "network": name, "plan": plan, "rounds": rounds,
            "ms": 1e3 * statistics.median(times[plan]), "ratio": statistics.median(ratios),
            "peak_mb": memory[plan], "memory_ratio": memory[plan] / memory["fp"],
        })  # fmt: skip
    return rows


def main() -> None:
    options(__doc__).parse_args()
    keep_freed_memory()
    print(f"training step, {headline()}")
    rows = [row for name in CASES for row in measure(name)]
    print(show(COLUMNS, rows))
    print(save("train_step", rows=rows))


if __name__ == "__main__":
    main()
