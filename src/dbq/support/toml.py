"""Writing TOML: the few kinds of values that plans and recipes have. The standard library only reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def quote(text: str) -> str:
    """A basic string.

    >>> print(quote('say "hi"'))
    "say \\"hi\\""
    """
    escaped = "".join(
        f"\\u{ord(c):04x}" if ord(c) < 0x20 or c == "\x7f" else "\\" + c if c in '"\\' else c
        for c in text
    )
    return f'"{escaped}"'


def toml_value(value: Any) -> str:
    """A string, boolean, number, sequence or table on one line.

    >>> print(toml_value({"init": "kmeans", "k": (1, 2.5), "on": True}))
    { "init" = "kmeans", "k" = [1, 2.5], "on" = true }
    """
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        inside = ", ".join(f"{quote(key)} = {toml_value(item)}" for key, item in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    return repr(value)
