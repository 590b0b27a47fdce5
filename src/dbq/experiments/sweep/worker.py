"""A worker of a sweep: claims a run, trains it, claims the next.

It may die at any moment. What it had is then put in the queue again (sweep_queue.py) and gone on with
from the checkpoint in the run's directory, whose lock died with it. A worker that was only slow still
has the lock: whoever was given its run waits, and finds it finished.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress

import torch

from dbq.errors import DbqError, first_line
from dbq.experiments.sweep.queue import PAUSE, Claim, Queue
from dbq.support.lock import only_one
from dbq.training.run import train


def live(open_queue: Callable[[], Queue], threads: int) -> None:
    """All that a worker process does; `threads` are torch's, 0 leaves them as they are."""
    os.setpgrp()  # Ctrl-C reaches the process that started us, and it tells us, once
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if threads:
        torch.set_num_threads(threads)
    with suppress(KeyboardInterrupt):  # saved and put back; or else the heartbeat will tell
        work(open_queue())


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


def work(queue: Queue) -> None:
    """Claim and train until every run is finished or failed, whoever did it."""
    while True:
        queue.mend()
        claim = queue.claim()
        if claim is not None:
            _train(queue, claim)
        elif queue.is_done():
            return
        else:  # others are at work, and may die
            time.sleep(PAUSE)


def _train(queue: Queue, claim: Claim) -> None:
    directory = queue.out / claim.run.name
    try:
        with queue.beating(claim), only_one(directory / "lock"):
            result = train(claim.run.recipe, directory, resume=True)
    except KeyboardInterrupt:
        queue.put_back(claim)
        raise
    except DbqError as error:
        queue.fail(claim, str(error))
    except Exception as error:  # a fault in one run is no reason to leave the others
        (directory / "error.txt").write_text(traceback.format_exc())
        queue.fail(claim, f"{type(error).__name__}: {first_line(error)}, see {directory}/error.txt")
    else:
        queue.finish(claim, result["top1"])
