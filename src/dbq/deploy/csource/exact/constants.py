"""without_constants: a program without the channels that cannot change an output.

Trained networks have channels that are dead: whatever the image, their codes are the same. Ranges of
sums prove it. Where a channel is always 0, the weights that read it may be 0; where a kernel's code is
always the same, so may its own. What nothing reads any more is removed, from the last layer to the
first. Outputs keep their bits: the result is a Program like any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from dbq.deploy.csource.exact.ranges import Ranges, sum_ranges
from dbq.deploy.operations.convolution import Convolution
from dbq.deploy.operations.operation import Operation
from dbq.deploy.program import Program
from dbq.deploy.tensors import Result, Shape, Tensor

Mask = npt.NDArray[np.bool_]


def without_constants(program: Program) -> Program:
    """The same outputs, bit for bit, of fewer channels."""
    zeroed = _with_zeros(program)
    needed = _needed(zeroed)
    if all(mask.all() for mask in needed.values()):
        return program
    tensors = tuple(_cut_tensor(tensor, needed[i]) for i, tensor in enumerate(zeroed.tensors))
    operations = tuple(_cut(op, needed) for op in zeroed.operations)
    return replace(zeroed, tensors=tensors, operations=operations)


def removed_channels(before: Program, after: Program) -> int:
    pairs = zip(before.tensors, after.tensors, strict=True)
    return sum(a.shape.channels - b.shape.channels for a, b in pairs)


def is_depthwise(op: Convolution) -> bool:
    return bool(op.codes.shape[2] == 1 and op.groups == op.codes.shape[1] > 1)


def _with_zeros(program: Program) -> Program:
    """Weights that make no difference become 0, in the order in which operations run."""
    ranges, zero = Ranges(program), dict[int, Mask]()
    operations = []
    for op in program.operations:
        if not isinstance(op, Convolution):
            operations.append(op)
            continue
        codes = op.codes.copy()
        if op.input in zero:
            dead = zero[op.input]
            if is_depthwise(op):
                codes[:, dead] = 0
            elif op.groups == 1:
                codes[:, :, dead] = 0
        op = replace(op, codes=codes)
        exact = sum_ranges(op, program.tensors, ranges)
        if exact is not None:
            ends = [[_codes(program, result, sums) for sums in exact] for result in op.results]
            codes[:, np.all([least == most for least, most in ends], axis=0)] = 0
            for result, (least, most) in zip(op.results, ends, strict=True):
                zero[result.tensor] = (least == 0) & (most == 0)
        operations.append(op)
    return replace(program, operations=tuple(operations))


def _codes(
    program: Program, result: Result, sums: npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    """Of one sum a channel; between two sums, codes are between theirs."""
    found = result.codes([sums[None, :, None, None]], program.tensors[result.tensor].type)
    return found[0, :, 0, 0].astype(np.float64)


def _needed(program: Program) -> dict[int, Mask]:
    """Of each tensor, the channels that something reads, or that cannot be removed."""
    needed = {i: np.zeros(t.shape.channels, bool) for i, t in enumerate(program.tensors)}
    for output in program.outputs:
        needed[output.tensor][:] = True
    for op in reversed(program.operations):
        kernels = np.any([needed[i] for i in op.writes], axis=0) if _is_cut(op) else None
        if kernels is None or not isinstance(op, Convolution):
            for tensor in (*op.reads, *op.writes):
                needed[tensor][:] = True
        elif is_depthwise(op):
            needed[op.input] |= kernels
        else:
            needed[op.input] |= op.codes[:, kernels].any(axis=(0, 1, 3, 4))
        for tensor in (*op.reads, *op.writes):
            needed[tensor][0] |= not needed[tensor].any()  # a tensor has one at least
    return _agreed(program, needed)


def _agreed(program: Program, needed: dict[int, Mask]) -> dict[int, Mask]:
    """A depthwise layer has its input's channels, and these are those of what makes them."""
    while True:
        before = sum(int(mask.sum()) for mask in needed.values())
        for op in program.operations:
            if isinstance(op, Convolution) and _is_cut(op) and is_depthwise(op):
                both = needed[op.input] | needed[op.writes[0]]
                needed[op.input], needed[op.writes[0]] = both.copy(), both.copy()
        if before == sum(int(mask.sum()) for mask in needed.values()):
            return needed


def _is_cut(op: Operation) -> bool:
    """Whether single channels can be taken out of what it reads and writes."""
    return (
        isinstance(op, Convolution)
        and len(op.results) == 1
        and (is_depthwise(op) or op.groups == 1)
    )


def _cut_tensor(tensor: Tensor, needed: Mask) -> Tensor:
    shape = tensor.shape
    return replace(tensor, shape=Shape(int(needed.sum()), shape.height, shape.width))


def _cut(op: Operation, needed: Mapping[int, Mask]) -> Operation:
    if not isinstance(op, Convolution) or not _is_cut(op):
        return op
    result, kernels = op.results[0], needed[op.writes[0]]
    codes = op.codes[:, kernels]
    codes = codes if is_depthwise(op) else codes[:, :, needed[op.input]]
    groups = int(kernels.sum()) if is_depthwise(op) else 1
    cut = replace(result, scales=result.scales[kernels], offsets=result.offsets[kernels])
    factors = None if op.factors is None else op.factors[kernels]
    return replace(
        op, results=(cut,), codes=np.ascontiguousarray(codes), groups=groups, factors=factors
    )
