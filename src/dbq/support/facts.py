"""The facts of a .dbq file, checked when they are used: whoever made the file wrote what they liked."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from typing import Any, TypeVar

from dbq.errors import FileFormatError

T = TypeVar("T")


def fact(facts: Mapping[str, Any], key: str, kind: type[T], default: T) -> T:
    """The fact `key`, or `default` if the file does not state it; another type is a FileFormatError.

    >>> fact({"plan": "dbq-2t-4"}, "plan", str, ""), fact({}, "epoch", int, 0)
    ('dbq-2t-4', 0)
    >>> fact({"epoch": "six"}, "epoch", int, 0)
    Traceback (most recent call last):
    ...
    dbq.errors.FileFormatError: the file's epoch is 'six'; expected int: export it again
    """
    value = facts.get(key)
    if value is None:
        return default
    if type(value) is not kind:  # True is no number here
        raise wrong_fact(facts, key, kind.__name__)
    return value


def fact_list(facts: Mapping[str, Any], key: str, kind: type[T], count: int) -> list[T]:
    """`count` values of one kind (for float, int as well), or none if the file does not state them."""
    values: list[T] = fact(facts, key, list, [])
    kinds = (int, float) if kind is float else (kind,)
    if len(values) not in (0, count) or any(type(value) not in kinds for value in values):
        raise wrong_fact(facts, key, f"{count} of {kind.__name__}")
    return values


def wrong_fact(facts: Mapping[str, Any], key: str, expected: str) -> FileFormatError:
    """The error for a fact that cannot be used."""
    found = reprlib.repr(facts[key])
    return FileFormatError(f"the file's {key} is {found}; expected {expected}: export it again")
