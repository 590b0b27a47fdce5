"""The C functions that generated files are made of: sections of kernels/*.c, each with what it needs."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

_HEAD = re.compile(r"/\* === ([\w ]+?)(?:: needs ([\w ,]+?))? === \*/\n")


@cache
def sections() -> dict[str, tuple[tuple[str, ...], str]]:
    """What each section needs, and its text."""
    found = {}
    folder = files("dbq.deploy.csource") / "kernels"
    for path in sorted(folder.iterdir(), key=lambda path: path.name):
        parts = _HEAD.split(path.read_text(encoding="utf-8"))
        for name, needs, text in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
            found[name] = (tuple(needs.split(", ")) if needs else (), text.strip() + "\n")
    return found


def in_order(names: set[str]) -> list[str]:
    """`names` and all they need, each behind its needs; the same list for the same names."""
    done: list[str] = []

    def visit(name: str) -> None:
        if name not in done:
            for need in sections()[name][0]:
                visit(need)
            done.append(name)

    for name in sorted(names):
        visit(name)
    return done
