"""The work of a sweep: start workers, look after them, say what came out."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from dbq.experiments.sweep.outcome import Outcome, Row
from dbq.experiments.sweep.queue import GRACE, PAUSE, Queue, Status
from dbq.experiments.sweep.sweep import Run, Sweep
from dbq.training.processes.interrupt import stop_on_signal

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
    started: list[BaseProcess] = []
    with stop_on_signal() as request:
        try:
            started += [_start(job, threads) for _ in range(min(workers, to_do))]
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
    """The life of a worker process; only here torch is needed."""
    from dbq.experiments.sweep.worker import live

    live(job.queue, threads)


def epochs_done(out: Path, run: Run) -> int:
    """How many epochs of a run are over, finished or not."""
    try:
        return (out / run.name / "metrics.jsonl").read_text().count("\n")
    except OSError:
        return 0
