"""Values to a Program: which values are read in which representations, then tensors and operations."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dbq.deploy.program import Output, Program
from dbq.deploy.tensors import CODE_RANGE, LARGEST_SUM, Grid, Tensor
from dbq.lowering.values import (
    BYTES,
    FLOAT,
    WIDE,
    Affine,
    Image,
    Reading,
    Step,
    Stored,
    Value,
    same,
)
from dbq.model.reading.recording import Recorded

# A value that passes through concatenations and is read on more grids than this is kept once, wide, and
# each reader makes its own codes of it.
MOST_COPIES = 2
SMALLEST_BOUND = 1e-6  # of a value that is always 0
LAST = 1e9  # operations that write outputs run behind all others


@dataclass
class Emitted:
    """A program, and for each of its tensors the tensor of the run that has its value, and the grid."""

    program: Program
    nodes: list[Recorded | None]
    grids: list[Grid]


@dataclass
class _Demand:
    """All that is read on the way to the output: a tensor for each, and the steps that write them.

    Tensors are numbered in the order they are first asked for. Selections of a value in `crowded` are
    read wide, and requantized to the grid that was asked for. If the image is `shared`, its bytes are
    looked up, and everything is read from them.
    """

    crowded: frozenset[Value] = frozenset()
    shared: bool = False
    tensors: dict[Reading, int] = field(default_factory=dict)
    steps: dict[Step, list[Reading]] = field(default_factory=dict)
    count: int = 0  # of tensors

    def request(self, reading: Reading) -> int:
        if reading in self.tensors:
            return self.tensors[reading]
        if (instead := self._instead(reading)) is not None:
            index = self.tensors[reading] = self.request(instead)
            return index
        index = self.tensors[reading] = self.count
        self.count += 1
        step = reading.value.step(reading.representation)
        is_new = step not in self.steps
        self.steps.setdefault(step, []).append(reading)
        for needed in step.reads if is_new else ():
            self.request(needed)
        return index

    def _instead(self, reading: Reading) -> Reading | None:
        """Another value that is the same and can be read in this representation, if that is better."""
        value, representation = reading
        if isinstance(value, Image):
            is_looked_up = representation == BYTES or not self.shared
            return None if is_looked_up else Reading(value.normalised, representation)
        is_selected = bool(value.inputs) and representation != WIDE
        if is_selected and not self.crowded.isdisjoint(_leaves(value)):
            return Reading(_copy(value), representation)
        return None


def _leaves(value: Value) -> set[Value]:
    """The values that a value only moves, in the end; itself if it computes."""
    return set().union(*map(_leaves, value.inputs)) if value.inputs else {value}


def _copy(value: Value) -> Affine:
    """`value` read wide and written as codes."""
    source = value.step(WIDE)
    return same(value, f"{source.name} (codes)", source.order + 0.5)


def emit(name: str, outputs: list[tuple[str, Value]], facts: dict[str, Any]) -> Emitted:
    """The program that computes `outputs`, by name.

    In two passes, because only at the end of one is it known on how many grids each value is read.
    """
    readings = _as_floats(outputs)
    first = _Demand()
    for reading in readings.values():
        first.request(reading)
    grids = Counter(value for value, r in first.tensors if isinstance(r, Grid))
    images = sum(isinstance(value, Image) for value, _ in first.tensors)
    many = (value for value, count in grids.items() if count > MOST_COPIES)
    crowded = frozenset(value for value in many if not isinstance(value, Image))
    demand = _Demand(crowded, shared=images > 1)
    made = [Output(demand.request(reading), name) for name, reading in readings.items()]
    return _assemble(name, demand, tuple(made), facts)


def _as_floats(outputs: list[tuple[str, Value]]) -> dict[str, Reading]:
    """How each output is read: as floats of the operation behind it, if that can write them."""
    readings: dict[str, Reading] = {}
    for place, (name, value) in enumerate(outputs):
        again = any(value is reading.value for reading in readings.values())
        if again or not (isinstance(value, Affine) and value.clamp.is_whole):
            value = same(value, f"output {name}".rstrip(), LAST + place)
        readings[name] = Reading(value, FLOAT)
    return readings


def _assemble(
    name: str, demand: _Demand, outputs: tuple[Output, ...], facts: dict[str, Any]
) -> Emitted:
    wide = _wide_grids(demand)

    def stored(reading: Reading) -> Stored:
        value, representation = reading
        grid = wide[value] if representation == WIDE else representation
        return Stored(value, grid, demand.tensors[reading])

    by_tensor = {index: stored(reading) for reading, index in demand.tensors.items()}
    keys = [by_tensor[index] for index in range(demand.count)]
    steps = sorted(demand.steps, key=lambda step: step.order)
    operations = [
        step.build([stored(r) for r in demand.steps[step]], [stored(r) for r in step.reads])
        for step in steps
    ]
    tensors = [
        Tensor(grid.type, value.shape, float(np.float32(grid.scale))) for value, grid, _ in keys
    ]
    program = Program(name, tuple(tensors), tuple(operations), outputs, facts)
    nodes = [None if key.grid == BYTES else key.value.node for key in keys]
    return Emitted(program, nodes, [key.grid for key in keys])


def _wide_grids(demand: _Demand) -> dict[Value, Grid]:
    """The grid of every value that is read wide. What is moved into one tensor shares one."""
    groups = _Groups()
    for value, representation in demand.tensors:
        if representation == WIDE:
            groups.find(value)
            for input in value.inputs:
                groups.join(value, input.wide().value)
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
