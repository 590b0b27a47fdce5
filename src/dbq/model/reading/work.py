"""Work: the multiply-accumulates of the calls of a recorded run, for one image."""

from __future__ import annotations

from math import prod
from typing import Any

from dbq.model.reading.recording import Call, Constant, Recorded


def macs(call: Call) -> int:
    """Multiply-accumulates for one image; 0 for anything but convolutions, linear layers and products.

    >>> import torch
    >>> from torch import nn
    >>> from dbq.model.reading.recording import record
    >>> macs(record(nn.Conv2d(3, 8, 3), torch.zeros(5, 3, 6, 6)).calls[0])
    3456
    """
    operands = [_shape(operand) for operand in call.tensors()]
    if len(operands) < 2 or not isinstance(call.output, Recorded):
        return 0
    x, other, output = operands[0], operands[1], call.output.shape
    images = max(x[0], 1) if x else 1
    if call.op.startswith("conv_transpose"):
        return prod(x) * prod(other[1:]) // images
    if call.op in ("conv1d", "conv2d", "conv3d"):
        return prod(output) * prod(other[1:]) // images
    if call.op in ("linear", "matmul", "bmm", "mm"):
        return prod(output) * x[-1] // images
    return 0


def _shape(operand: Any) -> tuple[int, ...]:
    tensor = operand.tensor if isinstance(operand, Constant) else operand
    return tuple(getattr(tensor, "shape", ()))
