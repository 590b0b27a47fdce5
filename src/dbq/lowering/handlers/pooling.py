"""Max and average pooling."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from torch import nn

from dbq.deploy.operations.average_pool import AveragePool
from dbq.deploy.tensors import Shape
from dbq.deploy.window import Window
from dbq.errors import LoweringError
from dbq.lowering.handlers.moving import largest_of
from dbq.lowering.site import Site
from dbq.lowering.values import Affine, Anything, Image, Moved, Reading, Sums, Value, bound_of


def max_pool_module(site: Site, module: nn.MaxPool2d, thing: Anything) -> Value:
    return max_pool(site, thing, module.kernel_size, module.stride, module.padding,
                    module.dilation, module.ceil_mode, module.return_indices)  # fmt: skip


def max_pool(
    site: Site, thing: Anything, kernel_size: Any, stride: Any = None, padding: Any = 0,
    dilation: Any = 1, ceil_mode: bool = False, return_indices: bool = False,
) -> Value:  # fmt: skip
    if pair(dilation) != (1, 1) or return_indices:
        raise LoweringError(f"{site.name}: max pooling with dilation or indices cannot be lowered")
    value = site.settle(thing)
    window = Window(pair(kernel_size), pair(stride or kernel_size), pair(padding))
    shape = _pooled(value.shape, window, ceil_mode)
    return largest_of(value, window, shape, site.name, site.now())


def _pooled(shape: Shape, window: Window, ceil_mode: bool) -> Shape:
    sizes = []
    for axis in (0, 1):
        kernel, stride, padding = window.kernel[axis], window.stride[axis], window.padding[axis]
        room = shape[1 + axis] + 2 * padding - kernel
        size = (-(-room // stride) if ceil_mode else room // stride) + 1
        # torch leaves out a last window that begins in the padding
        sizes.append(size - 1 if (size - 1) * stride >= shape[1 + axis] + padding else size)
    return Shape(shape.channels, sizes[0], sizes[1])


def average_pool_module(site: Site, module: nn.AvgPool2d, thing: Anything) -> Affine:
    return average_pool(site, thing, module.kernel_size, module.stride, module.padding,
                        module.ceil_mode, module.count_include_pad, module.divisor_override)  # fmt: skip


def average_pool(
    site: Site, thing: Anything, kernel_size: Any, stride: Any = None, padding: Any = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None,
) -> Affine:  # fmt: skip
    window = Window(pair(kernel_size), pair(stride or kernel_size), pair(padding))
    if ceil_mode or (window.padding != (0, 0) and not count_include_pad):
        raise LoweringError(
            f"{site.name}: average pooling whose divisor changes at the border cannot be lowered; "
            "use ceil_mode=False and count_include_pad=True"
        )
    read = site.wide(thing)
    shape = _pooled(read.value.shape, window, ceil_mode)
    return _mean(site, read, window, shape, divisor_override or math.prod(window.kernel))


def _mean(site: Site, read: Reading, window: Window, shape: Shape, divisor: int) -> Affine:
    if isinstance(read.value, Image):
        raise LoweringError(f"{site.name} averages the image itself; do that before the network")
    name = site.name
    sums = Sums(name, site.now(), shape, [read],
                lambda results, reads: AveragePool(name, results, reads[0], window),
                addends=math.prod(window.kernel))  # fmt: skip
    scales = np.full((shape.channels, 1), 1.0 / divisor)
    bound = bound_of(read.value) * math.prod(window.kernel) / divisor
    return Affine(sums, scales, np.zeros(shape.channels), bound)


def adaptive_pool_module(site: Site, module: nn.AdaptiveAvgPool2d, thing: Anything) -> Affine:
    return adaptive_pool(site, thing, module.output_size)


def adaptive_pool(site: Site, thing: Anything, output_size: Any) -> Affine:
    read = site.wide(thing)
    channels, height, width = read.value.shape
    rows, columns = (
        want or have for want, have in zip(pair(output_size), (height, width), strict=True)
    )
    if height % rows or width % columns:
        raise LoweringError(
            f"{site.name} pools {height} x {width} to {rows} x {columns}: windows of unlike size"
        )
    window = Window((height // rows, width // columns), (height // rows, width // columns))
    return _mean(site, read, window, Shape(channels, rows, columns), math.prod(window.kernel))


def mean(site: Site, thing: Anything, dim: Any = None, keepdim: bool = False, **kwargs: Any) -> Any:
    if sorted(d % 4 for d in (dim if isinstance(dim, list | tuple) else [-1])) != [2, 3] or kwargs:
        raise LoweringError(f"{site.name}: mean over {dim}; expected height and width, (2, 3)")
    pooled = adaptive_pool(site, thing, 1)
    if keepdim:
        return pooled
    return Moved(pooled, np.arange(pooled.shape.channels)[None])


def pair(size: Any) -> tuple[int, int]:
    return (
        (int(size[0]), int(size[-1])) if isinstance(size, list | tuple) else (int(size), int(size))
    )
