"""Channels that cannot change an output: found by ranges, removed without a bit of difference."""

from __future__ import annotations

import numpy as np

from dbq.deploy.csource.exact.constants import removed_channels, without_constants
from dbq.deploy.csource.files import expected_outputs, images_of
from dbq.deploy.operations.convolution import Convolution
from dbq.deploy.operations.lookup import Lookup
from dbq.deploy.program import Output, Program
from dbq.deploy.tensors import Floats, Result, Shape, Tensor
from dbq.deploy.window import Window
from tests.native.handmade import random_program


def chain(offsets: Floats, seed: int = 0) -> Program:
    """Image, pointwise to six channels, depthwise, pointwise to three floats; `offsets` of the first."""
    rng = np.random.default_rng(seed)
    shape = Shape(6, 5, 5)

    def result(tensor: int, channels: int, scale: float) -> Result:
        scales = np.full((channels, 1), scale, np.float32)
        return Result(tensor, 0, 255, scales, np.zeros(channels, np.float32))

    first = Result(1, 0, 255, np.full((6, 1), 0.2, np.float32), offsets)
    floats = Result(3, 0, 0, np.ones((3, 1), np.float32), np.zeros(3, np.float32))
    pointwise, depthwise, last = Window((1, 1)), Window((3, 3), padding=(1, 1)), Window((1, 1))
    operations = (
        Lookup("image", 0, np.tile(np.arange(256, dtype=np.uint8), (4, 1))),
        Convolution("a", (first,), 0, pointwise, 1, _trits(rng, 1, 6, 4, 1, 1), None),
        Convolution("b", (result(2, 6, 0.3),), 1, depthwise, 6, _trits(rng, 1, 6, 1, 3, 3), 8),
        Convolution("c", (floats,), 2, last, 1, _trits(rng, 1, 3, 6, 1, 1), None),
    )
    types = (("u8", Shape(4, 5, 5)), ("u8", shape), ("u8", shape), ("f32", Shape(3, 5, 5)))
    tensors = tuple(Tensor(type, shape, 1.0) for type, shape in types)  # type: ignore[arg-type]
    return Program("chain", tensors, operations, (Output(3),))


def _trits(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return np.where(rng.random(shape) < 0.5, 1, -1).astype(np.int8)


def test_dead_channels_go_with_what_reads_them() -> None:
    """Sums reach at most 4 * 255 * 0.2 = 204, so an offset of -300 leaves nothing above 0."""
    offsets = np.array([0, -300, 3, -300, -300, 1], np.float32)
    program = chain(offsets)
    cut = without_constants(program)
    assert [tensor.shape.channels for tensor in cut.tensors] == [4, 3, 3, 3]
    assert removed_channels(program, cut) == 6
    images = images_of(program, 4)
    np.testing.assert_array_equal(expected_outputs(cut, images), expected_outputs(program, images))


def test_a_constant_that_is_not_zero_stays() -> None:
    """Always 255, but a window at the edge sees padding beside it: an output depends on the place."""
    offsets = np.array([0, 900, 3, 0, 0, 1], np.float32)
    program = chain(offsets)
    cut = without_constants(program)
    assert [tensor.shape.channels for tensor in cut.tensors] == [4, 6, 6, 3]
    images = images_of(program, 4)
    np.testing.assert_array_equal(expected_outputs(cut, images), expected_outputs(program, images))


def test_nothing_is_left_of_a_dead_network_but_one_channel() -> None:
    program = chain(np.full(6, -300, np.float32))
    cut = without_constants(program)
    assert [tensor.shape.channels for tensor in cut.tensors][1:3] == [1, 1]
    images = images_of(program, 2)
    np.testing.assert_array_equal(expected_outputs(cut, images), expected_outputs(program, images))


def test_any_program_keeps_its_bits() -> None:
    for seed in range(30):
        program = random_program(seed, length=8, outputs=seed % 3 + 1)
        cut = without_constants(program)
        images = images_of(program, 2)
        expected = expected_outputs(program, images)
        np.testing.assert_array_equal(expected_outputs(cut, images), expected)
