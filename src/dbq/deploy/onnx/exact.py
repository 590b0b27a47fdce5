"""The exact form: every tensor holds codes as float32, every branch is a convolution of its own.

Sums of products are exact while they stay below 2^24; what follows are the steps of
`dbq.deploy.tensors.Result` one by one: a runtime that computes float32 as written gives the program's
codes and logits bit for bit. Runtimes like to fold scales into weights, whose sums are then rounded: a
`Round` between them, which changes no whole number, is in their way.
"""

from __future__ import annotations

from dbq.deploy.onnx.values import Values
from dbq.deploy.tensors import Result


def requantized(values: Values, sums: list[str], result: Result, label: str) -> str:
    """The formula of `Result`."""
    graph = values.graph
    total = ""
    for j, s in enumerate(sums):
        scale = graph.constant(result.scales[:, j][:, None, None])
        product = graph.add("Mul", s, scale)
        total = product if j == 0 else graph.add("Add", total, product)
    offset = graph.constant(result.offsets[:, None, None])
    if values.tensors[result.tensor].type == "f32" and not result.clamps_floats:
        return graph.add("Add", total, offset, label=label)
    total = graph.add("Add", total, offset)
    limits = [graph.constant(float(limit)) for limit in (result.low, result.high)]
    if values.tensors[result.tensor].type == "f32":
        return graph.add("Clip", total, *limits, label=label)
    return graph.add("Round", graph.add("Clip", total, *limits), label=label)
