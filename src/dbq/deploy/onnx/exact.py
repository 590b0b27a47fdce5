"""The exact form: every tensor holds codes as float32, every branch is a convolution of its own.

Sums of products are exact while they stay below 2^24; what follows are the steps of
`dbq.deploy.tensors.Result` one by one: a runtime that computes float32 as written gives the program's
codes and logits bit for bit.
"""

from __future__ import annotations

from dbq.deploy.onnx.values import Values
from dbq.deploy.tensors import Result


def requantized(values: Values, sums: list[str], result: Result, label: str) -> str:
    """The formula of `Result`."""
    graph = values.graph
    total = ""
    for j, s in enumerate(sums):
        scale = graph.constant(result.scales[:, j][:, None, None], f"{label}/scale")
        product = graph.add("Mul", s, scale, label=label)
        total = product if j == 0 else graph.add("Add", total, product, label=label)
    offset = graph.constant(result.offsets[:, None, None], f"{label}/offset")
    total = graph.add("Add", total, offset, label=label)
    is_float = values.tensors[result.tensor].type == "f32"
    if not is_float or result.clamps_floats:
        limits = [graph.constant(float(limit)) for limit in (result.low, result.high)]
        total = graph.add("Clip", total, *limits, label=label)
    return total if is_float else graph.add("Round", total, label=label)
