"""Keeping freed memory in the process.

glibc returns large blocks to the system as soon as they are freed, and the next training step has to get
them again, page fault by page fault. On a CPU that can take as long as the arithmetic, and it varies
from step to step.
"""

from __future__ import annotations

import ctypes
import platform

M_TRIM_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX = -1, -4, -8  # from malloc.h


def keep_freed_memory() -> bool:
    """Let this process keep the memory it frees; for programs that train, not for libraries.

    Returns True if the C library accepted the settings, False (and does nothing) if it is not glibc.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    libc = ctypes.CDLL(None)
    libc.mallopt(M_ARENA_MAX, 1)  # what one thread frees, another can use: else each keeps its most
    kept = libc.mallopt(M_MMAP_MAX, 0) and libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
    return bool(kept)
