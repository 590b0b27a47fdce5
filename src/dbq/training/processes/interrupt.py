"""Graceful stop on Ctrl-C, SIGTERM or a closed terminal: finish the step, save, end the program."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopRequest:
    """`made` is False until the user or the system asks to stop."""

    def __init__(self) -> None:
        self.made = False


@contextmanager
def stop_on_signal() -> Iterator[StopRequest]:
    """SIGINT, SIGTERM and SIGHUP set the request; a second one ends the program at once.

    A SIGHUP that is ignored stays so: nohup asks for that.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request  # only the main thread may handle signals
        return

    def note(number: int, frame: FrameType | None) -> None:
        request.made = True
        for each, handler in before.items():
            signal.signal(each, handler)

    signals = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        signals.append(signal.SIGHUP)
    before = {each: signal.signal(each, note) for each in signals}
    try:
        yield request
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
