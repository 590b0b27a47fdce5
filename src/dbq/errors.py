"""Every error dbq raises on purpose.

A message says what was found, what was expected and what to do about it, in one line.

    DbqError
    ├── PlanError            a plan that is malformed, or that does not fit the model
    │   ├── UnknownPlanError     no shipped plan and no file of that name
    │   └── NoMatchError         a name, pattern or whole plan that matches no layer
    ├── LayerError           a layer that cannot do what is asked of it
    ├── WeightsError         weights that cannot be quantized, read, or put into the model
    ├── UnknownModelError    no shipped network of that name
    ├── UserCodeError        a function of the user's that cannot be imported, or does not do its part
    ├── DataError            a data set that is missing or damaged
    ├── RecipeError          a recipe that is malformed, unknown, or cannot be followed
    ├── TrainingError        a run that cannot start, go on, or be read
    │   └── LockedError          another process is training in the directory
    ├── LoweringError        a network that cannot become an integer program
    ├── FileFormatError      a .dbq file that is damaged, hostile, or of another version
    ├── DiskError            a file that cannot be written
    └── EngineError          the native engine is missing, or was asked for what it cannot do
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class DbqError(Exception):
    """Base of all errors raised by dbq for reasons a user can act on."""


class PlanError(DbqError):
    """A plan is malformed or does not fit the model."""


class UnknownPlanError(PlanError):
    """Neither a shipped plan nor a file has this name."""


class NoMatchError(PlanError):
    """A layer name, a pattern or a whole plan matches nothing in the model."""


class LayerError(DbqError):
    """A layer cannot do what is asked of it."""


class WeightsError(DbqError):
    """Weights cannot be quantized, read, or put into the model."""


class UnknownModelError(DbqError):
    """No shipped network has this name."""


class UserCodeError(DbqError):
    """A function of the user's cannot be imported, fails, or returns something else than it should."""


class DataError(DbqError):
    """A data set is missing or damaged."""


class RecipeError(DbqError):
    """A recipe is malformed, unknown, or cannot be followed."""


class TrainingError(DbqError):
    """A run cannot start, cannot go on, or cannot be read."""


class LockedError(TrainingError):
    """Another process is training in the directory; the message names it."""


class LoweringError(DbqError):
    """A network cannot become an integer program."""


class FileFormatError(DbqError):
    """A .dbq file is damaged, hostile, or of another version."""


class DiskError(DbqError):
    """A file cannot be written."""


class EngineError(DbqError):
    """The native engine is missing, or was asked for what it cannot do."""


def first_line(error: BaseException) -> str:
    """The first line of another library's message, or at least the kind of error.

    >>> first_line(ValueError("bad\\nand more")), first_line(ValueError())
    ('bad', 'ValueError')
    """
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def closest(name: str, known: Iterable[str], limit: int = 3) -> str:
    """A phrase for error messages: the known names nearest to `name`.

    >>> closest("resnet2t", ["resnet-2t", "resnet-1t", "fp"])
    'closest: resnet-2t, resnet-1t'
    """
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=limit, cutoff=0.4)
    if near:
        return "closest: " + ", ".join(near)
    return "known: " + (", ".join(known[:20]) + (", ..." if len(known) > 20 else "") or "none")
