"""Comparing an integer program with the network it came from, tensor by tensor, in two ways.

Step by step: each operation reads torch's codes, and what it writes is compared with torch's. Rounding
explains a difference of one code; more is an error in the lowering. End to end: the program runs on its
own codes, so that small differences accumulate.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn

from dbq.deploy import reference
from dbq.deploy.tensors import DTYPES, Array, Grid
from dbq.errors import LoweringError
from dbq.lowering.emission import Emitted
from dbq.model.graph import trace
from dbq.support.text import counted


@dataclass(frozen=True)
class Agreement:
    """How a program compares with the network it was lowered from."""

    images: int
    codes: int  # 8-bit activations compared, step by step
    different: int  # of these, how many differ (by one)
    end_to_end: float  # share of 8-bit activations that are equal when the program runs by itself
    largest_logit_error: float  # as a share of the largest logit
    same_top1: int  # images with the same class

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        return (
            f"integer program against torch on {counted(self.images, 'image')}: "
            f"{self.different:,} of {self.codes:,} activation codes differ, by 1; end to end "
            f"{100 * self.end_to_end:.2f} % of codes equal, "
            f"logits within {100 * self.largest_logit_error:.2g} %, "
            f"same class for {self.same_top1} of {self.images}"
        )


@torch.no_grad()
def compare(model: nn.Module, emitted: Emitted, x: Tensor, images: Array) -> Agreement:
    """Compare on uint8 `images`, for which torch reads `x`; raise if a code is off by more than one."""
    program = emitted.program
    nodes = _Values(fx.GraphModule(model, trace(model)))
    nodes.run(x)
    torchs = [
        None if node is None else _codes(nodes.values[node], grid, program.tensors[i].shape)
        for i, (node, grid) in enumerate(zip(emitted.nodes, emitted.grids, strict=True))
    ]
    compared = different = 0
    for op in program.operations:
        inputs = [torchs[i] for i in op.reads]
        if any(input is None for input in inputs):
            continue
        for index, codes in reference.execute(program, op, inputs, images).items():  # type: ignore[arg-type]
            expected, tensor = torchs[index], program.tensors[index]
            if expected is None or tensor.type in ("i32", "f32"):
                continue
            off = np.abs(codes.astype(np.int32) - expected.astype(np.int32))
            if off.max() > 1:
                raise LoweringError(
                    f"{op.name}: the integer program is off by {off.max()} codes, expected 1 at most; "
                    "a tensor that is overwritten in place may be the cause; please report this"
                )
            compared, different = compared + off.size, different + int(off.sum())
    return _end_to_end(emitted, torchs, images, compared, different)


def _end_to_end(
    emitted: Emitted, torchs: list[Array | None], images: Array, compared: int, different: int
) -> Agreement:
    program = emitted.program
    own = reference.trace(program, images)
    narrow = (i for i, tensor in enumerate(program.tensors) if tensor.type in ("u8", "i8"))
    equal = [own[i] == torchs[i] for i in narrow if torchs[i] is not None]
    expected, found = torchs[program.output], own[program.output]
    assert expected is not None
    error = np.abs(found - expected).max() / max(float(np.abs(expected).max()), 1e-30)
    same = found.argmax(1) == expected.argmax(1)
    share = sum(int(e.sum()) for e in equal) / max(1, sum(e.size for e in equal))
    same_top1 = int(same.all((1, 2)).sum())
    return Agreement(len(images), compared, different, share, float(error), same_top1)


def _codes(value: Tensor, grid: Grid, shape: tuple[int, int, int]) -> Array:
    """torch's value on a grid, by torch's own arithmetic."""
    x = value.float().reshape(-1, *shape)
    if grid.type != "f32":
        x = (x / torch.tensor(grid.scale)).clamp(grid.low, grid.high).round()
    codes: Array = x.numpy().astype(DTYPES[grid.type])
    return codes


class _Values(fx.Interpreter):
    """Keeps the tensor of every node."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.values: dict[str, Tensor] = {}

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if isinstance(result, Tensor):
            # A later operation may write into it.
            self.values[n.name] = result.clone()
        return result
