"""The specification of a Program: every operation's `run` in turn, plain integer arithmetic in numpy.

Slow and short on purpose. The native engine gives the same bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dbq.deploy.operations.lookup import Lookup
from dbq.deploy.operations.operation import Operation
from dbq.deploy.program import Program
from dbq.deploy.tensors import Array
from dbq.errors import EngineError

Images = npt.NDArray[np.uint8]
Outputs = Any  # an array, or a dict of arrays where there are several outputs


def run(program: Program, images: Images) -> Outputs:
    """Logits [N, K] of uint8 images [N, H, W, C]; [N, K, H, W] if the output has pixels.

    Of a program with several outputs: all of them, by name.
    """
    tensors = trace(program, images)
    found = {name: _without_pixels(tensors[tensor]) for tensor, name in program.outputs}
    return found if len(found) > 1 else next(iter(found.values()))


def _without_pixels(floats: Array) -> npt.NDArray[np.float32]:
    """[N, K] if there is only one pixel."""
    return floats[:, :, 0, 0] if floats.shape[2:] == (1, 1) else floats


def trace(program: Program, images: Images) -> list[Array]:
    """Every tensor of a run, [N, C, H, W] in the type of the tensor."""
    shape = program.input_shape
    expected = (shape.height, shape.width, shape.channels)
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[1:] != expected:
        raise EngineError(
            f"images are {images.dtype} {list(images.shape)}; {program.name} expects "
            f"uint8 [N, *{list(expected)}]"
        )
    values: dict[int, Array] = {}
    for op in program.operations:
        values |= execute(program, op, [values[i] for i in op.reads], images)
    return [values[i] for i in range(len(program.tensors))]


def execute(
    program: Program, op: Operation, inputs: list[Array], images: Images
) -> dict[int, Array]:
    """What `op` writes, by index of the tensor, given what it reads."""
    return op.run(program.tensors, [images] if isinstance(op, Lookup) else inputs)
