"""Max and average pooling."""

from __future__ import annotations

import math
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
from dbq.lowering.values import Affine, Reading, Selection, Sums, largest_of
from dbq.model.graph import Op


def max_pool_module(site: Site, module: nn.MaxPool2d, operand: Operand) -> Selection:
    return max_pool(site, operand, module.kernel_size, module.stride, module.padding,
                    module.dilation, module.ceil_mode, module.return_indices)  # fmt: skip


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


def average_pool_module(site: Site, module: nn.AvgPool2d, operand: Operand) -> Affine:
    return average_pool(site, operand, module.kernel_size, module.stride, module.padding,
                        module.ceil_mode, module.count_include_pad, module.divisor_override)  # fmt: skip


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
    name, taps, shape = site.name, math.prod(window.kernel), Shape(read.value.shape.channels, *size)
    sums = Sums(name, site.now(), shape, [read],
                lambda results, reads: AveragePool(name, results, reads[0], window),
                addends=taps)  # fmt: skip
    scales = np.full((shape.channels, 1), 1.0 / divisor)
    return Affine(sums, scales, np.zeros(shape.channels), read.value.bound * taps / divisor)


def adaptive_pool_module(site: Site, module: nn.AdaptiveAvgPool2d, operand: Operand) -> Affine:
    return adaptive_pool(site, operand, module.output_size)


def adaptive_pool(site: Site, operand: Operand, output_size: Any) -> Affine:
    read = site.wide(operand)
    _, height, width = read.value.shape
    rows, columns = (
        want or have for want, have in zip(pair(output_size), (height, width), strict=True)
    )
    if height % rows or width % columns:
        raise LoweringError(
            f"{site.name} pools {height} x {width} to {rows} x {columns}: windows of different sizes"
        )
    window = Window((height // rows, width // columns), (height // rows, width // columns))
    return _mean(site, read, window, (rows, columns), math.prod(window.kernel))


def mean(
    site: Site, operand: Operand, dim: Any = None, keepdim: bool = False, **kwargs: Any
) -> Any:
    if sorted(d % 4 for d in (dim if isinstance(dim, list | tuple) else [-1])) != [2, 3] or kwargs:
        raise LoweringError(f"{site.name}: mean over {dim}; expected height and width, (2, 3)")
    pooled = adaptive_pool(site, operand, 1)
    if keepdim:
        return pooled
    return Moved(pooled, np.arange(pooled.shape.channels)[None])


def pair(size: Any) -> Pair:
    return (
        (int(size[0]), int(size[-1])) if isinstance(size, list | tuple) else (int(size), int(size))
    )


HANDLERS: dict[Op, Any] = {
    nn.MaxPool2d: max_pool_module,
    F.max_pool2d: max_pool,
    nn.AvgPool2d: average_pool_module,
    F.avg_pool2d: average_pool,
    nn.AdaptiveAvgPool2d: adaptive_pool_module,
    F.adaptive_avg_pool2d: adaptive_pool,
    **dict.fromkeys((torch.mean, "mean"), mean),
}
