"""Tables, numbers and counts as plain text, the same in a terminal, a file and a test.

Names come from files that others wrote: `printable` is for every one of them that is printed.
"""

from __future__ import annotations

import math
import os
import re
import shlex
import textwrap
from collections.abc import Iterable
from itertools import zip_longest

from dbq.errors import DbqError

WIDTH = 100
PREFIXES = "kMGTP"


class Table:
    """Rows of text under a ruled head; the first `left` columns hold text, the others numbers.

    >>> table = plain_table(["layer", "bits"])
    >>> table.add_row("conv", "8")
    >>> print(as_text(table))
     layer  bits
     ────────────
     conv      8
    """

    def __init__(self, columns: list[str], left: int = 1) -> None:
        self.left = left
        self.rows = [columns]  # the head is the first; an empty one is a blank line

    def add_row(self, *cells: str) -> None:
        self.rows.append([printable(cell) for cell in cells])

    def add_section(self) -> None:
        self.rows.append([])

    def lines(self, width: int) -> list[str]:
        """The table between two blank lines, its text folded so that it takes `width` if it can."""
        widths = self._widths(width)
        head, *body = (
            [self._fold(cell, i, widths) for i, cell in enumerate(row)] for row in self.rows
        )
        rule = " " + "─" * (sum(widths) + 2 * len(widths) - 1)
        lines = ["", *self._aligned(head, widths), rule]
        for row in body:
            lines += self._aligned(row, widths) if row else [""]
        return [*lines, ""]

    def _widths(self, width: int) -> list[int]:
        filled = [row for row in self.rows if row]
        widths = [max(map(len, cells)) for cells in zip_longest(*filled, fillvalue="")]
        while sum(widths) + 2 * len(widths) + 1 > width and max(widths[: self.left], default=1) > 1:
            widths[max(range(self.left), key=widths.__getitem__)] -= 1
        return widths

    def _fold(self, cell: str, column: int, widths: list[int]) -> list[str]:
        return _folded(cell, widths[column]) if column < self.left else [cell]

    def _aligned(self, row: list[list[str]], widths: list[int]) -> Iterable[str]:
        for cells in zip_longest(*row, fillvalue=""):
            placed = [
                cell.ljust(width) if i < self.left else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(cells, widths, strict=False))
            ]
            yield " " + "  ".join(placed)


plain_table = Table


def as_text(*parts: Table | str, width: int = WIDTH) -> str:
    """Tables and lines, folded to `width`, without trailing blanks.

    >>> as_text("one line")
    'one line'
    """
    lines: list[str] = []
    for part in parts:
        lines += part.lines(width) if isinstance(part, Table) else _folded(part, width)
    return "\n".join(line.rstrip() for line in lines).strip("\n")


def _folded(text: str, width: int) -> list[str]:
    lines = (
        textwrap.wrap(line, width, break_on_hyphens=False) if len(line) > width else [line]
        for line in map(printable, text.splitlines() or [""])
    )
    return [line for folded in lines for line in folded]


def printable(text: object) -> str:
    """`text` in one line that cannot steer a terminal: what does not print becomes its number.

    >>> print(printable("tabby\\x1b[2J\\n"), printable("größe 猫"))
    tabby\\u001b[2J\\u000a größe 猫
    """
    return "".join(c if c.isprintable() else _escaped(ord(c)) for c in str(text))


def _escaped(code: int) -> str:
    """As in TOML and JSON, so that a recipe that is printed is still the same recipe."""
    return f"\\u{code:04x}" if code < 2**16 else f"\\U{code:08x}"


def as_argument(path: str | os.PathLike[str]) -> str:
    """A path as it is typed in a shell, where a leading dash would make it an option.

    >>> as_argument("runs/net.dbq"), as_argument("-x.dbq"), as_argument("my net.dbq")
    ('runs/net.dbq', './-x.dbq', "'my net.dbq'")
    """
    name = os.fspath(path)
    return printable(shlex.quote(f"./{name}" if name.startswith("-") else name))


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

    >>> counted(1, "epoch"), counted(12, "image"), counted(0, "image")
    ('1 epoch', '12 images', '0 images')
    """
    return f"{number} {what}{'s' if number != 1 else ''}"


def bytes_of(text: str) -> int:
    """A number of bytes as people write it; k is 1000 and Ki is 1024.

    >>> bytes_of("256kB"), bytes_of("64 KiB"), bytes_of("1.5MB"), bytes_of("4096")
    (256000, 65536, 1500000, 4096)
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(?:([kKM])(i?))?B?\s*", text)
    if not found:
        raise DbqError(f"{text!r} is not a number of bytes: expected one such as 256kB or 64KiB")
    number, letter, binary = found.groups()
    power = {None: 0, "k": 1, "M": 2}[letter.lower() if letter in ("k", "K") else letter]
    unit: int = (1024 if binary else 1000) ** power
    return round(float(number) * unit)
