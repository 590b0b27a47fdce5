"""The exact form: every tensor holds codes as float32, every branch is a convolution of its own.

Sums of products are exact while they stay below 2^24; what follows are the steps of
`dbq.deploy.program.Result` one by one: a runtime that computes float32 as written gives the
program's codes and logits bit for bit.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dbq.deploy.onnx.graph import Graph
from dbq.deploy.onnx.moving import Summing, Values, gathered, walk, windowed
from dbq.deploy.program import Add, AveragePool, Convolution, Lookup, Program, Requantize, Result
from dbq.deploy.reference import DTYPES


def emit(program: Program, graph: Graph, image: str) -> Values:
    """Every tensor of the program in `graph`; `image` is the name of the input."""
    return walk(
        program,
        graph,
        lookup=lambda values, op: _lookup(values, op, image),
        zero=lambda tensor: np.zeros((), np.float32),
        summing=_summing,
    )


def _lookup(values: Values, op: Lookup, image: str) -> str:
    dtype = DTYPES[values.program.tensors[op.tensor].type]
    planes = values.graph.add("Transpose", image, label=op.name, perm=(0, 3, 1, 2))
    return gathered(values, op, planes, op.table.view(dtype).astype(np.float32))


def _summing(values: Values, op: Summing) -> None:
    sums = _sums(values, op)
    for result in op.results:
        values.names[result.tensor] = _requantized(values, sums, result, op.name)


def _sums(values: Values, op: Summing) -> list[str]:
    match op:
        case Add() | Requantize():
            return [values.names[i] for i in op.reads]
        case Convolution():
            weights = [branch.astype(np.float32) for branch in op.codes]
            return _convolved(values, op, weights, op.groups)
        case AveragePool():
            if op.window.kernel == values.shape(op.input)[1:]:
                return [_total(values, op)]
            # The sum over the window, as a convolution: AveragePool would divide.
            channels = values.shape(op.input).channels
            ones = np.ones((channels, 1, *op.window.kernel), np.float32)
            return _convolved(values, op, [ones], channels)


def _convolved(
    values: Values,
    op: Convolution | AveragePool,
    weights: list[npt.NDArray[np.float32]],
    groups: int,
) -> list[str]:
    graph, output = values.graph, values.shape(op.writes[0])
    x, attributes = windowed(values, op.input, op.window, output, op.name)
    return [
        graph.add("Conv", x, graph.constant(weight, f"{op.name}/codes"), label=op.name,
                  group=groups, **attributes)
        for weight in weights
    ]  # fmt: skip


def _total(values: Values, op: AveragePool) -> str:
    """The sum of an image of wide codes, which float64 holds exactly, rounded once."""
    graph = values.graph
    x = graph.add("Cast", values.names[op.input], label=op.name, to=11)  # float64
    x = graph.add("ReduceSum", x, graph.constant([2, 3]), label=op.name)
    return graph.add("Cast", x, label=op.name, to=1)  # float32


def _requantized(values: Values, sums: list[str], result: Result, label: str) -> str:
    """The formula of `Result`."""
    graph = values.graph
    total = ""
    for j, s in enumerate(sums):
        scale = graph.constant(result.scales[:, j][:, None, None], f"{label}/scale")
        product = graph.add("Mul", s, scale, label=label)
        total = product if j == 0 else graph.add("Add", total, product, label=label)
    offset = graph.constant(result.offsets[:, None, None], f"{label}/offset")
    total = graph.add("Add", total, offset, label=label)
    if values.program.tensors[result.tensor].type == "f32":
        return total
    limits = [graph.constant(float(limit)) for limit in (result.low, result.high)]
    return graph.add("Round", graph.add("Clip", total, *limits, label=label), label=label)
