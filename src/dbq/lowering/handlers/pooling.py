"""Max and average pooling."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from dbq.deploy.operations.average_pool import AveragePool, MeanPool
from dbq.deploy.tensors import Shape
from dbq.deploy.window import Pair, Window
from dbq.lowering.operands import Moved, Operand, Site
from dbq.lowering.values import Affine, Reading, Selection, Sums, largest_of


def max_pool(
    site: Site, operand: Operand, kernel_size: Any, stride: Any = None, padding: Any = 0,
    dilation: Any = 1, ceil_mode: bool = False, return_indices: bool = False,
) -> Selection:  # fmt: skip
    if pair(dilation) != (1, 1) or return_indices:
        site.refuse("max pooling with dilation or indices cannot be lowered")
    value = site.resolve(operand)
    window = Window(pair(kernel_size), pair(stride or kernel_size), pair(padding))
    size = window.output(value.shape, window.padding, ceil_mode)
    return largest_of(value, window, size, site.name, site.now())


def average_pool(
    site: Site, operand: Operand, kernel_size: Any, stride: Any = None, padding: Any = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None,
) -> Affine:  # fmt: skip
    read = site.wide(operand)
    window = Window(pair(kernel_size), pair(stride or kernel_size), pair(padding))
    size = window.output(read.value.shape, window.padding, ceil_mode)
    is_cut = size != window.output(read.value.shape, window.padding)
    is_padded = window.padding != (0, 0)
    if divisor_override is None and (is_cut or (is_padded and not count_include_pad)):
        if is_padded and count_include_pad:
            site.refuse(
                "average pooling with ceil_mode, padding and count_include_pad cannot be lowered where "
                "a window is cut off: use count_include_pad=False"
            )
        return _pooled(site, read, partial(MeanPool, window=window), window, size, 1.0)
    divisor = divisor_override or math.prod(window.kernel)
    return _pooled(site, read, partial(AveragePool, window=window), window, size, 1.0 / divisor)


def _pooled(
    site: Site, read: Reading, make: Any, window: Window, size: Pair, scale: float
) -> Affine:
    """Sums over windows, times `scale`; a mean pool divides by itself, by what is inside the image."""
    taps, shape = math.prod(window.kernel), Shape(read.value.shape.channels, *size)
    sums = Sums(site.name, site.now(), shape, [read], make, addends=taps)
    bound = read.value.bound * max(1.0, taps * scale if make.func is AveragePool else 1.0)
    return Affine(sums, np.full((shape.channels, 1), scale), np.zeros(shape.channels), bound)


def adaptive_pool(site: Site, operand: Operand, output_size: Any) -> Affine:
    read = site.wide(operand)
    window, size = _even_windows(site, read.value.shape, output_size)
    scale = 1.0 / math.prod(window.kernel)
    return _pooled(site, read, partial(AveragePool, window=window), window, size, scale)


def adaptive_max_pool(
    site: Site, operand: Operand, output_size: Any, return_indices: bool = False
) -> Selection:
    if return_indices:
        site.refuse("max pooling with indices cannot be lowered")
    value = site.resolve(operand)
    window, size = _even_windows(site, value.shape, output_size)
    return largest_of(value, window, size, site.name, site.now())


def _even_windows(site: Site, shape: Shape, output_size: Any) -> tuple[Window, Pair]:
    wanted = output_size if isinstance(output_size, list | tuple) else (output_size, output_size)
    rows, columns = wanted[0] or shape.height, wanted[-1] or shape.width
    if shape.height % rows or shape.width % columns:
        site.refuse(
            f"pools {shape.height} x {shape.width} to {rows} x {columns}, by windows of different "
            "sizes: choose an image size at which they divide"
        )
    kernel = shape.height // rows, shape.width // columns
    return Window(kernel, kernel), (rows, columns)


def mean(
    site: Site, operand: Operand, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Any:
    if isinstance(operand, Moved) and operand.index.ndim == 3 and dim in (-1, 2, [-1], [2]):
        base = operand.base  # pixels in one row: the mean over all of them
        flat = np.arange(math.prod(base.shape)).reshape(base.shape.channels, -1)
        is_whole = np.array_equal(operand.index[0], flat)
        operand, dim = (base, (2, 3)) if is_whole else (operand, dim)
    dims = sorted(d % 4 for d in (dim if isinstance(dim, list | tuple) else [-1]))
    if dims != [2, 3]:
        site.refuse(f"mean over {dim}; expected height and width, (2, 3)")
    pooled = adaptive_pool(site, operand, 1)
    if keepdim:
        return pooled
    channels = pooled.shape.channels
    return Moved(pooled, np.arange(site.images * channels).reshape(site.images, channels))


def pair(size: Any) -> Pair:
    rows, columns = (size[0], size[-1]) if isinstance(size, list | tuple) else (size, size)
    return int(rows), int(columns)


HANDLERS: dict[str, Any] = {
    "max_pool2d": max_pool,
    "avg_pool2d": average_pool,
    "adaptive_avg_pool2d": adaptive_pool,
    "adaptive_max_pool2d": adaptive_max_pool,
    "mean": mean,
}
