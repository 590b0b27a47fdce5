"""Reading the graph: which batch norm precedes a layer's input, whether that input can be negative,
and which batch norm reads the layer's output.

torch.fx traces the model symbolically; the graph is only read, never rewritten.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn

from dbq.model.roles import WeightLayer
from dbq.quantizers.contract import BatchNorm

# An operation is named by module class, function, or method name, whichever the graph shows.
Op = type[nn.Module] | Callable[..., Any] | str

# What an operation does to the values of its first argument. Lowering builds on the same table.
UNCHANGED: frozenset[Op] = frozenset({nn.Identity, torch.clone, "contiguous", "clone", "detach"})
DROPOUT: frozenset[Op] = frozenset({nn.Dropout, nn.Dropout2d, F.dropout, F.dropout2d})
# Elements change places, not values.
MOVING: frozenset[Op] = frozenset(
    {nn.Flatten, nn.ChannelShuffle, F.channel_shuffle, operator.getitem, torch.flatten, torch.reshape,
     torch.permute, torch.transpose, torch.squeeze, torch.unsqueeze, torch.chunk, torch.split,
     "view", "reshape", "flatten", "permute", "transpose", "squeeze", "unsqueeze", "chunk", "split"}
)  # fmt: skip
# All results are values of the argument (or zeros): its range and sign hold.
SELECTING: frozenset[Op] = UNCHANGED | MOVING | frozenset(
    {nn.MaxPool2d, nn.AdaptiveMaxPool2d, nn.PixelShuffle, nn.PixelUnshuffle, nn.ZeroPad2d,
     F.max_pool2d, F.adaptive_max_pool2d, F.pixel_shuffle, "expand", "float", "to", "type_as"}
)  # fmt: skip
# The sign holds, the range does not: a mean is narrower, dropout in training wider. A running range
# serves these better than the batch norm in front of them.
SIGN_KEEPING: frozenset[Op] = DROPOUT | frozenset(
    {nn.AvgPool2d, nn.AdaptiveAvgPool2d, F.avg_pool2d, F.adaptive_avg_pool2d, torch.mean, "mean"}
)  # fmt: skip
RELU: frozenset[Op] = frozenset(
    {nn.ReLU, F.relu, F.relu_, torch.relu, torch.relu_, "relu", "relu_"}
)
RELU6: frozenset[Op] = frozenset({nn.ReLU6, F.relu6})
# Never negative, whatever they are given.
POSITIVE: frozenset[Op] = frozenset(
    {nn.Sigmoid, nn.Hardsigmoid, nn.Softmax, F.sigmoid, F.hardsigmoid, F.softmax, torch.sigmoid,
     torch.softmax, "sigmoid", "softmax"}
)  # fmt: skip
# Not negative if none of their tensors is.
COMBINING: frozenset[Op] = frozenset(
    {torch.cat, torch.concat, torch.add, torch.mul, torch.maximum, torch.stack, operator.add,
     operator.iadd, operator.mul, operator.imul, "add", "add_", "mul", "mul_"}
)  # fmt: skip


@dataclass(frozen=True)
class Source:
    """Where a tensor comes from: the batch norm right before it, if any, and its sign and cap."""

    batch_norm: tuple[str, BatchNorm] | None
    signed: bool
    cap: float | None = None


UNKNOWN = Source(None, signed=True)


class _LeafTracer(fx.Tracer):
    """Weight layers and batch norms are leaves even where a subclass is used."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        if isinstance(m, nn.Conv2d | nn.Linear | BatchNorm):
            return True
        return super().is_leaf_module(m, module_qualified_name)


def trace(model: nn.Module) -> fx.Graph:
    """The graph of `model`. Attributes that `forward` sets while tracing are restored."""
    before = {module: dict(vars(module)) for module in model.modules()}
    try:
        return _LeafTracer().trace(model)
    finally:
        for module, attributes in before.items():
            vars(module).clear()
            vars(module).update(attributes)


def input_sources(model: nn.Module, graph: fx.Graph) -> dict[str, Source]:
    """For each weight layer of the graph: the source of its input.

    A layer that is called several times, on tensors of different sources, gets none.

    >>> net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Conv2d(2, 2, 1))
    >>> input_sources(net, trace(net))["3"].batch_norm[0]
    '1'
    """
    modules = dict(model.named_modules())
    reader = _SourceReader(graph, modules)
    sources: dict[str, Source] = {}
    for node in graph.nodes:
        if node.op != "call_module" or not isinstance(modules[node.target], WeightLayer):
            continue
        source = reader.source(node.args[0] if node.args else node.kwargs.get("input"))
        other = sources.setdefault(node.target, source)
        if other != source:
            sources[node.target] = Source(None, signed=other.signed or source.signed)
    return sources


def batch_norms_behind(model: nn.Module, graph: fx.Graph) -> dict[str, BatchNorm]:
    """For each weight layer whose output goes to a batch norm and nowhere else: that batch norm.

    >>> net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Conv2d(2, 2, 1))
    >>> {name: type(module).__name__ for name, module in batch_norms_behind(net, trace(net)).items()}
    {'0': 'BatchNorm2d'}
    """
    modules = dict(model.named_modules())
    calls = [node for node in graph.nodes if node.op == "call_module"]
    called = [node.target for node in calls]
    behind = {}
    for node in calls:
        if not isinstance(modules[node.target], WeightLayer) or called.count(node.target) > 1:
            continue
        readers = [modules.get(str(user.target)) for user in node.users]
        if len(readers) == 1 and isinstance(readers[0], BatchNorm):
            behind[node.target] = readers[0]
    return behind


class _SourceReader:
    """Walks back from a tensor to what determines its range and its sign."""

    def __init__(self, graph: fx.Graph, modules: dict[str, nn.Module]) -> None:
        self.modules = modules
        self.signs: dict[fx.Node, bool] = {}
        self.overwritten: set[fx.Node] = set()
        for node in graph.nodes:
            if self._writes_in_place(node) and node.args:
                self._mark_overwritten(node.args[0])

    def _writes_in_place(self, node: fx.Node) -> bool:
        if node.op == "call_module":
            return bool(getattr(self.modules[str(node.target)], "inplace", False))
        name = getattr(node.target, "__name__", str(node.target))
        in_place_operator = node.target in (operator.iadd, operator.imul, operator.isub)
        return name.endswith("_") or in_place_operator or node.kwargs.get("inplace") is True

    def _mark_overwritten(self, node: Any) -> None:
        """Note a tensor that is written in place and read by others too, and the tensors it views.

        Those readers may see the new values, so nothing is known about them. If the writer is the only
        reader, it is as good as a fresh tensor.
        """
        while isinstance(node, fx.Node):
            if len(node.users) > 1:
                self.overwritten.add(node)
            node = node.args[0] if self.op(node) in SELECTING and node.args else None

    def op(self, node: fx.Node) -> Op:
        if node.op == "call_module":
            return type(self.modules[str(node.target)])
        return node.target if node.op in ("call_function", "call_method") else node.op

    def source(self, node: Any) -> Source:
        """The batch norm whose range a tensor has, if there is one."""
        signed, cap = self.may_be_negative(node), None
        while isinstance(node, fx.Node):
            if node in self.overwritten:
                break
            if node.op == "call_module":
                module = self.modules[str(node.target)]
                if isinstance(module, BatchNorm):
                    return Source((str(node.target), module), signed, cap)
            op = self.op(node)
            if op in RELU6:
                cap = 6.0
            elif op not in RELU and op not in SELECTING:
                break
            node = node.args[0] if node.args else None
        return Source(None, signed, cap)

    def may_be_negative(self, node: Any) -> bool:
        if not isinstance(node, fx.Node):
            return not isinstance(node, int | float) or node < 0
        if node not in self.signs:
            self.signs[node] = self._may_be_negative(node)
        return self.signs[node]

    def _may_be_negative(self, node: fx.Node) -> bool:
        op = self.op(node)
        if node in self.overwritten:
            return True
        if op in RELU or op in RELU6 or op in POSITIVE:
            return False
        if op in SELECTING or op in SIGN_KEEPING:
            return self.may_be_negative(node.args[0]) if node.args else True
        if op in COMBINING and node.args and not set(node.kwargs) - {"dim"}:
            first = node.args[0]
            tensors = first if isinstance(first, list | tuple) else node.args[:2]
            return any(self.may_be_negative(tensor) for tensor in tensors)
        return True
