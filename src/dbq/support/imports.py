"""Functions of the user's, named "package.module:function" in a recipe: imported and called by name.

Whatever goes wrong in somebody else's code becomes one line with its kind and place; the exception
itself is its cause (`__cause__`).
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from dbq.errors import UserCodeError, closest, first_line
from dbq.support.text import printable

FUNCTION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")
_announced: set[str] = set()


def is_function_name(name: str) -> bool:
    """Whether `name` can be that of a function: "package.module:function".

    >>> is_function_name("mine.networks:tiny"), is_function_name("resnet20"), is_function_name("a:b:c")
    (True, False, False)
    """
    return FUNCTION.fullmatch(name) is not None


def import_function(name: str) -> Callable[..., Any]:
    """The function called "package.module:function"; modules in the current directory count.

    >>> import_function("dbq.nothing:at_all")
    Traceback (most recent call last):
    ...
    dbq.errors.UserCodeError: dbq.nothing:at_all: there is no module dbq.nothing
    >>> import_function("dbq.errors:closes")
    Traceback (most recent call last):
    ...
    dbq.errors.UserCodeError: dbq.errors:closes: dbq.errors has no closes; closest: closest
    """
    module_name, _, function_name = name.partition(":")
    module = import_module(module_name, name)
    function = getattr(module, function_name, None)
    if function is None:
        known = [key for key, value in vars(module).items() if callable(value) and key[0] != "_"]
        near = closest(function_name, known)
        raise UserCodeError(f"{name}: {module_name} has no {function_name}; {near}")
    if not callable(function):
        kind = type(function).__name__
        raise UserCodeError(f"{name}: {function_name} is a {kind}; expected a function")
    return function  # type: ignore[no-any-return]


def import_module(module: str, wanted: str) -> Any:
    """A module that is not ours, for the sake of `wanted`; UserCodeError if that fails."""
    if module.partition(".")[0] in sys.stdlib_module_names:
        raise UserCodeError(f"{wanted}: {module} belongs to Python, expected a module of your own")
    here = os.getcwd()
    if not sys.flags.safe_path and "" not in sys.path and here not in sys.path:
        sys.path.insert(0, here)  # where `python -m` looks first
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if f"{module}.".startswith(f"{missing}."):
            raise UserCodeError(f"{wanted}: there is no module {missing}") from error
        raise UserCodeError(f"{wanted}: {module} imports {missing}, which is not there") from error
    except (Exception, SystemExit) as error:
        raise UserCodeError(f"{wanted}: importing {module} failed: {blame(error)}") from error


def parameters(function: Callable[..., Any]) -> tuple[set[str], bool] | None:
    """Names that can be given as keywords, and whether any other may; None if Python cannot tell."""
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    named = {p.name for p in found if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    return named, any(p.kind is p.VAR_KEYWORD for p in found)


def call(function: Callable[..., Any], arguments: Mapping[str, Any], name: str, where: str) -> Any:
    """What `function`, which the user calls `name`, makes of keywords that come from `where`.

    >>> call(closest, {"nam": 1}, "dbq.errors:closest", "model.options")
    Traceback (most recent call last):
    ...
    dbq.errors.UserCodeError: dbq.errors:closest takes no nam (model.options); closest: name
    """
    if (taken := parameters(function)) is not None:
        named, any_other = taken
        unknown = [] if any_other else [key for key in arguments if key not in named]
        if unknown:
            near = closest(unknown[0], named)
            raise UserCodeError(f"{name} takes no {unknown[0]} ({where}); {near}")
        try:
            inspect.signature(function).bind(**arguments)
        except TypeError as error:
            raise UserCodeError(f"{name}: {error} ({where})") from error
    try:
        return function(**arguments)
    except (Exception, SystemExit) as error:
        raise UserCodeError(f"{name} raised {blame(error)}") from error


def blame(error: BaseException) -> str:
    """Kind, first line and place of an exception that came out of somebody else's code."""
    kind, text = type(error).__name__, first_line(error)
    said = kind if text == kind else f"{kind}: {text}"
    if isinstance(error, SyntaxError):
        return f"{said} ({error.filename}, line {error.lineno})"
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not _is_bystander(f.filename)]
    return f"{said} ({frames[-1].filename}, line {frames[-1].lineno})" if frames else said


def _is_bystander(filename: str) -> bool:
    """Whether code is that of this package, of torch or of the import system: not where to look."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    inside = (package + os.sep, "<frozen importlib", os.path.dirname(importlib.__file__) + os.sep)
    return filename.startswith(inside) or f"{os.sep}torch{os.sep}" in filename


def announce_code(source: object, *names: str) -> None:
    """Say on stderr, once for each name, that reading `source` imports and calls code."""
    for name in names:
        if name not in _announced:
            _announced.add(name)
            print(printable(f"{source} imports code: {name}"), file=sys.stderr, flush=True)
