"""Tables, numbers and counts as plain text, the same in a terminal, a file and a test."""

from __future__ import annotations

import io
import math

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table

WIDTH = 100
PREFIXES = "kMGTP"


def as_text(*parts: RenderableType, width: int = WIDTH) -> str:
    """Tables and lines as they would be printed, without colour and trailing blanks.

    >>> as_text("one line")
    'one line'
    """
    stream = io.StringIO()
    console = Console(file=stream, width=width, color_system=None, markup=False, highlight=False)
    for part in parts:
        console.print(part)
    lines = stream.getvalue().replace("\u00a0", " ").splitlines()  # rich trims plain blanks
    return "\n".join(line.rstrip() for line in lines).strip("\n")


def plain_table(columns: list[str], left: int = 1) -> Table:
    """An empty table; the first `left` columns hold text, the others numbers."""
    table = Table(box=box.SIMPLE_HEAD)
    table.padding = (0, 1, 0, 0)  # two blanks between columns
    for i, column in enumerate(columns):
        table.add_column(
            column,
            justify="left" if i < left else "right",
            overflow="fold",
            no_wrap=i >= left,
        )
    return table


def short(number: float) -> str:
    """Four digits and a unit prefix.

    >>> short(568_740_352), short(9), short(1_500.0)
    ('568.7M', '9', '1.500k')
    """
    if abs(number) < 1000:
        return f"{number:.4g}"
    power = min(int(math.log10(abs(number) * 1.00005)) // 3, len(PREFIXES))
    scaled = number / 1000**power
    digits = 3 - (abs(scaled) >= 9.9995) - (abs(scaled) >= 99.995)
    return f"{scaled:.{digits}f}{PREFIXES[power - 1]}"


def counted(number: int, what: str) -> str:
    """A number of things.

    >>> counted(1, "epoch"), counted(12, "image")
    ('1 epoch', '12 images')
    """
    return f"{number} {what}{'s' if number != 1 else ''}"
