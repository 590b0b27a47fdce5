"""Whole-number weights in the fewest bits that hold them, and the nodes that make plain tensors of them.

Runtimes fold these nodes when they load a file: Cast and Mul of constants cost nothing later.
DequantizeLinear would say the same in one node, but onnxruntime runs it for every image.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dbq.deploy.onnx.graph import Bits, Graph

FLOAT, INT8, INT32 = 1, 3, 6  # types of tensors, as ONNX numbers them

Codes = npt.NDArray[np.int8]


def fewest_bits(codes: Codes, least: Bits) -> Bits:
    """The width of the narrowest integers that hold `codes`, of at least `least` bits.

    >>> [fewest_bits(np.array(codes, np.int8), 2) for codes in ([-1, 1], [-7, 0], [8])]
    [2, 4, 8]
    """
    narrow: tuple[Bits, ...] = (2, 4)
    for bits in narrow:
        if bits >= least and -(2 ** (bits - 1)) <= codes.min() and codes.max() < 2 ** (bits - 1):
            return bits
    return 8


def divided(codes: Codes) -> tuple[Codes, npt.NDArray[np.int32]]:
    """Codes [K, ...] without the divisor that those of a kernel have in common; the divisors [K, 1 ..].

    >>> quotients, divisors = divided(np.array([[60, 0, -45], [0, 0, 0]], np.int8))
    >>> quotients.tolist(), divisors.tolist()
    ([[4, 0, -3], [0, 0, 0]], [[15], [1]])
    """
    axes = tuple(range(1, codes.ndim))
    divisors = np.gcd.reduce(codes.astype(np.int32), axis=axes, keepdims=True)
    divisors = np.maximum(divisors, 1)
    return (codes // divisors).astype(np.int8), divisors


def as_floats(graph: Graph, codes: Codes, least: Bits) -> str:
    """The codes as float32."""
    return graph.add("Cast", graph.packed(codes, fewest_bits(codes, least)), to=FLOAT)


def as_bytes(graph: Graph, codes: Codes, least: Bits) -> str:
    """The codes as int8."""
    quotients, divisors = divided(codes)
    bits = fewest_bits(quotients, least)
    if bits == 8:
        return graph.packed(codes, 8)
    x = graph.packed(quotients, bits)
    if (divisors == 1).all():
        return graph.add("Cast", x, to=INT8)
    x = graph.add("Cast", x, to=INT32)  # onnxruntime does not multiply bytes
    x = graph.add("Mul", x, graph.constant(divisors))
    return graph.add("Cast", x, to=INT8)
