"""Training the runs of a sweep. There is no queue but the run directories themselves.

A run is finished if its directory has a result, failed if it has an error, and being trained if it is
locked. A worker takes the first run that it may start and whose lock it gets. When a worker dies, the
kernel frees its lock, and the next worker resumes the run from its last checkpoint, bit for bit. Only
the result decides whether a run is finished, so no finished run is ever trained again.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import Protocol

import torch

from dbq.errors import DbqError, LockedError, first_line
from dbq.experiments.sweep.outcome import Outcome, Row
from dbq.experiments.sweep.sweep import Run, Sweep
from dbq.training.processes.interrupt import stop_on_signal
from dbq.training.recipe import Recipe
from dbq.training.record.rundir import RunDir
from dbq.training.run import train

PAUSE = 1.0  # seconds between two looks at the directories


@dataclass(frozen=True)
class Task:
    """A run of a sweep as plain text, which any process on any machine can be given."""

    name: str
    directory: str
    recipe: str  # TOML
    baseline: str  # directory of the run it starts from; empty if there is none

    @classmethod
    def of(cls, run: Run, out: Path) -> Task:
        baseline = str(out.absolute() / run.baseline) if run.baseline else ""
        return cls(run.name, str(out.absolute() / run.name), run.recipe.to_toml(), baseline)

    @property
    def files(self) -> RunDir:
        return RunDir(Path(self.directory))

    @property
    def error(self) -> str:
        """Why the run failed, or cannot start; empty if neither."""
        baseline = Path(self.baseline)
        stuck = f"its baseline {baseline.name} failed"
        return self.files.error() or (stuck if self.baseline and RunDir(baseline).error() else "")

    @property
    def end(self) -> str:
        """ "finished" or "failed: why"; empty if the run has not ended."""
        if self.files.is_finished:
            return "finished"
        return f"failed: {self.error}" if self.error else ""


class Crew(Protocol):
    """Whoever trains: `Processes` on this machine, or a cluster."""

    def is_at_work(self) -> bool: ...  # waits a moment; False if all have ended

    def stop(self) -> None: ...  # lets those that are left save, and waits for them


def run_sweep(
    sweep: Sweep,
    out: Path,
    crew: Callable[[Sequence[Task]], Crew],
    watch: Callable[[Sequence[Task]], None] = lambda tasks: None,
) -> Outcome:
    """Train what is not finished, and write `out`/sweep.json. `watch` is called about once a second.

    Runs that failed before are tried again. Other processes and machines may work on the same sweep;
    this one then waits for them, too.
    """
    runs = sweep.runs(out)
    tasks = [Task.of(run, out) for run in runs]
    for task in tasks:
        task.files.clear_error()
    with stop_on_signal() as request:
        workers = crew([task for task in tasks if not task.end])
        try:
            while not request.made and workers.is_at_work():
                watch(tasks)
        finally:
            workers.stop()
    watch(tasks)
    outcome = Outcome(
        sweep,
        tuple(Row.of(r, out / r.name) for r in runs if RunDir(out / r.name).is_finished),
        {task.name: task.error for task in tasks if task.error},
        tuple(task.name for task in tasks if not task.end),
    )
    outcome.write(out)
    if request.made:
        raise KeyboardInterrupt
    return outcome


def work(tasks: Sequence[Task]) -> None:
    """Train until every run is finished or has failed, whichever process trained it."""
    while left := [task for task in tasks if not task.end]:
        ready = (t for t in left if not t.baseline or RunDir(Path(t.baseline)).is_finished)
        if not any(_attempt(task) for task in ready):
            time.sleep(PAUSE)  # other processes are training, and may die


def _attempt(task: Task) -> bool:
    """Train a run to its end; False if another process is doing that."""
    try:
        train(Recipe.from_toml(task.recipe, task.name), Path(task.directory), resume=True)
    except LockedError:
        return False
    except DbqError as error:
        task.files.write_error(str(error))
    except Exception as error:  # a bug that one run meets must not stop the others
        why = f"{type(error).__name__}: {first_line(error)} (traceback in {task.directory})"
        task.files.write_error(f"{why}\n{traceback.format_exc()}")
    return True


class Processes:
    """Worker processes on this machine; several get one thread each."""

    def __init__(self, tasks: Sequence[Task], count: int = 1) -> None:
        make, several = multiprocessing.get_context("spawn").Process, count > 1
        self.started = [make(target=_live, args=(tasks, several)) for _ in tasks[:count]]
        for process in self.started:
            process.start()

    def is_at_work(self) -> bool:
        alive = [process.sentinel for process in self.started if process.is_alive()]
        wait(alive, PAUSE)
        return bool(alive)

    def stop(self) -> None:
        for process in self.started:
            process.terminate()
        try:
            for process in self.started:
                process.join()
        except KeyboardInterrupt:  # asked again: do not wait
            for process in self.started:
                process.kill()  # only the steps since the last checkpoint are lost
            raise


def _live(tasks: Sequence[Task], one_thread: bool) -> None:
    """All that a worker process does."""
    os.setpgrp()  # Ctrl-C goes to the process that started us, which then tells us, once
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if one_thread:
        torch.set_num_threads(1)
    with suppress(KeyboardInterrupt):  # the run is saved, and its lock is free
        work(tasks)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
