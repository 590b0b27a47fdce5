"""Locks between processes: one file, one holder, and nothing to clean up after a holder that died.

A POSIX record lock (`lockf`), not `flock`: processes forked to decode images would inherit a `flock`
and keep it for a while after their parent was killed. The kernel releases ours with the process.

On NFS the lock is the server's, so it holds between machines; a machine that dies loses it when its
lease ends (about 90 s with NFSv4). Mounted with `nolock` or `local_lock`, and on file systems that
keep locks to themselves, it holds on one machine only; where there are no locks at all, it is an error.

It does not exclude threads of one process from each other: to POSIX they are the same holder, and the
first of them to close the file releases the lock for all.
"""

from __future__ import annotations

import fcntl
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from dbq.errors import LockedError, TrainingError

PAUSE = 0.1  # seconds between two tries


@contextmanager
def only_one(path: Path, wait: bool = True) -> Iterator[None]:
    """Hold the lock of the file at `path`, which is created if need be.

    If another process holds it, wait; with `wait=False` raise LockedError, which names the holder.
    Every holder leaves a line in the file: its process id and host.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = open(path, "a+")  # noqa: SIM115  # closing it releases the lock
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = getattr(error, "strerror", None) or error
        raise TrainingError(f"cannot write {path}: {reason}") from None
    with file:
        while not _is_ours(file):
            if not wait:
                raise LockedError(f"{path.parent} is in use by {_last_holder(file)}")
            time.sleep(PAUSE)
        file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        file.flush()
        yield


def _last_holder(file: TextIO) -> str:
    file.seek(0)
    lines = file.read().splitlines()
    return lines[-1] if lines else "another process"


def _is_ours(file: TextIO) -> bool:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # POSIX allows either
        return False
    except OSError as error:
        raise TrainingError(
            f"cannot lock {file.name}: {error.strerror}; use a file system that has locks"
        ) from None
    return True
