"""The weight quantizers that can be compared: their precisions, and where they come from."""

from __future__ import annotations

from dbq.errors import PlanError
from dbq.plans.precision import MAX_BITS, Precision
from dbq.quantizers.table import QUANTIZERS

ABOUT = {
    "dbq": "DBQ: ternary branches with learned scales and thresholds, by a sigmoid staircase",
    "fixed": "Fixed point: symmetric, the scale follows the largest weight of a kernel",
    "iao": "IAO: integer arithmetic only, batch norm folded in (Jacob et al. 2018)",
    "lqnet": "LQ-Nets: levels from a learned binary basis (Zhang et al. 2018)",
    "abcnet": "ABC-Net: a sum of scaled binary bases (Lin et al. 2017)",
    "bnn": "BNN: the sign of the weight (Courbariaux et al. 2016)",
    "xnor": "XNOR-Net: the sign times the mean modulus of the kernel (Rastegari et al. 2016)",
    "twn": "TWN: ternary weight networks (Li et al. 2016)",
    "ttq": "TTQ: ternary with two trained levels (Zhu et al. 2016)",
    "lsq": "LSQ: learned step size (Esser et al. 2020)",
    "qnet": "Quantization Networks: a sum of sigmoids that becomes steps (Yang et al. 2019)",
    "rq": "Relaxed Quantization: noise puts a weight on a grid point at random (Louizos et al. 2019)",
    "mixed": "Mixed precision: learned step and range, so learned bits (Uhlich et al. 2020)",
    "uniq": "UNIQ: levels of equal probability, noise while training (Baskin et al. 2018)",
}


def precisions(method: str) -> list[str]:
    """The precisions a method exists in.

    >>> precisions("dbq")
    ['1T', '2T', '3T']
    """
    kind, make = QUANTIZERS[method]
    found = []
    for size in range(1, MAX_BITS + 1):
        try:
            precision = Precision(kind, size)
            make(precision, 1)
        except PlanError:
            continue
        found.append(str(precision))
    return found
