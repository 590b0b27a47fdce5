"""The graph of a network to values: torch.fx runs it, with our values in place of tensors.

Every operation lowering knows is in one of the tables at the end; anything else is an error that names
the node and the operation. Sizes and other plain numbers of the graph are computed as they stand.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn

from dbq.deploy.tensors import Shape
from dbq.errors import LoweringError
from dbq.lowering.handlers import joining, pooling, weighted
from dbq.lowering.site import Site
from dbq.lowering.values import Anything, Image, Moved, Padded, Value
from dbq.model.graph import RELU, RELU6, Op, trace
from dbq.model.layers import QuantConv2d, QuantLinear
from dbq.quantizers.inputs import BatchNorm


class Reader(fx.Interpreter):
    """Runs the graph of a model in eval(); `run` gives the value of its output."""

    def __init__(self, model: nn.Module, image: Shape) -> None:
        super().__init__(fx.GraphModule(model, trace(model)))
        self.extra_traceback = False  # our errors are one line
        self.modules = dict(model.named_modules())
        self.image = Image(image)
        self.site = Site()

    def read(self) -> Value:
        output = self.run(self.image)
        if not _is_value(output):
            raise LoweringError(
                f"the network gives a {type(output).__name__}, expected one tensor of logits"
            )
        return self.site.settle(output)

    def run_node(self, n: fx.Node) -> Any:
        self.site.name = n.name
        result = super().run_node(n)
        if _is_value(result) and result.node is None:
            result.node = n.name
        return result

    def call_module(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        module = self.modules[target]
        self.site.name = target
        return self._apply(type(module), module, args, kwargs)

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        picks_a_part = target is operator.getitem and isinstance(args[0], tuple)
        if picks_a_part or not any(map(_is_value, _flat((*args, *kwargs.values())))):
            return super().call_function(target, args, kwargs)
        return self._apply(target, target, args, kwargs)

    def call_method(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not any(map(_is_value, _flat(args))):
            return super().call_method(target, args, kwargs)
        return self._apply(target, target, args, kwargs)

    def get_attr(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        raise LoweringError(
            f"{self.site.name} ({target}) is a tensor of the network itself: lowering knows weights of "
            "Conv2d, Linear and batch norm only"
        )

    def _apply(self, op: Op, what: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if op in MOVING:
            return self._move(what, args, kwargs)
        handler = HANDLERS.get(op)
        if handler is None and isinstance(what, BatchNorm):
            handler = weighted.batch_norm
        if handler is None:
            name = op if isinstance(op, str) else getattr(op, "__name__", str(op))
            raise LoweringError(
                f"{self.site.name}: {name} cannot be lowered; known are convolutions, linear layers, "
                "batch norm, ReLU, ReLU6, additions, concatenations, channel splits and shuffles, "
                "max and average pooling, zero padding and flattening: replace it, or leave it out "
                "of the network"
            )
        if isinstance(what, nn.Module):
            return handler(self.site, what, *args, **kwargs)
        return handler(self.site, *args, **kwargs)

    def _move(self, what: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Let torch move a tensor of indices, and remember where they went."""
        thing, *rest = args
        if isinstance(thing, Padded):
            thing = self.site.settle(thing)
        if isinstance(thing, Moved):
            base, index = thing.base, torch.from_numpy(thing.index)
        else:
            base, index = thing, torch.arange(math.prod(thing.shape)).view(1, *thing.shape)
        function = (
            getattr(index, what) if isinstance(what, str) else lambda *a, **k: what(index, *a, **k)
        )
        moved = function(*rest, **kwargs)
        if isinstance(moved, torch.Tensor):
            return Moved(base, moved.numpy())
        if isinstance(moved, tuple | list) and all(isinstance(m, torch.Tensor) for m in moved):
            return tuple(Moved(base, m.numpy()) for m in moved)
        return moved  # a size


def _is_value(thing: Any) -> bool:
    return isinstance(thing, Anything)


def _flat(things: Sequence[Any]) -> list[Any]:
    flat: list[Any] = []
    for thing in things:
        flat += thing if isinstance(thing, list | tuple) else [thing]
    return flat


def size(site: Site, thing: Any, dim: int | None = None) -> Any:
    shape = thing.index.shape if isinstance(thing, Moved) else (1, *thing.shape)
    return torch.Size(shape) if dim is None else shape[dim]


def attribute(site: Site, thing: Any, name: str) -> Any:
    if name != "shape":
        raise LoweringError(f"{site.name}: attribute {name!r} of a tensor; only shape is known")
    return size(site, thing)


# Values pass, elements move: torch does these to a tensor of indices.
MOVING: frozenset[Op] = frozenset(
    {nn.Flatten, nn.ChannelShuffle, F.channel_shuffle, operator.getitem, torch.flatten, torch.reshape,
     torch.permute, torch.transpose, torch.squeeze, torch.unsqueeze, torch.chunk, torch.split,
     "view", "reshape", "flatten", "permute", "transpose", "squeeze", "unsqueeze", "chunk", "split",
     "narrow", "unbind"}
)  # fmt: skip

HANDLERS: dict[Op, Callable[..., Any]] = {
    QuantConv2d: weighted.convolution,
    QuantLinear: weighted.linear,
    **dict.fromkeys((nn.Conv2d, nn.Linear), weighted.refuse_float),
    **dict.fromkeys(RELU, joining.rectify),
    **dict.fromkeys(RELU6, joining.rectify6),
    **dict.fromkeys((nn.Identity, nn.Dropout, nn.Dropout2d, F.dropout, F.dropout2d, torch.clone,
                     "contiguous", "clone", "detach"), joining.unchanged),
    **dict.fromkeys((operator.add, operator.iadd, torch.add, "add", "add_"), joining.add),
    **dict.fromkeys((torch.cat, torch.concat), joining.concat),
    F.pad: joining.pad,
    nn.ZeroPad2d: joining.zero_pad,
    nn.MaxPool2d: pooling.max_pool_module,
    F.max_pool2d: pooling.max_pool,
    nn.AvgPool2d: pooling.average_pool_module,
    F.avg_pool2d: pooling.average_pool,
    nn.AdaptiveAvgPool2d: pooling.adaptive_pool_module,
    F.adaptive_avg_pool2d: pooling.adaptive_pool,
    **dict.fromkeys((torch.mean, "mean"), pooling.mean),
    "size": size,
    getattr: attribute,
}  # fmt: skip
