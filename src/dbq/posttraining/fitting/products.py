"""The product inside a layer: what its convolution reads, whatever its class does around it.

Subclasses of Conv2d pad by rules of their own, and transposed convolutions spread their input. The
layer's own forward is run up to the product and says what that is given: no rule is written twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

PARAMETERS: dict[Callable[..., Any], tuple[str, ...]] = {
    F.linear: ("input", "weight", "bias"),
    F.conv2d: ("input", "weight", "bias", "stride", "padding", "dilation", "groups"),
    F.conv_transpose2d: ("input", "weight", "bias", "stride", "padding", "output_padding", "groups",
                         "dilation"),
}  # fmt: skip


class _Reached(BaseException):
    """Ends a forward at its product."""


class _Watch(TorchFunctionMode):
    """Writes down the product; with `stop`, it is not computed."""

    def __init__(self, stop: bool) -> None:
        super().__init__()
        self.stop = stop
        self.function: Callable[..., Any] | None = None
        self.given: dict[str, Any] = {}
        self.result: Tensor | None = None

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func not in PARAMETERS:
            return func(*args, **kwargs)
        self.function = func
        self.given = {**dict(zip(PARAMETERS[func], args, strict=False)), **kwargs}
        if self.stop:
            raise _Reached
        self.result = func(*args, **kwargs)
        return self.result


def is_its_product(layer: nn.Module, x: Tensor) -> bool:
    """Whether the layer's output is that of its product, with nothing done to it afterwards.

    >>> conv, x = nn.Conv2d(2, 2, 3), torch.randn(1, 2, 4, 4)
    >>> is_its_product(conv, x), is_its_product(nn.Sequential(conv, nn.ReLU()), x)
    (True, False)
    """
    with _Watch(stop=False) as watch:
        output = layer.forward(x)
    return watch.result is not None and torch.equal(watch.result, output)


@dataclass(frozen=True)
class Operand:
    """What a convolution reads: padded already, and spread if it is a transposed one."""

    x: Tensor
    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    groups: int
    flipped: bool  # a transposed convolution is one by the flipped kernel


def operand(layer: nn.Module, x: Tensor) -> Operand:
    """The operand of the convolution that `layer` makes of x."""
    watch = _Watch(stop=True)
    try:
        with watch:
            layer.forward(x)
    except _Reached:
        pass
    given = watch.given
    kernel = tuple(given["weight"].shape[2:])
    stride, dilation = _pair(given.get("stride", 1)), _pair(given.get("dilation", 1))
    padding, groups = given.get("padding", 0), int(given.get("groups", 1))
    x = given["input"]
    reach = tuple(d * (k - 1) for d, k in zip(dilation, kernel, strict=True))
    if watch.function is F.conv_transpose2d:
        low = tuple(r - p for r, p in zip(reach, _pair(padding), strict=True))
        high = tuple(a + b for a, b in zip(low, _pair(given.get("output_padding", 0)), strict=True))
        x = _padded(_spread(x, stride), low, high)
        return Operand(x, kernel, (1, 1), dilation, groups, flipped=True)
    if padding == "same":
        low = tuple(r // 2 for r in reach)
        high = tuple(r - a for r, a in zip(reach, low, strict=True))
    else:
        low = high = (0, 0) if padding == "valid" else _pair(padding)
    return Operand(_padded(x, low, high), kernel, stride, dilation, groups, flipped=False)


def _pair(value: Any) -> tuple[int, int]:
    if isinstance(value, int):
        return value, value
    first, *rest = value
    return int(first), int(rest[0] if rest else first)


def _padded(x: Tensor, low: tuple[int, ...], high: tuple[int, ...]) -> Tensor:
    sides = low[1], high[1], low[0], high[0]
    return F.pad(x, sides) if any(sides) else x


def _spread(x: Tensor, stride: tuple[int, int]) -> Tensor:
    """Zeros between the pixels."""
    if stride == (1, 1):
        return x
    height, width = ((n - 1) * s + 1 for n, s in zip(x.shape[2:], stride, strict=True))
    spread = x.new_zeros(*x.shape[:2], height, width)
    spread[:, :, :: stride[0], :: stride[1]] = x
    return spread
