"""The specification of a Program: every operation's `run` in turn, plain integer arithmetic in numpy.

Slow and short on purpose. The native engine gives the same bits.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dbq.deploy.operations.lookup import Lookup
from dbq.deploy.operations.operation import Operation
from dbq.deploy.program import Program
from dbq.deploy.tensors import Array
from dbq.errors import EngineError

Images = npt.NDArray[np.uint8]


def run(program: Program, images: Images) -> npt.NDArray[np.float32]:
    """Logits [N, K] of uint8 images [N, H, W, C]; [N, K, H, W] if the output has pixels."""
    codes = np.asarray(trace(program, images)[program.output], np.float32)
    return codes[:, :, 0, 0] if codes.shape[2:] == (1, 1) else codes


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
