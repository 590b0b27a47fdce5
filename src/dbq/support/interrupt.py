"""Calls into C that Ctrl-C can end."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from threading import Thread
from typing import TypeVar

T = TypeVar("T")

PATIENCE = 0.02  # seconds between two cancellations: the first may come before the call begins


def interruptible(call: Callable[[], T], cancel: Callable[[], object]) -> T:
    """What `call` returns or raises; if a signal handler raises meanwhile, `cancel` ends the call first.

    Python runs signal handlers on the main thread, and only while no C function runs there. So the call
    is made on another thread, and this one waits.
    """
    outcome: Future[T] = Future()

    def work() -> None:
        try:
            outcome.set_result(call())
        except BaseException as error:
            outcome.set_exception(error)

    thread = Thread(target=work, daemon=True)
    try:
        thread.start()
        wait([outcome])
    except BaseException:
        while thread.is_alive():  # the call uses memory that the caller may free next
            with suppress(KeyboardInterrupt):
                cancel()
                thread.join(PATIENCE)
        raise
    return outcome.result()
