"""The work of a sweep: workers that claim runs and train them, and the process that starts workers.

Every worker may die at any moment. What it had is then put in the queue again (sweep_queue.py) and gone
on with from the checkpoint in the run's directory, whose lock died with it. A worker that was only
slow still has the lock: whoever was given its run waits, and finds it finished.
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
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch

from dbq.errors import DbqError, first_line
from dbq.lock import only_one
from dbq.sweep import Run, Sweep
from dbq.sweep_outcome import Outcome, Row
from dbq.sweep_queue import GRACE, Claim, Queue, Status
from dbq.training.interrupt import stop_on_signal
from dbq.training.run import train

PAUSE = 1.0  # seconds between two looks at the queue

Watch = Callable[[dict[str, Status]], None]


@dataclass(frozen=True)
class Job:
    """What a worker is told: a sweep, where its runs are, and where the queue is."""

    sweep: Sweep
    out: Path
    store: str = ""
    grace: int = GRACE

    def queue(self) -> Queue:
        return Queue(self.sweep.runs(self.out), self.out, self.store, self.grace)


def run_sweep(job: Job, workers: int = 1, watch: Watch = lambda status: None) -> Outcome:
    """Train what is not finished, and write `out`/sweep.json.

    What failed before is tried again. Other processes and machines may work on the same sweep; then
    this one waits for them, too. `watch` is told the status of all runs about once a second.
    """
    queue = job.queue()
    queue.mend(retry=True)
    to_do = sum(status.state != "finished" for status in queue.status().values())
    threads = 1 if workers > 1 else 0  # 0: as many as torch likes
    started = [_start(job, threads) for _ in range(min(workers, to_do))]
    with stop_on_signal() as request:
        try:
            while (alive := [p for p in started if p.is_alive()]) and not request.made:
                watch(queue.status())
                wait([process.sentinel for process in alive], PAUSE)
        finally:
            _stop(started)
    watch(queue.status())
    found = outcome(job, queue)
    found.write(job.out)
    if request.made:
        raise KeyboardInterrupt
    return found


def _start(job: Job, threads: int) -> BaseProcess:
    process = multiprocessing.get_context("spawn").Process(target=_worker, args=(job, threads))
    process.start()
    return process


def _stop(processes: list[BaseProcess]) -> None:
    """Ask those that are left to save and end, and wait; asked again, do not wait."""
    for process in processes:
        process.terminate()
    try:
        for process in processes:
            process.join()
    except KeyboardInterrupt:
        for process in processes:
            process.kill()  # nothing is lost but the steps since the last checkpoint
        raise


def outcome(job: Job, queue: Queue) -> Outcome:
    """What there is now."""
    status = queue.status()
    rows = tuple(
        Row.of(run, job.out / run.name)
        for run in queue.runs.values()
        if status[run.name].state == "finished"
    )
    failed = {name: found.error for name, found in status.items() if found.state == "failed"}
    others = [name for name in status if status[name].state not in ("finished", "failed")]
    return Outcome(job.sweep, rows, failed, tuple(others))


def _worker(job: Job, threads: int) -> None:
    """The life of a worker process."""
    os.setpgrp()  # Ctrl-C reaches the process that started us, and it tells us, once
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if threads:
        torch.set_num_threads(threads)
    with suppress(KeyboardInterrupt):  # saved and put back; or else the heartbeat will tell
        work(job.queue())


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


def epochs_done(out: Path, run: Run) -> int:
    """How many epochs of a run are over, finished or not."""
    try:
        return (out / run.name / "metrics.jsonl").read_text().count("\n")
    except OSError:
        return 0
