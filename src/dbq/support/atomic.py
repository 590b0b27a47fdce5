"""Atomic file writes: at any moment a file is either the old one or the new one, complete.

Every write has a partial file or folder of its own, so that two writers never touch each other's. A
writer locks it (`flock`, which also tells threads apart) while it works: one that can be locked is a
dead writer's, and the next write removes it.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from dbq.errors import DiskError


def write_atomically(path: Path, content: bytes) -> None:
    """Replace the file at `path` by `content`; an error leaves the old file as it was.

    It is written under another name, forced to disk, and renamed. A symbolic link keeps its place:
    the file it points to is replaced.
    """
    try:
        with replacing(path) as file:
            file.write(content)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = getattr(error, "strerror", None) or error
        raise DiskError(f"cannot write {path}: {reason}; the previous file is untouched") from None


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write, which replaces the one at `path` at the end, unless there is an error."""
    path = Path(os.path.realpath(path))
    _remove_leftovers(path)
    file = _new_partial(path)
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            os.replace(file.name, path)
    except BaseException:  # an interrupt too
        Path(file.name).unlink(missing_ok=True)
        raise
    _sync_directory(path.parent)


@contextmanager
def partial_folder(path: Path) -> Iterator[Path]:
    """A folder beside `path` in which to prepare what goes there; it is removed at the end."""
    _remove_leftovers(path)
    while True:
        folder = Path(f"{path}.{secrets.token_hex(8)}.partial")
        folder.mkdir()
        handle = os.open(folder, os.O_RDONLY)
        _lock(handle, fcntl.LOCK_EX)
        if os.fstat(handle).st_nlink:
            break
        os.close(handle)  # taken for a leftover before it was locked
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


def _new_partial(path: Path) -> BinaryIO:
    """A locked file beside `path`, under a name that nobody else has."""
    while True:
        file = open(f"{path}.{secrets.token_hex(8)}.partial", "xb")  # noqa: SIM115
        _lock(file.fileno(), fcntl.LOCK_EX)
        if os.fstat(file.fileno()).st_nlink:
            return file
        file.close()  # taken for a leftover before it was locked


def _remove_leftovers(path: Path) -> None:
    """Remove the partial files and folders of `path` whose writers are gone."""
    partial = re.compile(re.escape(path.name) + r"\.[0-9a-f]{16}\.partial")
    names: list[str] = []
    with suppress(OSError):  # a directory may allow writing and not listing
        names = os.listdir(path.parent)
    for name in filter(partial.fullmatch, names):
        with suppress(OSError):
            _remove_unless_locked(path.parent / name)


def _remove_unless_locked(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        if _lock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    finally:
        os.close(handle)


def _lock(handle: int, how: int) -> bool:
    """False if another writer has the lock, or if the file system has none."""
    try:
        fcntl.flock(handle, how)
    except OSError:
        return False
    return True


def _sync_directory(directory: Path) -> None:
    """Force a rename to disk, on file systems that support it."""
    with suppress(OSError):
        handle = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
