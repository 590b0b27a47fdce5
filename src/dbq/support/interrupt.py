"""Calls into C that Ctrl-C can end, and work that it must not cut in two."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
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
        with uninterrupted():  # or the thread might run before `is_alive` knows of it
            thread.start()
        wait([outcome])
    except BaseException:
        while thread.is_alive():  # the call uses memory that the caller may free next
            with suppress(KeyboardInterrupt):
                cancel()
                thread.join(PATIENCE)
        raise
    return outcome.result()


@contextmanager
def uninterrupted() -> Iterator[None]:
    """A SIGINT inside the block arrives when it has ended.

    Other threads than the main one get none.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came = []
    before = signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came:
            os.kill(os.getpid(), signal.SIGINT)
