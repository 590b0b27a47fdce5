"""Data workers that die: torch raises RuntimeError from a signal handler, wherever the program is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dbq.errors import DataError, first_line

WORDS = "DataLoader worker"  # how torch's message begins


def dead_worker(error: Exception, what: str = "data") -> DataError:
    """The error for the user; `what` is the data that was being read."""
    return DataError(
        f"{what}: a worker process has died ({first_line(error)}); "
        "if memory or /dev/shm is short, lower data.workers"
    )


@contextmanager
def dead_workers_named() -> Iterator[None]:
    """Turn torch's error about a worker into a DataError, from whatever code it interrupts."""
    try:
        yield
    except RuntimeError as error:
        if WORDS not in str(error):
            raise
        raise dead_worker(error) from None
