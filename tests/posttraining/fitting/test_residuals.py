"""Residual blocks: recognised by what they compute, and repaired as far as a norm can."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dbq.posttraining.fitting.pairs import execution_order
from dbq.posttraining.fitting.residuals import find_residuals, repair


class Residual(nn.Module):
    """Two convolutions with norms, and what `end` makes of input and result."""

    def __init__(self, end: str) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)
        self.second, self.last_norm = nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)
        self.end = end

    def forward(self, x: Tensor) -> Tensor:
        y = self.last_norm(self.second(torch.relu(self.norm(self.first(x)))))
        if self.end == "in place":
            y += x
            return torch.relu_(y)
        return {"sum": x + y, "relu": torch.relu(x + y), "half": x + 0.5 * y, "none": y}[self.end]


def found_in(model: nn.Module) -> dict[str, tuple[str, str]]:
    torch.manual_seed(0)
    model.eval()
    example = torch.randn(1, 4, 5, 5)
    names = {n for n, m in model.named_modules() if isinstance(m, nn.Conv2d | nn.BatchNorm2d)}
    order = execution_order(model, example, names)
    norm_of = {stop.corrects: stop.name for stop in order if stop.corrects}
    return {k: (r.block, r.norm) for k, r in find_residuals(model, example, norm_of).items()}


def test_blocks_are_recognised_by_what_they_compute() -> None:
    ends = ["sum", "half", "relu", "none", "in place"]
    found = found_in(nn.Sequential(*(Residual(end) for end in ends)))
    assert found == {
        f"{i}.second": (str(i), f"{i}.last_norm") for i, end in enumerate(ends)
        if end in ("sum", "relu", "in place")
    }  # fmt: skip


def test_the_repair_makes_up_for_the_shortcut() -> None:
    norm = nn.BatchNorm2d(4).eval()
    with torch.no_grad():
        norm.weight.copy_(torch.tensor([1.0, -2.0, 0.5, 1e-9]))
        norm.running_var.copy_(torch.tensor([4.0, 1.0, 0.25, 1.0]))
        y, x_float = torch.randn(2, 4, 3, 3), torch.randn(2, 4, 3, 3)
        x = x_float + 0.1 * torch.randn(2, 4, 3, 3)
        repaired = x + norm(y + repair(norm, x_float, x))
        wanted = x_float + norm(y)
    torch.testing.assert_close(repaired[:, :3], wanted[:, :3])
    torch.testing.assert_close(repaired[:, 3], (x + norm(y))[:, 3])  # nothing to repair it with
