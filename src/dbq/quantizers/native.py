"""The library of training kernels, in C++: what torch does in many calls, in one.

It is built when the package is installed. Where it is missing (a platform without a suitable compiler)
torch calls do the same, more slowly; `dbq doctor` says which is used.
"""

from __future__ import annotations

import ctypes
import re
from ctypes import c_float, c_int, c_int64, c_void_p
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

LIBRARY = Path(__file__).parents[1] / "libdbq_train.so"

_OPENMP = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")
_OPENMP_FILE = re.compile(r"/lib[gi]?omp[^/]*\.so[^/]*$")
_POINTERS: list[Any] = [c_void_p] * 6
_LAYER = [*_POINTERS, c_float, c_int64, c_int64, c_int, c_int, c_int]
_ROUNDED = [c_void_p, c_int64, c_float, c_float, c_float, c_int]
_SIGNATURES = {
    "dbq_staircase_forward": [*_LAYER, c_void_p],
    "dbq_staircase_backward": [*_LAYER, *_POINTERS],
    "dbq_round_forward": [*_ROUNDED, c_void_p],
    "dbq_round_backward": [*_ROUNDED, c_void_p, c_void_p],
}


def _load() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL(str(LIBRARY))
    except OSError:
        return None
    for name, arguments in _SIGNATURES.items():
        function = getattr(library, name)
        function.argtypes = arguments
        function.restype = c_int if name == "dbq_round_forward" else None
    openmp = _openmp_of_torch()
    if openmp is not None:
        library.dbq_use_openmp(*(getattr(openmp, name) for name in _OPENMP))
    return library


def _openmp_of_torch() -> ctypes.CDLL | None:
    """The OpenMP library that torch has loaded, in whose threads the kernels run.

    None if there is none, or more than one: then the kernels keep to the calling thread.
    """
    try:
        mapped = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return None
    files = {line.split(maxsplit=5)[5] for line in mapped if _OPENMP_FILE.search(line)}
    libraries = [ctypes.CDLL(file) for file in files]
    usable = [library for library in libraries if all(hasattr(library, name) for name in _OPENMP)]
    return usable[0] if len(usable) == 1 else None


NATIVE = _load()


def serves(x: Tensor) -> bool:
    """Whether the kernels work on `x`: float32 on a CPU, and not while torch compiles."""
    on_cpu = x.device.type == "cpu" and x.dtype == torch.float32
    return NATIVE is not None and on_cpu and not torch.compiler.is_compiling()
