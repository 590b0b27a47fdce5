"""Locks between processes: one file, one holder, and nothing to clean up after a holder that died.

A POSIX record lock (`lockf`), not `flock`: processes forked to decode images would inherit a `flock`
and keep it for a while after their parent was killed. The kernel releases ours with the process.

On NFS the lock is the server's, so it holds between machines; a machine that dies loses it when its
lease ends (about 90 s with NFSv4). Mounted with `nolock` or `local_lock`, and on file systems that
keep locks to themselves, it holds on one machine only; where there are no locks at all, it is an error.
Within a process it does not keep threads from each other.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from dbq.errors import TrainingError

PAUSE = 0.1  # seconds between two tries


@contextmanager
def only_one(path: Path) -> Iterator[None]:
    """Hold the lock of the file at `path`, made if need be; waits until it is free."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = open(path, "a")  # noqa: SIM115  # closing it releases the lock
    except OSError as error:
        raise TrainingError(f"cannot write {path}: {error.strerror}") from None
    with file:
        while not _is_ours(file):
            time.sleep(PAUSE)
        yield


def _is_ours(file: TextIO) -> bool:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # which of the two, POSIX leaves open
        return False
    except OSError as error:
        raise TrainingError(
            f"cannot lock {file.name}: {error.strerror}; use a file system that has locks"
        ) from None
    return True
