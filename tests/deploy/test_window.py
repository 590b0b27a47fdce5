"""Windows: sizes against torch, pixels against plain loops."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from dbq.deploy.tensors import Shape
from dbq.deploy.window import Window

SIZES = list(itertools.product((5, 8, 13), (1, 2, 3, 4), (1, 2, 3, 5)))  # image, kernel, stride


@pytest.mark.parametrize("ceil", [False, True])
def test_pools_have_as_many_pixels_as_in_torch(ceil: bool) -> None:
    for size, kernel, stride in SIZES:
        for padding in range(kernel // 2 + 1):
            window = Window((kernel, kernel), (stride, stride), (padding, padding))
            image = torch.zeros(1, 1, size, size + 3)
            pooled = F.max_pool2d(image, kernel, stride, padding, ceil_mode=ceil)
            found = window.output(Shape(1, size, size + 3), window.padding, ceil)
            assert found == tuple(pooled.shape[2:]), (window, size)


def test_convolutions_have_as_many_pixels_as_in_torch() -> None:
    for size, kernel, stride in SIZES:
        for before, after, dilation in itertools.product((0, 1), (0, 2), (1, 2)):
            window = Window((kernel, 1), (stride, 1), (before, 0), (dilation, 1))
            if window.extent[0] > size + before + after:
                continue
            image = F.pad(torch.zeros(1, 1, size, 2), (0, 0, before, after))
            weight = torch.zeros(1, 1, kernel, 1)
            expected = F.conv2d(image, weight, stride=(stride, 1), dilation=(dilation, 1))
            found = window.output(Shape(1, size, 2), (after, 0))
            assert found == tuple(expected.shape[2:]), (window, size)


def test_pixels_are_those_of_plain_loops() -> None:
    print("seed 2")
    rng = np.random.default_rng(2)
    for _ in range(50):
        kernel, stride, dilation = (tuple(rng.integers(1, 4, 2).tolist()) for _ in range(3))
        extent = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
        padding = (int(rng.integers(0, extent[0])), int(rng.integers(0, extent[1])))
        window = Window(kernel, stride, padding, dilation)
        image, output = rng.integers(0, 9, (2, 3, 6, 7)), Shape(3, 2, 3)
        taps = itertools.product(range(kernel[0]), range(kernel[1]))
        reach = [0, 0]
        for (row, column), pixels in zip(taps, window.pixels(image, output, -1), strict=True):
            for y, x in itertools.product(range(2), range(3)):
                place = (
                    y * stride[0] + row * dilation[0] - padding[0],
                    (x * stride[1] + column * dilation[1] - padding[1]),
                )
                reach = [max(r, p + 1) for r, p in zip(reach, place, strict=True)]
                inside = 0 <= place[0] < 6 and 0 <= place[1] < 7
                expected = image[:, :, place[0], place[1]] if inside else np.full((2, 3), -1)
                np.testing.assert_array_equal(pixels[:, :, y, x], expected)
        assert [max(r, 0) for r in window.reach(output)] == reach
