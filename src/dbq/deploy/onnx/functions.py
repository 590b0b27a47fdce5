"""Functions of ONNX that a curve of straight segments may stand for."""

from __future__ import annotations

from collections.abc import Callable
from math import erf, sqrt

import numpy as np

from dbq.deploy.onnx.graph import Graph
from dbq.deploy.tensors import Array, Doubles

SAMPLES = 5001  # of the bent part, and as many on both sides of it

Add = Callable[..., str]  # adds a node, given operator and inputs
Build = Callable[[Graph, Add, str], str]


def adder(graph: Graph, label: str) -> Add:
    """`graph.add` with that label."""

    def add(operator: str, *inputs: str, **attributes: float) -> str:
        return graph.add(operator, *inputs, label=label, **attributes)

    return add


def equal_function(
    values: Callable[[Array], Array], times_x: bool, low: float, high: float, reach: float,
    allowed: Callable[[Array], float],
) -> Build | None:  # fmt: skip
    """What builds the function g that `values` follows, or x * g, for |x| up to `reach`.

    `low` and `high` are where it bends. None if every known function is further off than `allowed`
    says, given what `values` gives.
    """
    sides = (np.linspace(low, -reach, SAMPLES), np.linspace(high, reach, SAMPLES))
    points = np.concatenate([np.linspace(low, high, SAMPLES), *sides])
    points = points[np.abs(points) <= reach].astype(np.float32)
    found = values(points).astype(np.float64)
    x, limit = points.astype(np.float64), allowed(found)
    for function, build in FUNCTIONS:
        expected = x * function(x) if times_x else function(x)
        if np.abs(found - expected).max(initial=0) <= limit:
            return build
    return None


def _sigmoid(x: Doubles) -> Doubles:
    return 0.5 + 0.5 * np.tanh(x / 2)


def _normal(x: Doubles) -> Doubles:
    """The distribution function of the normal distribution, the g of GELU."""
    return np.array([0.5 + 0.5 * erf(number / sqrt(2)) for number in x.tolist()])


def _tanh_softplus(x: Doubles) -> Doubles:
    """The g of Mish."""
    tanh: Doubles = np.tanh(np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0))
    return tanh


def _build_normal(graph: Graph, add: Add, x: str) -> str:
    half = graph.constant(0.5)
    scaled = add("Erf", add("Mul", x, graph.constant(sqrt(0.5))))
    return add("Add", add("Mul", scaled, half), half)


FUNCTIONS: tuple[tuple[Callable[[Doubles], Doubles], Build], ...] = (
    (_sigmoid, lambda _, add, x: add("Sigmoid", x)),
    (np.tanh, lambda _, add, x: add("Tanh", x)),
    (_normal, _build_normal),
    (_tanh_softplus, lambda _, add, x: add("Tanh", add("Softplus", x))),
)
