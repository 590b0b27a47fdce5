"""Subclasses of Conv2d and Linear: what their forward did in a run says if they can be quantized."""

from __future__ import annotations

from typing import Any

from torch import nn

from dbq.model.reading.recording import WEIGHTED, Call, Constant, Recorded, Recording
from dbq.model.reading.sources import UNCHANGED

# What a forward may do to its input before the convolution: none of it changes a value, so quantizing
# before or after it is the same.
BEFORE = UNCHANGED | {"pad"}


def why_not_by_its_forward(module: nn.Module, recording: Recording) -> str | None:
    """None if quantizing input and weight means the same to `module` as to a Conv2d or Linear.

    That is so if its forward applies its own weight, as it is, in one convolution or product, to its
    input, padded at the most. What it does with the result does not matter.
    """
    kind = type(module).__name__
    if type(module) in (nn.Conv2d, nn.Linear):
        return None
    calls = [call for call in recording.calls if call.module is module]
    weighted = [call for call in calls if call.op in WEIGHTED]
    if not weighted:
        return f"{kind}, a subclass of Conv2d or Linear, computes without a convolution or product"
    for call in weighted:
        weight = (*call.args, call.kwargs.get("weight"))[1]
        if not (isinstance(weight, Constant) and weight.tensor is module.weight):
            return f"{kind} makes another weight of its own before it applies it"
        if not _is_input_of(module, call):
            return f"{kind} changes its input before it applies its weight"
    return None


def _is_input_of(module: nn.Module, call: Call) -> bool:
    """Whether the call reads what the module was given, but for padding."""
    while call.module is module and call.op in BEFORE | WEIGHTED:
        operand: Any = call.args[0] if call.args else call.kwargs.get("input")
        if not isinstance(operand, Recorded):
            return False
        if operand.call is None:
            return True
        call = operand.call
    return call.module is not module
