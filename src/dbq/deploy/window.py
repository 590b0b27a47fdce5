"""Window: which pixels an output pixel reads. Sizes, limits and the pixels themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from dbq.deploy.tensors import Array, Shape, require

MAX_WINDOW = 255  # the limit of docs/format.md for kernels, strides and dilations

Pair = tuple[int, int]  # rows, columns


class Window(NamedTuple):
    """Bottom and right padding are not part of it: they are what the output's size leaves."""

    kernel: Pair
    stride: Pair = (1, 1)
    padding: Pair = (0, 0)  # top, left
    dilation: Pair = (1, 1)

    @property
    def extent(self) -> Pair:
        """Rows and columns from the first to the last pixel of a window."""
        rows, columns = ((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilation, strict=True))
        return rows, columns

    def output(self, input: Shape, after: Pair, ceil: bool = False) -> Pair:
        """How many windows fit, with `after` rows and columns of padding at the bottom and right.

        `ceil` adds a last window that does not fit whole, unless it would begin in the padding.

        >>> Window((3, 3), (2, 2)).output(Shape(1, 8, 7), (0, 0))
        (3, 3)
        >>> Window((3, 3), (2, 2)).output(Shape(1, 8, 7), (0, 0), ceil=True)
        (4, 3)
        """
        sizes = []
        for axis, (size, extent) in enumerate(zip(input[1:], self.extent, strict=True)):
            stride, before = self.stride[axis], self.padding[axis]
            room = before + size + after[axis] - extent
            count = room // stride + 1
            if ceil and room % stride and count * stride < size + before:
                count += 1
            sizes.append(count)
        return sizes[0], sizes[1]

    def reach(self, output: Shape) -> Pair:
        """Where the last window ends, counted from the first pixel of the input."""
        axes = zip(output[1:], self.stride, self.extent, self.padding, strict=True)
        rows, columns = ((n - 1) * stride + extent - before for n, stride, extent, before in axes)
        return rows, columns

    def check(self, input: Shape, output: Shape) -> None:
        """Sizes within the limits, and at least one pixel of the image in every window."""
        sizes = (*self.kernel, *self.stride, *self.dilation)
        require(all(1 <= size <= MAX_WINDOW for size in sizes), f"window {self}")
        for padding, extent in zip(self.padding, self.extent, strict=True):
            require(0 <= padding < extent, f"padding {padding}, window {extent}")
        starts = (r - e for r, e in zip(self.reach(output), self.extent, strict=True))
        inside = all(start < size for start, size in zip(starts, input[1:], strict=True))
        require(inside, "a window beyond the image")

    def check_pool(self, input: Shape, output: Shape) -> None:
        """Pools keep the channels, and the file format has no field for their dilation."""
        require(self.dilation == (1, 1), f"a pool with dilation {self.dilation}")
        require(output.channels == input.channels, "a pool that changes the channels")
        self.check(input, output)

    def pixels(self, x: Array, output: Shape, outside: float) -> Iterator[Array]:
        """What each position of the kernel sees, row by row: [N, C, H, W] of the output.

        Around the image [N, C, H, W] there is `outside`, as far as windows reach.
        """
        axes = zip(self.padding, self.reach(output), x.shape[2:], strict=True)
        pads = [(before, max(0, reach - size)) for before, reach, size in axes]
        padded = np.pad(x, [(0, 0), (0, 0), *pads], constant_values=outside)
        (down, across), (_, height, width) = self.stride, output
        for row in range(0, self.extent[0], self.dilation[0]):
            for column in range(0, self.extent[1], self.dilation[1]):
                rows = slice(row, row + (height - 1) * down + 1, down)
                columns = slice(column, column + (width - 1) * across + 1, across)
                yield padded[:, :, rows, columns]
