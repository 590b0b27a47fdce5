"""Where activations live: one arena, planned as the engine plans its own (native/engine/arena.cpp)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dbq.deploy.csource.scratch import MOST_BYTES, fused_image, scratch_bytes
from dbq.deploy.operations.add import Add
from dbq.deploy.operations.convolution import Convolution
from dbq.deploy.operations.operation import Operation
from dbq.deploy.program import Program

WORD = 4
SLACK = 8  # the last tile of a plane may read, not use, as many bytes behind it
ELEMENT_BYTES = {"u8": 1, "i8": 1, "i32": 4}
IMAGE = -1  # the block of the image, which the caller may fill in place


@dataclass
class Block:
    """Bytes that are needed from step `first` to step `last`, both included."""

    bytes: int
    first: int
    last: int
    at: int = 0


def plan_blocks(blocks: list[Block]) -> int:
    """Set the places so that blocks needed at the same time do not overlap; returns the size.

    Largest first, each into the smallest gap that holds it.

    >>> plan_blocks([Block(8, 0, 1), Block(16, 1, 2), Block(8, 2, 3)])
    24
    """
    placed: list[Block] = []
    total = 0
    for block in sorted(blocks, key=lambda block: -block.bytes):
        best, best_size, end = 0, None, 0
        for other in placed:
            if block.first > other.last or other.first > block.last:
                continue
            gap = other.at - end
            if gap >= block.bytes and (best_size is None or gap < best_size):
                best, best_size = end, gap
            end = max(end, other.at + other.bytes)
        block.at = best if best_size is not None else end
        total = max(total, block.at + block.bytes)
        placed = sorted([*placed, block], key=lambda block: block.at)
    return total


def plane(pixels: int) -> int:
    """Elements from one channel to the next."""
    return -(-pixels // WORD) * WORD


@dataclass
class Memory:
    """Bytes of the arena at which tensors (and IMAGE) and the scratch of each step begin."""

    bytes: int = 0
    most: int = MOST_BYTES  # of weights whose tables are made at once
    tensors: dict[int, int] = field(default_factory=dict)
    scratch: dict[tuple[int, str], int] = field(default_factory=dict)
    live: list[int] = field(default_factory=list)  # at each step, bytes that are in use


def plan_memory(program: Program, most: int = MOST_BYTES) -> Memory:
    """One step for each operation. Depthwise layers and sums write over an input no longer read."""
    blocks: dict[int, Block] = {}
    owner: dict[int, int] = {}  # of a tensor: the one whose block it lives in
    last = _last_reads(program)
    fused, (channels, height, width) = fused_image(program), program.input_shape
    end_of_image = last[program.operations[0].writes[0]] if fused else 0
    blocks[IMAGE] = Block(_words(channels * height * width), 0, end_of_image)
    scratch: dict[tuple[int, str], Block] = {}
    for step, op in enumerate(program.operations):
        for name, size in scratch_bytes(program, op, most).items():
            scratch[step, name] = Block(_words(size), step, step)
        for tensor in op.writes:
            found = program.tensors[tensor]
            if found.type == "f32" or (step == 0 and fused):
                continue
            shape = found.shape
            size = plane(shape.height * shape.width) * shape.channels * ELEMENT_BYTES[found.type]
            if (input := overwritten(program, op, step, last, tensor)) is not None:
                owner[tensor] = owner[input]
                kept = blocks[owner[tensor]]
                kept.last = max(kept.last, last.get(tensor, step))
            else:
                owner[tensor] = tensor
                blocks[tensor] = Block(_words(size), step, last.get(tensor, step))
    every = [*blocks.values(), *scratch.values()]
    memory = Memory(_words(plan_blocks(every) + SLACK), most)
    memory.tensors = {tensor: blocks[root].at for tensor, root in owner.items()}
    memory.tensors[IMAGE] = blocks[IMAGE].at
    memory.scratch = {key: block.at for key, block in scratch.items()}
    for step in range(len(program.operations)):
        used = (block.bytes for block in every if block.first <= step <= block.last)
        memory.live.append(sum(used))
    return memory


def plan_within(program: Program, ram: int | None) -> Memory:
    """The fastest plan whose arena fits `ram` bytes, or the smallest one: with fewer tables at once."""
    best = plan_memory(program)
    most = best.most
    while ram is not None and best.bytes > ram and most > 1:
        most = -(-most // 2)
        best = min(best, plan_memory(program, most), key=lambda memory: memory.bytes)
    return best


def overwritten(
    program: Program, op: Operation, step: int, last: Mapping[int, int], tensor: int
) -> int | None:
    """The input of `op` where it may write `tensor`, if there is one that is not read again."""
    image = program.operations[0].writes[0]
    free = [i for i in op.reads if last[i] == step and not (i == image and fused_image(program))]
    if isinstance(op, Add):
        # Both codes of a place are read before any is written. One result only: the first of its kind.
        output = program.tensors[tensor]
        same = [i for i in op.writes if program.tensors[i].type == output.type]
        fits = [i for i in free if program.tensors[i].type == output.type]
        return fits[0] if fits and same[0] == tensor else None
    return op.reads[0] if free and _is_depthwise_over_input(program, op) else None


def _is_depthwise_over_input(program: Program, op: Operation) -> bool:
    """Whether a layer takes a copy of each plane before it writes one that is not larger."""
    if not isinstance(op, Convolution) or op.codes.shape[2] != 1 or len(op.results) != 1:
        return False
    input, output = program.tensors[op.input], program.tensors[op.writes[0]]
    same_planes = op.groups == input.shape.channels == output.shape.channels
    shrinks = plane(output.shape.height * output.shape.width) <= plane(
        input.shape.height * input.shape.width
    )
    return same_planes and output.type in ("u8", "i8") and shrinks


def _last_reads(program: Program) -> dict[int, int]:
    return {tensor: step for step, op in enumerate(program.operations) for tensor in op.reads}


def _words(size: int) -> int:
    return -(-size // WORD) * WORD
