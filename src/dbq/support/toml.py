"""TOML and frozen dataclasses: reading is strict, and an error names the file, the key and the value.

`build` refuses unknown keys, missing keys and values of the wrong type. A whole number is accepted
where a field is a float, and nothing else is converted, unless a hook for the type does it.
"""

from __future__ import annotations

import dataclasses
import reprlib
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from dbq.errors import DbqError, closest
from dbq.support.frozen import frozen

Struct = TypeVar("Struct")
# By type: what is done to a value before it is checked. The result is final if it has that type.
Hooks = Mapping[Any, Callable[[Any], Any]]

LARGEST_FLOAT = sys.float_info.max
SHORT = reprlib.Repr()
SHORT.maxstring = SHORT.maxother = 120
# What tomllib raises; not only its own error, if a number has thousands of digits or nesting is deep
BAD_TOML = (tomllib.TOMLDecodeError, ValueError, RecursionError)

WORDS = {
    int: "a whole number",
    float: "a number",
    str: "a string",
    bool: "true or false",
    NoneType: "nothing",
}


def parse(text: str, source: str, error: type[DbqError]) -> dict[str, Any]:
    """The tables of a TOML document; `source` says in errors where the text comes from."""
    try:
        return tomllib.loads(text)
    except BAD_TOML as problem:
        raise error(f"{source}: not valid TOML: {problem}") from None


def read_text(path: Path, what: str, error: type[DbqError]) -> str:
    """The text of a file that holds a `what`."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise error(f"cannot read {what} {path}: not UTF-8 text") from None
    except (OSError, ValueError) as problem:  # ValueError: a NUL in the path
        reason = getattr(problem, "strerror", None) or problem
        raise error(f"cannot read {what} {path}: {reason}") from None


def check_suffix(
    path: str | Path, what: str, shipped: Iterable[str], error: type[DbqError]
) -> None:
    """Raise unless `path`, which is the name of no shipped `what`, can be that of a file."""
    if Path(path).suffix != ".toml":
        near = closest(str(path), shipped)
        raise error(f"no {what} named {str(path)!r}; {near}; or give a path ending in .toml")


def write(tables: Mapping[str, Any]) -> str:
    """A TOML document."""
    import tomli_w

    return tomli_w.dumps(tables)


def build(
    kind: type[Struct],
    table: object,
    source: str,
    error: type[DbqError],
    hooks: Hooks | None = None,
    **given: Any,
) -> Struct:
    """An instance of the dataclass `kind` from a table; fields in `given` are no keys of it.

    >>> @dataclasses.dataclass
    ... class Point:
    ...     x: float
    ...     y: float = 0
    >>> build(Point, {"x": 1}, "point.toml", DbqError)
    Point(x=1.0, y=0)
    >>> build(Point, {"x": 1, "yy": 2}, "point.toml", DbqError)
    Traceback (most recent call last):
    dbq.errors.DbqError: point.toml: unknown key yy; closest: y
    """
    try:
        return _build(kind, table, "", hooks or {}, given)
    except (_BadValueError, DbqError) as problem:
        raise error(f"{source}: {problem}") from None


class _BadValueError(Exception):
    """Why a value does not fit, with its key but without the file."""


def _build(
    kind: type[Struct], table: object, key: str, hooks: Hooks, given: Mapping[str, Any]
) -> Struct:
    if not isinstance(table, dict):
        raise _wrong(key, table, "a table")
    prefix = f"{key}." if key else ""
    hints = get_type_hints(kind)
    fields = {f.name: f for f in dataclasses.fields(kind) if f.name not in given}  # type: ignore[arg-type]
    for name in table:
        if name not in fields:
            raise _BadValueError(f"unknown key {prefix}{_cut(name)}; {closest(name, fields)}")
    for name, field in fields.items():
        required = field.default is field.default_factory is dataclasses.MISSING
        if required and name not in table:
            raise _BadValueError(f"{prefix}{name} is missing")
    values = {n: _convert(hints[n], value, prefix + n, hooks) for n, value in table.items()}
    return _with_key(key, lambda: kind(**values, **given))


def _convert(hint: Any, value: Any, key: str, hooks: Hooks) -> Any:
    """`value` as the type that a field is annotated with."""
    if hint in hooks:
        value = _with_key(key, lambda: hooks[hint](value))
        if isinstance(value, hint):
            return value
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _build(hint, value, key, hooks, {})
    origin, args = get_origin(hint), get_args(hint)
    if origin is Mapping and isinstance(value, dict):
        converted = {k: _convert(args[1], v, f"{key}.{_cut(k)}", hooks) for k, v in value.items()}
        return frozen(converted)
    if origin in (tuple, list) and isinstance(value, list):
        return origin(_convert(args[0], v, f"{key}[{i}]", hooks) for i, v in enumerate(value))
    if origin is Literal and value in args:
        return value
    kinds = args if origin is UnionType else (hint,)
    if type(value) is str and "\0" in value:
        raise _wrong(key, value, "no NUL in a string")
    if type(value) in kinds or hint is Any:
        return value
    if float in kinds and type(value) is int and abs(value) < LARGEST_FLOAT:
        return float(value)
    raise _wrong(key, value, _expected(hint))


def _with_key(key: str, make: Callable[[], Struct]) -> Struct:
    try:
        return make()
    except DbqError as error:
        raise _BadValueError(f"{key}: {error}" if key else str(error)) from None


def _wrong(key: str, value: object, expected: str) -> _BadValueError:
    return _BadValueError(f"{key} = {shown(value)}; expected {expected}")


def _cut(key: str) -> str:
    return key if len(key) <= 120 else f"{key[:100]}..."


def shown(value: object) -> str:
    """The value, cut where it is long or deep."""
    try:
        return SHORT.repr(value)
    except ValueError:  # Python prints no number of thousands of digits
        return "a number that is too long"


def _expected(hint: Any) -> str:
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal:
        return " or ".join(map(repr, args))
    if origin is UnionType:
        return " or ".join(map(_expected, args))
    if origin is tuple:
        return f"a list, each {_expected(args[0])}"
    return WORDS.get(hint, "a table")
