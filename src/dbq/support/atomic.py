"""Atomic file writes: at any moment a file is either the old one or the new one, complete."""

from __future__ import annotations

import os
from pathlib import Path

from dbq.errors import DiskError


def write_atomically(path: Path, content: bytes) -> None:
    """Replace the file at `path` by `content`; an error leaves the old file as it was.

    It is written under another name, forced to disk, and renamed.
    """
    partial = path.with_name(path.name + ".partial")
    try:
        with open(partial, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        _sync_directory(path.parent)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise DiskError(
            f"cannot write {path}: {error.strerror}; the previous file is untouched"
        ) from None


def _sync_directory(directory: Path) -> None:
    """Force a rename to disk, on file systems that support it."""
    try:
        handle = os.open(directory, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)
