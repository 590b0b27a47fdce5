"""Memory: keep what was freed.

glibc gives large blocks back to the system as soon as they are freed, and the next training step gets
them anew, page fault by page fault: on a CPU that can take as long as the arithmetic, and it varies from
step to step.
"""

from __future__ import annotations

import ctypes
import platform

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # from malloc.h


def keep_freed_memory() -> bool:
    """Let this process keep the memory it frees; for programs that train, not for libraries.

    True if the C library took the settings; False, and nothing done, where it is not glibc.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    libc = ctypes.CDLL(None)
    kept = libc.mallopt(M_MMAP_MAX, 0) and libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
    return bool(kept)
