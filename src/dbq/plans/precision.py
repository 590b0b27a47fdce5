"""Precision: how many bits, or how many branches, a tensor is made of.

Written as the paper writes it: `32b` float, `8b` fixed point, `2T` two ternary branches,
`3B` three binary branches.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from dbq.errors import PlanError

Kind = Literal["float", "fixed", "ternary", "binary"]

MIN_BITS, MAX_BITS = 2, 8
MAX_BRANCHES = 3  # 3^3 = 27 levels; a fourth branch (81) is finer than 6-bit fixed point


@dataclass(frozen=True)
class Precision:
    """The precision of a weight or activation tensor.

    `size` counts bits for float and fixed point, branches for ternary and binary.

    >>> Precision.parse("2T")
    Precision(kind='ternary', size=2)
    >>> str(Precision.parse("float")), str(Precision("fixed", 8))
    ('32b', '8b')
    """

    kind: Kind
    size: int

    def __post_init__(self) -> None:
        low, high = (1, MAX_BRANCHES) if self.is_branched else (MIN_BITS, MAX_BITS)
        if self.is_float:
            low = high = 32
        if not low <= self.size <= high:
            size = f"{self.size} {'branches' if self.is_branched else 'bits'}"
            raise PlanError(f"{self.kind} precision of {size}: expected {low} to {high}")

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_branched(self) -> bool:
        return self.kind in ("ternary", "binary")

    @property
    def largest_code(self) -> int:
        """The largest integer code of symmetric fixed point.

        >>> Precision("fixed", 8).largest_code
        127
        """
        assert self.kind == "fixed"
        return int(2 ** (self.size - 1) - 1)

    @classmethod
    def parse(cls, text: str | int) -> Precision:
        """`float` (or `32b`), `2b` to `8b` (or a bare number), `1T` to `3T`, `1B` to `3B`."""
        if text in ("float", "32b", "32", 32):
            return FLOAT
        match = re.fullmatch(r"(\d+)([bBTt]?)", str(text))
        if not match:
            raise PlanError(
                f"precision {text!r} is not understood: "
                "expected float, 2b..8b (fixed point), 1T..3T (ternary) or 1B..3B (binary branches)"
            )
        kinds: dict[str, Kind] = {"T": "ternary", "t": "ternary", "B": "binary"}
        return cls(kinds.get(match[2], "fixed"), int(match[1]))

    def __str__(self) -> str:
        letter = {"ternary": "T", "binary": "B"}.get(self.kind, "b")
        return f"{self.size}{letter}"


FLOAT = Precision("float", 32)
