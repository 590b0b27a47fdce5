"""Values to a Program: which values are read in which representations, then tensors and operations."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dbq.deploy.operations.requantize import Requantize
from dbq.deploy.program import Output, Program
from dbq.deploy.tensors import CODE_RANGE, LARGEST_SUM, Grid, Tensor
from dbq.errors import LoweringError
from dbq.lowering.values import FLOAT, WIDE, Affine, Image, Reading, Step, Stored, Sums, Value

# A value that passes through concatenations and is read on more grids than this is kept once, wide, and
# each reader makes its own codes of it.
MOST_COPIES = 2
SMALLEST_BOUND = 1e-6  # of a value that is always 0


@dataclass
class Emitted:
    """A program, and for each of its tensors the node of the graph that has its value, and the grid."""

    program: Program
    nodes: list[str | None]
    grids: list[Grid]


@dataclass
class _Demand:
    """All that is read on the way to the output: a tensor for each, and the steps that write them.

    Tensors are numbered in the order they are first asked for. Selections of a value in `crowded` are
    read wide, and requantized to the grid that was asked for.
    """

    crowded: frozenset[Value] = frozenset()
    tensors: dict[Reading, int] = field(default_factory=dict)
    steps: dict[Step, list[Reading]] = field(default_factory=dict)
    count: int = 0  # of tensors

    def request(self, reading: Reading) -> int:
        if reading in self.tensors:
            return self.tensors[reading]
        if self._needs_copy(reading):
            copy = Reading(_copy(reading.value), reading.representation)
            index = self.tensors[reading] = self.request(copy)
            return index
        index = self.tensors[reading] = self.count
        self.count += 1
        step = reading.value.step(reading.representation)
        is_new = step not in self.steps
        self.steps.setdefault(step, []).append(reading)
        for needed in step.reads if is_new else ():
            self.request(needed)
        return index

    def _needs_copy(self, reading: Reading) -> bool:
        is_selected = bool(reading.value.inputs) and reading.representation != WIDE
        return is_selected and not self.crowded.isdisjoint(_leaves(reading.value))


def _leaves(value: Value) -> set[Value]:
    """The values that a value only moves, in the end; itself if it computes."""
    return set().union(*map(_leaves, value.inputs)) if value.inputs else {value}


def _copy(value: Value) -> Affine:
    """`value` read wide and written as codes."""
    source, wide = value.step(WIDE), Reading(value, WIDE)
    name = f"{source.name} (codes)"
    sums = Sums(name, source.order + 0.5, value.shape, [wide], Requantize)
    ones = np.ones((value.shape.channels, 1))
    return Affine(sums, ones, np.zeros(len(ones)), value.bound, node=value.node)


def emit(name: str, output: Value, facts: dict[str, Any]) -> Emitted:
    """The program that computes `output`.

    In two passes, because only at the end of one is it known on how many grids each value is read.
    """
    if not isinstance(output, Affine):
        raise LoweringError(
            f"the network ends with {output.node}, expected a linear layer or a convolution"
        )
    first = _Demand()
    first.request(Reading(output, FLOAT))
    grids = Counter(value for value, r in first.tensors if isinstance(r, Grid))
    many = (value for value, count in grids.items() if count > MOST_COPIES)
    demand = _Demand(frozenset(value for value in many if not isinstance(value, Image)))
    demand.request(Reading(output, FLOAT))
    return _assemble(name, demand, facts)


def _assemble(name: str, demand: _Demand, facts: dict[str, Any]) -> Emitted:
    wide = _wide_grids(demand)

    def stored(reading: Reading) -> Stored:
        value, representation = reading
        grid = wide[value] if representation == WIDE else representation
        return Stored(value, grid, demand.tensors[reading])

    by_tensor = {index: stored(reading) for reading, index in demand.tensors.items()}
    keys = [by_tensor[index] for index in range(demand.count)]
    images = sum(isinstance(key.value, Image) for key in keys)
    if images != 1:
        raise LoweringError(
            f"the image is read on {images} grids, expected one: its readers need one input quantizer"
        )
    steps = sorted(demand.steps, key=lambda step: step.order)
    operations = [
        step.build([stored(r) for r in demand.steps[step]], [stored(r) for r in step.reads])
        for step in steps
    ]
    tensors = [
        Tensor(grid.type, value.shape, float(np.float32(grid.scale))) for value, grid, _ in keys
    ]
    program = Program(name, tuple(tensors), tuple(operations), (Output(0),), facts)
    return Emitted(program, [key.value.node for key in keys], [key.grid for key in keys])


def _wide_grids(demand: _Demand) -> dict[Value, Grid]:
    """The grid of every value that is read wide. What is moved into one tensor shares one."""
    groups = _Groups()
    for value, representation in demand.tensors:
        if representation == WIDE:
            groups.find(value)
            for input in value.inputs:
                groups.join(value, input)
    bounds: dict[Value, float] = defaultdict(lambda: SMALLEST_BOUND)
    for value in groups.parents:
        if not value.inputs:
            root = groups.find(value)
            bounds[root] = max(bounds[root], value.bound)
    largest: dict[Value, int] = defaultdict(lambda: CODE_RANGE["i32"][1])
    for step in demand.steps:
        for value, representation in step.reads:
            if representation == WIDE:
                root = groups.find(value)
                # A power of two: float32 holds it, so no rounded limit lets a sum overflow.
                most = 2 ** ((LARGEST_SUM // step.addends).bit_length() - 1)
                largest[root] = min(largest[root], most)
    roots = {value: groups.find(value) for value in groups.parents}
    return {
        value: Grid("i32", bounds[root] / largest[root], -largest[root], largest[root])
        for value, root in roots.items()
    }


class _Groups:
    """Union-find."""

    def __init__(self) -> None:
        self.parents: dict[Value, Value] = {}

    def find(self, value: Value) -> Value:
        parent = self.parents.setdefault(value, value)
        if parent is not value:
            parent = self.parents[value] = self.find(parent)
        return parent

    def join(self, a: Value, b: Value) -> None:
        self.parents[self.find(a)] = self.find(b)
