"""A Program is checked when it is made: what it refuses, by class and by the operation's name."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dbq.deploy.operations.average_pool import AveragePool
from dbq.deploy.operations.lookup import Lookup
from dbq.deploy.operations.max_pool import MaxPool
from dbq.deploy.operations.operation import Operation
from dbq.deploy.program import Output, Program
from dbq.deploy.tensors import Result, Shape, Tensor
from dbq.deploy.window import Window
from dbq.errors import LoweringError


def result(tensor: int) -> Result:
    return Result(tensor, 0, 0, np.ones((1, 1), np.float32), np.zeros(1, np.float32))


def pooled(window: Window) -> dict[str, tuple[tuple[Tensor, ...], tuple[Operation, ...]]]:
    """Tensors and operations that pool a 5 x 5 image to 3 x 3 pixels, both ways."""
    image = Tensor("u8", Shape(1, 5, 5), 1.0)
    floats = Tensor("f32", Shape(1, 3, 3), 1.0)
    lookup = Lookup("image", 0, np.zeros((1, 256), np.uint8))
    average = AveragePool("shrink", (result(1),), 0, window)
    largest = MaxPool("shrink", 0, window, 1)
    last = AveragePool("last", (result(2),), 1, Window((1, 1)))
    return {
        "average": ((image, floats), (lookup, average)),
        "max": ((image, Tensor("u8", Shape(1, 3, 3), 1.0), floats), (lookup, largest, last)),
    }


@pytest.mark.parametrize("name", ["zero\0byte", "long" * 20_000])
def test_names_that_no_file_can_hold(name: str) -> None:
    tensors, operations = pooled(Window((3, 3)))["max"]
    with pytest.raises(LoweringError, match="name"):
        Program(name, tensors, operations, (Output(len(tensors) - 1),))
    renamed = (*operations[:-1], replace(operations[-1], name=name))
    with pytest.raises(LoweringError, match="name"):
        Program("pool", tensors, renamed, (Output(len(tensors) - 1),))


@pytest.mark.parametrize("kind", ["average", "max"])
def test_pools_have_no_dilation(kind: str) -> None:
    """A file has no field for it, so saving would drop it without a word."""
    tensors, operations = pooled(Window((3, 3)))[kind]
    assert Program("pool", tensors, operations, (Output(len(tensors) - 1),))
    tensors, operations = pooled(Window((2, 2), dilation=(2, 2)))[kind]
    with pytest.raises(LoweringError, match=r"shrink.*dilation"):
        Program("pool", tensors, operations, (Output(len(tensors) - 1),))
