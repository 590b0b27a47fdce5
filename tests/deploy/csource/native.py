"""Generated C, compiled for this machine by the compiler that is here, and called."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dbq.deploy.csource.boards.verify import WARNINGS
from dbq.deploy.csource.files import expected_outputs
from dbq.deploy.csource.source import to_c
from dbq.deploy.program import Program

NUMBERS = count()


def compiler() -> str:
    """gcc or clang; without either the test is skipped."""
    found = shutil.which("gcc") or shutil.which("clang")
    if found is None:
        pytest.skip("no C compiler")
    return found


def compile_c(folder: Path, *arguments: str) -> None:
    command = [compiler(), *WARNINGS, *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


def write(program: Program, folder: Path, ram: int | None = None) -> None:
    source = to_c(program, "net", ram)
    (folder / "net.c").write_text(source.code)
    (folder / "net.h").write_text(source.header)


def outputs(
    program: Program, images: Any, folder: Path, flags: Sequence[str] = (), ram: int | None = None
) -> Any:
    """What the C code makes of `images`, float32 [N, outputs]."""
    write(program, folder, ram)
    sanitizer = ("-fsanitize=undefined", "-fno-sanitize-recover=all")
    compile_c(folder, "-O1", "-shared", "-fPIC", *sanitizer, *flags, "net.c", "-o", "net.so")
    # The loader takes a library of the same name for the same one.
    library = ctypes.CDLL(str((folder / "net.so").rename(folder / f"{next(NUMBERS)}.so")))
    expected = expected_outputs(program, images)
    found = np.full_like(expected, np.nan)
    for image, row in zip(images, found, strict=True):
        pixels = np.ascontiguousarray(image)
        best = library.net_run(
            pixels.ctypes.data_as(ctypes.c_void_p), row.ctypes.data_as(ctypes.c_void_p)
        )
        first = int(np.prod(program.tensors[program.output].shape))
        assert row[best] == row[:first].max()
    return found


def check(
    program: Program, images: Any, folder: Path, flags: Sequence[str] = (), ram: int | None = None
) -> None:
    """The bits of the specification, of every output."""
    found = outputs(program, images, folder, flags, ram)
    expected = expected_outputs(program, images)
    np.testing.assert_array_equal(found.view(np.uint32), expected.view(np.uint32))
