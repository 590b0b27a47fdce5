"""compacted: a program whose scales are short numbers, four bytes a channel instead of eight.

Scales keep 11 significant bits and offsets are multiples of 1/32: codes move by less than a tenth. The
result is a Program like any other: saved to a file, the reference and the engine run it, and the C code
has its bits. What changes is the network, a little, and that is measured, not assumed.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np

from dbq.deploy.csource.exact.lines import (
    COMPACT,
    FRACTION,
    LARGEST_SUM,
    Longs,
    Thresholds,
    fit_form,
)
from dbq.deploy.csource.exact.ranges import Ranges, sum_ranges
from dbq.deploy.operations.operation import Operation, Summing
from dbq.deploy.program import Program
from dbq.deploy.tensors import Doubles, Result

# A scale is a multiple of 2^-18, so that float32 hardly ever rounds; then a scale and an offset near the
# right ones are looked for whose sums never meet a half, where floats round to even.
M_BITS = COMPACT.m_bits - COMPACT.m_zeros  # 11
MOST_SHIFT = 18 - FRACTION
TRIES = sorted(product((0, 1, -1, 2, -2), repeat=2), key=lambda t: abs(t[0]) + abs(t[1]))


def compacted(program: Program) -> Program:
    """The same operations with short scales wherever codes of 8 bits are made of one integer sum."""
    ranges = Ranges(program)
    operations = tuple(_operation(program, op, ranges) for op in program.operations)
    return replace(program, operations=operations, facts={**program.facts, "scales": "compact"})


def _operation(program: Program, op: Operation, ranges: Ranges) -> Operation:
    if not isinstance(op, Summing):
        return op
    exact = sum_ranges(op, program.tensors, ranges)
    if exact is None or max(-exact[0].min(), exact[1].max()) >= LARGEST_SUM:
        return op
    results = tuple(
        _result(result, *exact) if program.tensors[result.tensor].type in ("u8", "i8") else result
        for result in op.results
    )
    return replace(op, results=results)


def _result(result: Result, least: Longs, most: Longs) -> Result:
    """Short scales and offsets: for each channel, the first of TRIES that leaves no sum to list."""
    slopes, wanted = result.scales[:, 0].astype(np.float64), result.offsets.astype(np.float64)
    scales, offsets = result.scales[:, 0].copy(), result.offsets.copy()
    waiting = np.arange(len(scales))
    for more_m, more_b in TRIES:
        m, unit = _short(slopes[waiting])
        scales[waiting] = np.copysign((m + np.where(m > 2, more_m, 0)) * unit, slopes[waiting])
        steps = np.rint((wanted[waiting] + 0.5) * 2**COMPACT.fraction) + more_b
        offsets[waiting] = steps / 2**COMPACT.fraction - 0.5
        part = Result(result.tensor, result.low, result.high,
                      scales[waiting, None], offsets[waiting])  # fmt: skip
        lines = fit_form(Thresholds(part, least[waiting], most[waiting]), COMPACT)
        waiting = waiting[[i for i in range(len(waiting)) if lines is None or lines.odd[i]]]
        if not len(waiting):
            break
    return replace(result, scales=scales[:, None], offsets=offsets)


def _short(slopes: Doubles) -> tuple[Doubles, Doubles]:
    """m and the unit of the nearest numbers of 11 significant bits.

    >>> m, unit = _short(np.array([1 / 3]))
    >>> float(m[0]), float(unit[0]) * 2**12
    (1365.0, 1.0)
    """
    size = np.maximum(np.abs(slopes), 2.0**-30)
    shifts = np.minimum(M_BITS - 1 - np.floor(np.log2(size)) - FRACTION, MOST_SHIFT)
    unit = 2.0 ** -(shifts + FRACTION)
    m = np.minimum(np.rint(np.abs(slopes) / unit), 2**M_BITS - 2)
    return m, unit
