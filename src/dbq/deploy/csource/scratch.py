"""How each operation is computed in C, and what memory that needs while it runs."""

from __future__ import annotations

from math import prod
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from dbq.deploy.csource.exact.lines import LARGEST_SUM
from dbq.deploy.operations.convolution import Convolution
from dbq.deploy.operations.operation import Operation
from dbq.deploy.program import Program

Method = Literal["ternary", "depthwise", "dense"]

PER_BYTE, ROW_BYTES, ROWS, TILE = 5, 24, 36, 12  # of kernels/ternary.c
AT_ONCE = 4  # output pixels, of kernels/dense.c
SUMS = 1024  # bytes of sums that a depthwise layer keeps, if a row is not more
MOST_BYTES = 52  # of ternary weights of a kernel whose tables are made at once: 260 channels, 45 kB
MOST_TAPS = 128  # weights of one sign whose products with 255 fit a lane of 16 bits


MOST_TILE, PAIRS_RAM = 192, 10240  # pixels, and bytes of their pairs, that are made at once


class Windows(NamedTuple):
    """How the bytes of a kernel's ternary weights are divided: `number` times `bytes`, the last less."""

    number: int
    bytes: int


def method_of(op: Convolution) -> Method:
    """Depthwise and fixed-point layers by multiplication, all others by tables."""
    if op.codes.shape[2] == 1 and op.groups > 1:
        return "depthwise"
    return "ternary" if op.bits is None else "dense"


def fused_image(program: Program) -> bool:
    """Whether the first layers read the image itself, so that its codes need no memory."""
    image = program.operations[0].writes[0]
    readers = [op for op in program.operations if image in op.reads]
    return all(
        isinstance(op, Convolution) and method_of(op) == "dense" and op.groups == 1
        for op in readers
    )


def windows_of(op: Convolution, most: int = MOST_BYTES) -> Windows:
    """As few windows of at most `most` bytes as are safe; with several, sums are added up in 32 bits.

    A window is safe if the sums of one sign cannot leave a lane: at most 128 weights of 1 or of -1.
    """
    flat, bytes = slots(op), bytes_of(prod(op.codes.shape[2:]))
    for count in range(-(-bytes // most), bytes + 1):
        each = -(-bytes // count)
        each += each % 2 if count > 1 else 0  # ten taps are two bytes
        if _largest_side(flat, each * PER_BYTE) <= MOST_TAPS:
            return Windows(-(-bytes // each), each)
    raise AssertionError("a window of two bytes is safe")


def bytes_of(taps: int) -> int:
    """Bytes of the ternary weights of a kernel; ten taps are two, see slots.

    >>> [bytes_of(taps) for taps in (1, 4, 5, 8, 10, 64, 128)]
    [1, 1, 2, 2, 2, 13, 26]
    """
    tens, rest = divmod(taps, 2 * PER_BYTE)
    return 2 * tens + (0 if rest == 0 else 1 if rest < PER_BYTE else 2)


def slots(op: Convolution) -> npt.NDArray[np.int8]:
    """Weights [branches, kernels, bytes * 5] in the order of kernels/ternary.c, -1 behind the last.

    Ten taps are two bytes of four neighbours each, with the last two taps as their fifth trits.
    """
    branches, kernels = op.codes.shape[:2]
    flat = op.codes.reshape(branches, kernels, -1)
    tens = -(-flat.shape[2] // (2 * PER_BYTE))
    padded = np.full((branches, kernels, tens, 2 * PER_BYTE), -1, np.int8)
    padded.reshape(branches, kernels, -1)[:, :, : flat.shape[2]] = flat
    ordered = padded[:, :, :, (0, 1, 2, 3, 8, 4, 5, 6, 7, 9)].reshape(branches, kernels, -1)
    return ordered[:, :, : bytes_of(flat.shape[2]) * PER_BYTE]


def _largest_side(flat: npt.NDArray[np.int8], taps: int) -> int:
    """The most weights of one sign that a kernel of a branch has among `taps` neighbours of a window."""
    parts = [flat[:, :, i : i + taps] for i in range(0, flat.shape[2], taps)]
    return max(int((part == sign).sum(axis=2).max()) for part in parts for sign in (-1, 1))


def is_joined(program: Program, op: Convolution) -> bool:
    """Whether two branches are multiplied as one integer, where a processor multiplies pairs."""
    return (
        op.factors is not None and len(op.codes) == 2 and op.groups == 1
        and program.tensors[op.input].type == "u8"
        and float(op.largest_sums([255]).max()) < LARGEST_SUM
    )  # fmt: skip


def one_byte(program: Program, op: Convolution) -> bool:
    """Whether codes of 8 bits are all that it makes, once: no place for sums is planned then."""
    return len(op.results) == 1 and program.tensors[op.writes[0]].type == "u8"


def pairs_tile(program: Program, op: Convolution, most: int) -> int:
    """Pixels whose pairs are made at once: as many as fit PAIRS_RAM, and tables of `most` bytes."""
    output, taps = program.tensors[op.writes[0]].shape, prod(op.codes.shape[2:])
    room = min(PAIRS_RAM, most * ROWS * ROW_BYTES) // (4 * -(-taps // 2))
    pixels = min(output.height * output.width, room, MOST_TILE)
    return max(TILE, -(-pixels // TILE) * TILE if pixels < room else room // TILE * TILE)


def scratch_bytes(program: Program, op: Operation, most: int = MOST_BYTES) -> dict[str, int]:
    """Bytes of the arena that `op` needs while it runs, by name."""
    if not isinstance(op, Convolution):
        return {}
    output, taps = program.tensors[op.writes[0]].shape, prod(op.codes.shape[2:])
    match method_of(op):
        case "ternary":
            windows, kernels = windows_of(op, most), output.channels // op.groups
            kept = kernels if windows.number > 1 else 1
            tables = windows.bytes * ROWS * ROW_BYTES
            sums = max(kept * op.sum_count * TILE * 4, 8 * kernels)  # or the lines of all kernels
            if is_joined(program, op):
                tile, pairs = pairs_tile(program, op, most), -(-taps // 2)
                weights = 8 * PER_BYTE * -(-bytes_of(taps) // 2)
                tables = max(tables, 4 * tile * pairs + weights)
                sums = max(sums, 0 if one_byte(program, op) else 8 * tile)
            return {"tables": tables, "sums": sums}
        case "depthwise":
            rows, columns = padded_size(program, op)
            sums = op.sum_count * rows_at_once(program, op) * output.width
            return {"padded": rows * columns + 3, "sums_at": 4 * (sums + 1)}  # two are made at once
        case "dense":
            words = -(-taps // 4) * AT_ONCE
            return {"patch": 4 * words, "pairs": 8 * words, "sums_at": 4 * op.sum_count * AT_ONCE}


def rows_at_once(program: Program, op: Convolution) -> int:
    """Output rows of a depthwise layer whose sums fit SUMS bytes, at least one."""
    _, height, width = program.tensors[op.writes[0]].shape
    return min(max(1, SUMS // (4 * op.sum_count * width)), height)


def padded_size(program: Program, op: Convolution) -> tuple[int, int]:
    """Rows and columns that windows see: from the padding at the top left to the last one's end."""
    output = program.tensors[op.writes[0]].shape
    down, across = op.window.reach(output)
    return down + op.window.padding[0], across + op.window.padding[1]
