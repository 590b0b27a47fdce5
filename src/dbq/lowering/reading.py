"""The graph of a network to values: torch.fx runs it, with our values in place of tensors.

The operations that can be lowered are those in the tables of handlers/; for any other, the error names
the node and the operation. Sizes and other plain numbers of the graph are computed as they are.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any

from torch import fx, nn

from dbq.errors import LoweringError
from dbq.lowering.handlers import elementwise, moving, pooling, weighted
from dbq.lowering.operands import Operand, Site
from dbq.lowering.values import Image, Value
from dbq.model.graph import Op, trace
from dbq.quantizers.contract import BatchNorm


class GraphReader(fx.Interpreter):
    """Runs the graph of a model in eval(); `run` gives the value of its output."""

    def __init__(self, model: nn.Module, image: Image) -> None:
        super().__init__(fx.GraphModule(model, trace(model)))
        self.extra_traceback = False  # our errors are one line
        self.modules = dict(model.named_modules())
        self.image = image
        self.site = Site()

    def read(self) -> Value:
        output = self.run(self.image)
        if not _is_operand(output):
            raise LoweringError(
                f"the network gives a {type(output).__name__}, expected one tensor of logits"
            )
        return self.site.resolve(output)

    def run_node(self, n: fx.Node) -> Any:
        self.site.name = n.name
        result = super().run_node(n)
        if _is_operand(result) and result.node is None:
            result.node = n.name
        return result

    def call_module(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        module = self.modules[target]
        self.site.name = target
        return self._apply(type(module), module, args, kwargs)

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        picks_a_part = target is operator.getitem and isinstance(args[0], tuple)
        if picks_a_part or not _has_operand((*args, *kwargs.values())):
            return super().call_function(target, args, kwargs)
        return self._apply(target, target, args, kwargs)

    def call_method(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not _has_operand(args):
            return super().call_method(target, args, kwargs)
        return self._apply(target, target, args, kwargs)

    def get_attr(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        raise LoweringError(
            f"{self.site.name} ({target}) is a tensor of the network itself: lowering knows weights of "
            "Conv2d, Linear and batch norm only"
        )

    def _apply(self, op: Op, what: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
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
        module = (what,) if isinstance(what, nn.Module) else ()
        return handler(self.site, *module, *args, **kwargs)


def _is_operand(x: Any) -> bool:
    return isinstance(x, Operand)


def _has_operand(args: Iterable[Any]) -> bool:
    lists = (arg if isinstance(arg, list | tuple) else [arg] for arg in args)
    return any(_is_operand(item) for items in lists for item in items)


HANDLERS: dict[Op, Callable[..., Any]] = {
    **weighted.HANDLERS,
    **elementwise.HANDLERS,
    **pooling.HANDLERS,
    **moving.HANDLERS,
}
