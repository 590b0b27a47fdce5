"""Files that can be read to their end: opening anything else may block or never finish."""

from __future__ import annotations

import os
import stat


def why_unreadable(path: str | os.PathLike[str]) -> str:
    """Why `path` is not a regular file, or "" if it is one. Ask before opening: a FIFO would block.

    >>> why_unreadable("/"), why_unreadable("/dev/null"), why_unreadable("absent")
    ('Is a directory', 'Not a regular file', 'No such file or directory')
    """
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        return error.strerror or str(error)
    except ValueError as error:  # a NUL in the name
        return str(error)
    if stat.S_ISREG(mode):
        return ""
    return "Is a directory" if stat.S_ISDIR(mode) else "Not a regular file"
