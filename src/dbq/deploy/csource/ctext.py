"""C text: arrays of numbers, initializers, identifiers, comments."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from dbq.deploy.tensors import Array
from dbq.errors import LoweringError

WIDTH = 100
C_TYPES = {"u1": "uint8_t", "i1": "int8_t", "u2": "uint16_t", "i2": "int16_t", "u4": "uint32_t",
           "i4": "int32_t"}  # fmt: skip
KEYWORDS = {
    "auto", "break", "case", "char", "const", "continue", "default", "do", "double", "else", "enum",
    "extern", "float", "for", "goto", "if", "inline", "int", "long", "register", "restrict", "return",
    "short", "signed", "sizeof", "static", "struct", "switch", "typedef", "union", "unsigned", "void",
    "volatile", "while",
}  # fmt: skip


def require_identifier(name: str) -> str:
    """`name`, if files, functions and macros can begin with it."""
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,39}", name) or name in KEYWORDS:
        raise LoweringError(
            f"{name!r} cannot name C functions: expected up to 40 lower-case letters, digits and _, "
            "a letter first, and no keyword of C"
        )
    return name


def identifier(text: str) -> str:
    """A name for C made from any text.

    >>> identifier("ResNet-20 (2T)"), identifier("20")
    ('resnet_20_2t', 'net_20')
    """
    found = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")[:32].strip("_")
    return (
        found if re.match("[a-z]", found) and found not in KEYWORDS else f"net_{found}".rstrip("_")
    )


def comment(text: str) -> str:
    """Text inside of a comment: printable, on one line, and unable to end it."""
    plain = "".join(c if c.isprintable() and c.isascii() else "?" for c in text)
    return plain.replace("*/", "* /").replace("/*", "/ *")[:200]


def numbers(values: Array) -> str:
    """Numbers in lines of WIDTH, without the braces."""
    words = [
        f"{value}{'u' if values.dtype.kind == 'u' else ''}" for value in values.ravel().tolist()
    ]
    return _lines([word if word != "-2147483648" else "INT32_MIN" for word in words])


def _lines(words: Iterable[str]) -> str:
    """Words and commas in lines of WIDTH."""
    lines, line = [], "   "
    for word in words:
        if len(line) + len(word) + 2 > WIDTH:
            lines.append(line)
            line = "   "
        line += f" {word},"
    return "\n".join([*lines, line])


def array(name: str, values: Array) -> str:
    """`static const` data, which stays in flash."""
    kind = C_TYPES[values.dtype.str[1:]]
    return f"static const {kind} {name}[{values.size}] = {{\n{numbers(values)}\n}};\n"


def bits(values: npt.ArrayLike) -> npt.NDArray[np.uint32]:
    """float32 numbers as integers."""
    return np.ascontiguousarray(values, np.float32).view(np.uint32)


def initializer(fields: Iterable[tuple[str, Any]]) -> str:
    """{.name = value, ...}, in lines."""
    return "{\n" + _lines(f".{name} = {value}" for name, value in fields) + "\n}"
