"""The native library: where it is, and the C functions it has.

Built by CMake when the package is installed. Where it is missing (a platform without a
suitable compiler) everything works by torch calls, more slowly; `dbq doctor` says which it is.
"""

from __future__ import annotations

import ctypes
from ctypes import c_float, c_int, c_int64, c_void_p
from pathlib import Path
from typing import Any

LIBRARY = Path(__file__).parents[2] / "libdbq_train.so"

_POINTERS: list[Any] = [c_void_p] * 6
_LAYER = [*_POINTERS, c_float, c_int64, c_int64, c_int, c_int, c_int]


def _load() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL(str(LIBRARY))
    except OSError:
        return None
    library.dbq_staircase_forward.argtypes = [*_LAYER, c_void_p]
    library.dbq_staircase_backward.argtypes = [*_LAYER, *_POINTERS]
    for function in (library.dbq_staircase_forward, library.dbq_staircase_backward):
        function.restype = None
    return library


STAIRCASE = _load()
