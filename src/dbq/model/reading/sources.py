"""Reading a recorded run: which batch norm precedes a layer's input, whether that input can be negative,
and which batch norm reads the layer's output.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, NamedTuple

from dbq.model.reading.recording import QUANTIZE, WEIGHTED, Call, Recorded, Recording
from dbq.model.roles import WeightLayer
from dbq.quantizers.contract import BatchNorm

# What an operation does to the values of its first argument, by its name in a recording. Lowering
# builds on the same sets.
UNCHANGED = frozenset(
    {"contiguous", "clone", "detach", "data", "float", "to", "type_as", "requires_grad"}
)
DROPOUT = frozenset(
    {"dropout", "dropout2d", "feature_dropout", "alpha_dropout", "stochastic_depth"}
)
# Elements change places, not values.
MOVING = frozenset(
    {"view", "reshape", "flatten", "unflatten", "permute", "transpose", "movedim", "squeeze",
     "unsqueeze", "chunk", "split", "tensor_split", "split_with_sizes", "getitem", "narrow", "select",
     "unbind", "channel_shuffle", "native_channel_shuffle", "flip", "roll", "reshape_as", "T", "mT",
     "index_select", "pixel_shuffle", "pixel_unshuffle"}
)  # fmt: skip
# All results are values of the argument (or zeros): its range and sign hold.
SELECTING = UNCHANGED | MOVING | frozenset({"max_pool2d", "adaptive_max_pool2d", "pad", "expand"})
# The sign holds, the range does not: a mean is narrower, dropout in training wider. A running range
# serves these better than the batch norm in front of them.
SIGN_KEEPING = DROPOUT | frozenset(
    {"avg_pool2d", "adaptive_avg_pool2d", "mean", "interpolate", "upsample"}
)
# Never negative, whatever they are given.
POSITIVE = frozenset({"sigmoid", "hardsigmoid", "softmax"})
# Not negative if none of their tensors is.
COMBINING = frozenset({"cat", "add", "mul", "maximum", "stack"})


class Limits(NamedTuple):
    """min(max(x, low), high)."""

    low: float = -math.inf
    high: float = math.inf


def limits(call: Call) -> Limits | None:
    """What an activation clamps its argument to, if clamping is all it does.

    >>> import torch
    >>> from torch import nn
    >>> from dbq.model.reading.recording import record
    >>> limits(record(nn.ReLU6(), torch.zeros(1, 3)).calls[0])
    Limits(low=0.0, high=6.0)
    """
    names = {
        "relu": (), "relu6": (), "clamp": ("min", "max"), "hardtanh": ("min_val", "max_val"),
        "clamp_min": ("min",), "clamp_max": ("max",),
    }.get(call.op)  # fmt: skip
    if names is None:
        return None
    given = {**dict(zip(names, call.args[1:], strict=False)), **call.kwargs}
    low, high = (given.get(names[0]), given.get(names[-1])) if len(names) == 2 else (None, None)
    if call.op == "hardtanh":
        low, high = -1.0 if low is None else low, 1.0 if high is None else high
    elif call.op in ("relu", "relu6"):
        low, high = 0.0, 6.0 if call.op == "relu6" else None
    elif call.op == "clamp_min":
        low = given["min"]
    elif call.op == "clamp_max":
        high = given["max"]
    if not all(number is None or isinstance(number, int | float) for number in (low, high)):
        return None  # limits that are tensors
    return Limits(-math.inf if low is None else low, math.inf if high is None else high)


@dataclass(frozen=True)
class Source:
    """Where a tensor comes from: the batch norm right before it, if any, and its sign and cap."""

    batch_norm: tuple[str, BatchNorm] | None
    signed: bool
    cap: float | None = None


UNKNOWN = Source(None, signed=True)


def input_sources(recording: Recording) -> dict[str, Source]:
    """For each weight layer of the run: the source of its input.

    A layer that is called several times, on tensors of different sources, gets none.

    >>> import torch
    >>> from torch import nn
    >>> from dbq.model.reading.recording import record
    >>> net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Conv2d(2, 2, 1))
    >>> input_sources(record(net, torch.zeros(1, 1, 4, 4)))["3"].batch_norm[0]
    '1'
    """
    reader = _SourceReader()
    sources: dict[str, Source] = {}
    for call in _weighted_calls(recording):
        source = reader.source(_argument(call))
        other = sources.setdefault(call.path, source)
        if other != source:
            sources[call.path] = Source(None, signed=other.signed or source.signed)
    return sources


def batch_norms_behind(recording: Recording) -> dict[str, BatchNorm]:
    """For each weight layer whose output goes to a batch norm and nowhere else: that batch norm.

    >>> import torch
    >>> from torch import nn
    >>> from dbq.model.reading.recording import record
    >>> net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Conv2d(2, 2, 1))
    >>> run = record(net, torch.zeros(1, 1, 4, 4))
    >>> {name: type(module).__name__ for name, module in batch_norms_behind(run).items()}
    {'0': 'BatchNorm2d'}
    """
    readers: dict[Any, list[Call]] = defaultdict(list)
    for call in recording.calls:
        for operand in call.tensors():
            readers[operand].append(call)
    calls: dict[str, list[Call]] = defaultdict(list)
    for call in _weighted_calls(recording):
        calls[call.path].append(call)
    behind = {}
    for path, (call, *others) in calls.items():
        found = [_batch_norm_of(reader) for reader in readers[call.output]]
        if not others and len(found) == 1 and found[0] is not None:
            behind[path] = found[0]
    return behind


def _weighted_calls(recording: Recording) -> list[Call]:
    return [
        call for call in recording.calls
        if call.op in WEIGHTED and isinstance(call.module, WeightLayer)
    ]  # fmt: skip


def _argument(call: Call) -> Any:
    return call.args[0] if call.args else call.kwargs.get("input")


def _batch_norm_of(call: Call) -> BatchNorm | None:
    """The module whose batch norm this is."""
    return call.module if call.op == "batch_norm" and isinstance(call.module, BatchNorm) else None


class _SourceReader:
    """Walks back from a tensor to what determines its range and its sign."""

    def __init__(self) -> None:
        self.signs: dict[Recorded, bool] = {}

    def source(self, operand: Any) -> Source:
        """The batch norm whose range a tensor has, if there is one."""
        signed, cap = self.may_be_negative(operand), None
        while isinstance(operand, Recorded) and (call := operand.call) is not None:
            norm, clamp = _batch_norm_of(call), limits(call)
            if norm is not None:
                return Source((call.path, norm), signed, cap)
            if clamp is not None and clamp.low == 0:
                cap = min(clamp.high, math.inf if cap is None else cap)
                cap = None if math.isinf(cap) else cap
            elif call.op not in SELECTING and call.op != QUANTIZE:
                break
            operand = _argument(call)
        return Source(None, signed, cap)

    def may_be_negative(self, operand: Any) -> bool:
        if not isinstance(operand, Recorded):
            return not isinstance(operand, int | float) or operand < 0
        if operand not in self.signs:
            self.signs[operand] = self._may_be_negative(operand.call)
        return self.signs[operand]

    def _may_be_negative(self, call: Call | None) -> bool:
        if call is None:
            return True
        clamp = limits(call)
        if call.op in POSITIVE or (clamp is not None and clamp.low >= 0):
            return False
        if call.op in SELECTING or call.op in SIGN_KEEPING:
            return self.may_be_negative(_argument(call))
        if call.op in COMBINING and call.args and not set(call.kwargs) - {"dim"}:
            first = call.args[0]
            tensors = first if isinstance(first, list | tuple) else call.args[:2]
            return any(self.may_be_negative(tensor) for tensor in tensors)
        return True
