"""Max and average pooling."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from dbq.deploy.operations.average_pool import AveragePool
from dbq.deploy.tensors import Shape
from dbq.deploy.window import Pair, Window
from dbq.errors import LoweringError
from dbq.lowering.operands import Moved, Operand, Site
from dbq.lowering.values import Affine, Reading, Selection, Sums, Value, largest_of
from dbq.model.graph import Op


def of_module(function: Callable[..., Value]) -> Callable[[Site, nn.Module, Operand], Value]:
    """The handler of a module whose attributes are what `function` takes behind site and operand."""
    names = list(inspect.signature(function).parameters)[2:]
    return lambda site, module, operand: function(
        site, operand, **{name: getattr(module, name) for name in names}
    )


def max_pool(
    site: Site, operand: Operand, kernel_size: Any, stride: Any = None, padding: Any = 0,
    dilation: Any = 1, ceil_mode: bool = False, return_indices: bool = False,
) -> Selection:  # fmt: skip
    if pair(dilation) != (1, 1) or return_indices:
        raise LoweringError(f"{site.name}: max pooling with dilation or indices cannot be lowered")
    value = site.resolve(operand)
    window = Window(pair(kernel_size), pair(stride or kernel_size), pair(padding))
    size = window.output(value.shape, window.padding, ceil_mode)
    return largest_of(value, window, size, site.name, site.now())


def average_pool(
    site: Site, operand: Operand, kernel_size: Any, stride: Any = None, padding: Any = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None,
) -> Affine:  # fmt: skip
    window = Window(pair(kernel_size), pair(stride or kernel_size), pair(padding))
    if ceil_mode or (window.padding != (0, 0) and not count_include_pad):
        raise LoweringError(
            f"{site.name}: average pooling whose divisor changes at the border cannot be lowered; "
            "use ceil_mode=False and count_include_pad=True"
        )
    read = site.wide(operand)
    size = window.output(read.value.shape, window.padding)
    return _mean(site, read, window, size, divisor_override or math.prod(window.kernel))


def _mean(site: Site, read: Reading, window: Window, size: Pair, divisor: int) -> Affine:
    taps, shape = math.prod(window.kernel), Shape(read.value.shape.channels, *size)
    make = partial(AveragePool, window=window)
    sums = Sums(site.name, site.now(), shape, [read], make, addends=taps)
    scales = np.full((shape.channels, 1), 1.0 / divisor)
    return Affine(sums, scales, np.zeros(shape.channels), read.value.bound * taps / divisor)


def adaptive_pool(site: Site, operand: Operand, output_size: Any) -> Affine:
    read = site.wide(operand)
    _, height, width = read.value.shape
    rows, columns = pair(output_size)
    rows, columns = rows or height, columns or width
    if height % rows or width % columns:
        raise LoweringError(
            f"{site.name} pools {height} x {width} to {rows} x {columns}: windows of different sizes"
        )
    kernel = height // rows, width // columns
    return _mean(site, read, Window(kernel, kernel), (rows, columns), math.prod(kernel))


def mean(
    site: Site, operand: Operand, dim: Any = None, keepdim: bool = False, **kwargs: Any
) -> Any:
    if sorted(d % 4 for d in (dim if isinstance(dim, list | tuple) else [-1])) != [2, 3] or kwargs:
        raise LoweringError(f"{site.name}: mean over {dim}; expected height and width, (2, 3)")
    pooled = adaptive_pool(site, operand, 1)
    return pooled if keepdim else Moved(pooled, np.arange(pooled.shape.channels)[None])


def pair(size: Any) -> Pair:
    rows, columns = (size[0], size[-1]) if isinstance(size, list | tuple) else (size, size)
    return int(rows), int(columns)


HANDLERS: dict[Op, Any] = {
    nn.MaxPool2d: of_module(max_pool),
    F.max_pool2d: max_pool,
    nn.AvgPool2d: of_module(average_pool),
    F.avg_pool2d: average_pool,
    nn.AdaptiveAvgPool2d: of_module(adaptive_pool),
    F.adaptive_avg_pool2d: adaptive_pool,
    **dict.fromkeys((torch.mean, "mean"), mean),
}
