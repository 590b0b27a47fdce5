"""Values to a Program: who reads what in which representation, then tensors and operations."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from dbq.deploy.operations.lookup import Lookup
from dbq.deploy.operations.operation import Operation
from dbq.deploy.operations.requantize import Requantize
from dbq.deploy.program import Program
from dbq.deploy.tensors import CODE_RANGE, LARGEST_SUM, Result, Tensor
from dbq.errors import LoweringError
from dbq.lowering.values import (
    FLOAT,
    WIDE,
    Affine,
    Codes,
    Image,
    Reading,
    Representation,
    Selection,
    Sums,
    Value,
    bound_of,
)

# Of a value that passes through concatenations and is read by more than this many quantizers, one wide
# copy is kept, from which each reader makes its own codes.
MOST_COPIES = 2
SMALLEST_BOUND = 1e-6  # of a value that is always 0

Table = npt.NDArray[np.uint8]


@dataclass
class Emitted:
    """A program, and for each of its tensors the node of the graph it is a representation of."""

    program: Program
    nodes: list[str | None]
    representations: list[Codes]


@dataclass
class _Plan:
    """Every (value, representation) that is read, in the order first asked for."""

    crowded: set[Affine]
    tensors: dict[tuple[Value, Representation], int] = field(default_factory=dict)
    sums: dict[Sums, list[tuple[Affine, Representation]]] = field(default_factory=dict)
    selections: list[tuple[Selection, Representation]] = field(default_factory=list)
    images: list[Representation] = field(default_factory=list)
    count: int = 0  # of tensors

    def request(self, value: Value, representation: Representation) -> int:
        key = (value, representation)
        if key in self.tensors:
            return self.tensors[key]
        if isinstance(value, Selection) and self._needs_copy(value, representation):
            index = self.tensors[key] = self.request(_copy(value), representation)
            return index
        index = self.tensors[key] = self.count
        self.count += 1
        if isinstance(value, Image):
            self.images.append(representation)
        elif isinstance(value, Selection):
            self.selections.append((value, representation))
            for input in value.inputs:
                self.request(input, representation)
        else:
            new = value.sums not in self.sums
            self.sums.setdefault(value.sums, []).append((value, representation))
            if new:
                for reading in value.sums.reads:
                    self.request(*reading)
        return index

    def _needs_copy(self, value: Selection, representation: Representation) -> bool:
        return isinstance(representation, Codes) and any(
            leaf in self.crowded for leaf in leaves(value)
        )


def leaves(value: Value) -> set[Value]:
    """The values a Selection selects from, in the end."""
    if isinstance(value, Selection):
        return set().union(*(leaves(input) for input in value.inputs))
    return {value}


def _copy(value: Selection) -> Affine:
    """`value` read wide and written as codes."""
    name = f"{value.name} (codes)"
    sums = Sums(name, value.order, value.shape, [Reading(value, WIDE)],
                lambda results, reads: Requantize(name, results, reads[0]))  # fmt: skip
    ones = np.ones((value.shape.channels, 1))
    return Affine(sums, ones, np.zeros(len(ones)), bound_of(value), node=value.node)


def emit(name: str, output: Value, table: Any, facts: dict[str, Any]) -> Emitted:
    """The program that computes `output`; `table(codes)` makes the lookup table of the image."""
    if not isinstance(output, Affine):
        raise LoweringError(
            f"the network ends with {output.node}, expected a linear layer or a convolution"
        )
    draft = _Plan(set())
    draft.request(output, FLOAT)
    readers: dict[Affine, int] = defaultdict(int)
    for value, representation in draft.tensors:
        if isinstance(value, Affine) and isinstance(representation, Codes):
            readers[value] += 1
    plan = _Plan({value for value, count in readers.items() if count > MOST_COPIES})
    plan.request(output, FLOAT)
    return _assemble(name, plan, table, facts)


def _assemble(name: str, plan: _Plan, table: Any, facts: dict[str, Any]) -> Emitted:
    wide = _wide_codes(plan)

    def codes(value: Value, representation: Representation) -> Codes:
        return wide[value] if representation == WIDE else representation

    by_index = {index: key for key, index in plan.tensors.items()}
    keys = [(value, codes(value, r)) for value, r in (by_index[i] for i in range(plan.count))]
    tensors = [Tensor(r.type, value.shape, float(np.float32(r.scale))) for value, r in keys]

    if len(plan.images) != 1:
        raise LoweringError(
            f"the image is read in {len(plan.images)} representations, expected one: "
            "its readers need one input quantizer"
        )
    image = next(i for i, (value, _) in enumerate(keys) if isinstance(value, Image))
    operations: list[tuple[float, Operation]] = [
        (-1, Lookup("image", image, table(keys[image][1])))
    ]
    for selection, representation in plan.selections:
        inputs = [plan.tensors[input, representation] for input in selection.inputs]
        output = plan.tensors[selection, representation]
        operations.append((selection.order, selection.build(inputs, output)))
    for sums, wanted in plan.sums.items():
        reads = [plan.tensors[reading] for reading in sums.reads]
        scales = [keys[index][1].scale for index in reads]
        results = tuple(
            _result(plan.tensors[value, r], value, codes(value, r), scales) for value, r in wanted
        )
        # A requantized selection comes right after the selection itself.
        after = 0.5 if isinstance(sums.reads[0].value, Selection) else 0.0
        operations.append((sums.order + after, sums.build(results, reads)))
    operations.sort(key=lambda pair: pair[0])
    program = Program(name, tuple(tensors), tuple(op for _, op in operations), 0, facts)
    return Emitted(program, [value.node for value, _ in keys], [r for _, r in keys])


def _result(tensor: int, value: Affine, codes: Codes, input_scales: list[float]) -> Result:
    """Everything that is linear folded into one scale for each sum and channel."""
    branches = value.scales.shape[1]
    inputs = np.array(input_scales if len(input_scales) == branches else input_scales * branches)
    scales = value.scales * inputs / codes.scale
    offsets = value.offsets / codes.scale
    low, high = codes.low, codes.high
    if codes.type != "f32":
        low = int(max(low, np.rint(max(value.low, -1e9) / codes.scale)))
        high = int(min(high, np.rint(min(value.high, 1e9) / codes.scale)))
    elif value.is_clamped:
        raise LoweringError(
            f"the network ends with an activation after {value.sums.name}, expected a linear output: "
            "leave it out of the network and apply it to the logits"
        )
    return Result(tensor, low, high, scales.astype(np.float32), offsets.astype(np.float32))


def _wide_codes(plan: _Plan) -> dict[Value, Codes]:
    """The codes of every value read wide. What a Selection joins must share one scale."""
    groups = _Groups()
    for value, representation in plan.tensors:
        if representation == WIDE:
            groups.find(value)
            if isinstance(value, Selection):
                for input in value.inputs:
                    groups.join(value, input)
    bounds: dict[Value, float] = defaultdict(lambda: SMALLEST_BOUND)
    for value in groups.parents:
        if isinstance(value, Affine):
            root = groups.find(value)
            bounds[root] = max(bounds[root], value.bound)
    largest: dict[Value, int] = defaultdict(lambda: CODE_RANGE["i32"][1])
    for sums in plan.sums:
        for value, representation in sums.reads:
            if representation == WIDE:
                root = groups.find(value)
                # A power of two: float32 holds it, so no rounded limit lets a sum overflow.
                most = 2 ** ((LARGEST_SUM // sums.addends).bit_length() - 1)
                largest[root] = min(largest[root], most)
    found = {}
    for value in groups.parents:
        root = groups.find(value)
        most = largest[root]
        found[value] = Codes("i32", bounds[root] / most, -most, most)
    return found


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
