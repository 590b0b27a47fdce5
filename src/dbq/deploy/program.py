"""Program: a network as integer operations, complete and immutable.

A tensor is C planes of H x W codes; a code times the tensor's scale is the value it stands for. Every
operation makes exact integer sums and turns them into codes by one formula, which `Result` states. What
an operation computes is specified by its `run`; `fileformat.py` writes a Program to a file.

Nothing here needs torch. A Program is checked once, when it is made: what comes out of the constructor
can run.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from dbq.deploy.operations.convolution import Convolution
from dbq.deploy.operations.lookup import Lookup
from dbq.deploy.operations.operation import Operation
from dbq.deploy.tensors import Shape, Tensor, require
from dbq.errors import LoweringError

# The limits of docs/format.md.
MAX_TENSORS = 2**14  # and as many operations
MAX_NAME = 2**16 - 1  # bytes


class Output(NamedTuple):
    """A tensor of floats that the program returns, and what it is called."""

    tensor: int
    name: str = ""


@dataclass(frozen=True, eq=False)
class Program:
    """Operations in an order in which they can run: a uint8 NHWC image in, float tensors out.

    A plain classifier has one output, its logits, called "".

    `facts` tells people and tools about the program (plan, normalisation, agreement with the network it
    came from); no computation depends on it. `str` of a program is a table of its operations.
    """

    name: str
    tensors: tuple[Tensor, ...]
    operations: tuple[Operation, ...]
    outputs: tuple[Output, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "facts", MappingProxyType(dict(self.facts)))
        try:
            _check(self)
        except LoweringError as error:
            raise LoweringError(f"not a valid program: {error}") from None

    def with_facts(self, **facts: Any) -> Self:
        """The same program with more facts. Nothing that was checked changes, so nothing is again."""
        other = copy(self)
        object.__setattr__(other, "facts", MappingProxyType({**self.facts, **facts}))
        return other

    @property
    def output(self) -> int:
        """The tensor of the (first) output."""
        return self.outputs[0].tensor

    @property
    def input_shape(self) -> Shape:
        """Channels, height and width of the image."""
        return self.tensors[self.operations[0].writes[0]].shape

    @property
    def convolutions(self) -> tuple[Convolution, ...]:
        return tuple(op for op in self.operations if isinstance(op, Convolution))

    def macs(self, op: Operation) -> int:
        """Multiply-accumulates of one image, branches counted once."""
        return op.macs(self.tensors)

    def __str__(self) -> str:
        from dbq.deploy.inspection import describe  # which needs this module

        return str(describe(self))

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.input_shape))
        return f"Program({self.name!r}, image {shape}, {len(self.operations)} operations)"


def _check(program: Program) -> None:
    """Raise LoweringError unless `program` can run: the rules of docs/format.md."""
    tensors, operations = program.tensors, program.operations
    require(operations, "no operations")
    many = max(len(tensors), len(operations))
    require(many <= MAX_TENSORS, f"{many} tensors or operations, over {MAX_TENSORS}")
    require(isinstance(operations[0], Lookup), "the first operation is not a lookup of the image")
    names = [program.name, *(op.name for op in operations), *(out.name for out in program.outputs)]
    for name in names:
        fits = len(name.encode()) <= MAX_NAME and "\0" not in name
        require(fits, f"a name of more than {MAX_NAME} bytes, or with a zero byte: {name[:40]!r}")
    for tensor in tensors:
        tensor.check()
    largest: dict[int, int] = {}  # of each tensor written so far: no code is larger in size
    for number, op in enumerate(operations):
        try:
            _check_order(program, op, largest)
            op.check(tensors, largest)
        except LoweringError as error:
            where = f"operation {number} ({op.kind} {op.name})"
            raise LoweringError(f"{where}: {error}") from None
        largest.update(op.largest_codes(largest))
    require(len(largest) == len(tensors), "a tensor that no operation writes")
    _check_outputs(program)


def _check_outputs(program: Program) -> None:
    """At least one; names and tensors are all different, and the tensors f32."""
    require(program.outputs, "no outputs")
    for tensor, name in program.outputs:
        require(0 <= tensor < len(program.tensors), f"no output tensor {tensor}")
        is_float = program.tensors[tensor].type == "f32"
        require(is_float, f"the output {name!r}, tensor {tensor}, is not f32")
    for each in zip(*program.outputs, strict=True):
        require(len(set(each)) == len(each), "two outputs of one name, or of one tensor")


def _check_order(program: Program, op: Operation, written: Mapping[int, int]) -> None:
    """Tensors exist, are written once and before they are read; the image is looked up once."""
    for index in (*op.reads, *op.writes):
        require(0 <= index < len(program.tensors), f"no tensor {index}")
    for index in op.reads:
        require(index in written, f"reads tensor {index} before it is written")
        require(program.tensors[index].type != "f32", f"reads tensor {index}, which is f32")
    for index in op.writes:
        require(index not in written, f"writes tensor {index} a second time")
    require(len(set(op.writes)) == len(op.writes), "writes a tensor twice")
    require(op is program.operations[0] or not isinstance(op, Lookup), "a second lookup")
