"""Queue: which run is whose, in a store that all workers of a sweep share.

The store is Optuna's: SQLite in the sweep's directory, or PostgreSQL for several machines. Only its
trials, their states and heartbeats are used. A trial is one claim of a run by one worker: it ends
COMPLETE, or FAIL with the error; FAIL without one means that the worker died or was told to stop, and
the run is put in the queue again. Whether a run is finished only its result.json decides, so nothing
here can make a finished run be trained again.
"""

from __future__ import annotations

import os
import socket
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import optuna
from optuna.exceptions import ExperimentalWarning, StorageInternalError, UpdateFinishedTrialError
from optuna.storages import fail_stale_trials
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.exc import SQLAlchemyError

from dbq.experiments.sweep.store import default_store, open_store, study_name
from dbq.experiments.sweep.sweep import Run
from dbq.support.lock import only_one

GRACE = 60  # seconds without a heartbeat after which a worker is taken for dead
BEATS = 6  # heartbeats in that time
PAUSE = 1.0  # seconds between two looks at the queue
RESULT = "result.json"  # of a run that is finished

State = Literal["finished", "running", "waiting", "failed", "missing"]


@dataclass(frozen=True)
class Status:
    """How far a run is. Missing: it is in nobody's hands, and not in the queue either."""

    state: State
    error: str = ""

    def __str__(self) -> str:
        return f"{self.state}: {self.error}" if self.error else self.state


@dataclass(frozen=True)
class Claim:
    """A run that is ours to train."""

    run: Run
    trial: FrozenTrial


class Queue:
    """The runs of a sweep, handed out one by one; any number of processes may have one open."""

    def __init__(self, runs: Sequence[Run], out: Path, store: str = "", grace: int = GRACE) -> None:
        self.runs, self.out = {run.name: run for run in runs}, out
        self.beat_every = max(1, grace // BEATS)
        # Alone: two processes that make the tables of a new store would be in each other's way.
        with self._alone(), warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            optuna.logging.set_verbosity(optuna.logging.WARNING)
            self.storage = open_store(store or default_store(out), self.beat_every, grace)
            self.study = optuna.create_study(
                storage=self.storage, study_name=study_name(out), load_if_exists=True,
                direction="maximize", sampler=optuna.samplers.RandomSampler(),
            )  # fmt: skip

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """While no other process of this sweep changes what is in the queue."""
        with only_one(self.out / "queue.lock"):
            yield

    def status(self) -> dict[str, Status]:
        """Of every run; one that cannot start because its baseline failed has failed, too."""
        found = self._own_status()
        for run in self.runs.values():
            base = found.get(run.baseline)
            if base and base.state == "failed" and found[run.name].state != "finished":
                found[run.name] = Status("failed", f"its baseline {run.baseline} failed")
        return found

    def _own_status(self) -> dict[str, Status]:
        claims: dict[str, list[FrozenTrial]] = {name: [] for name in self.runs}
        for trial in self.study.get_trials(deepcopy=False):
            claims.get(trial.user_attrs["run"], []).append(trial)
        return {
            name: Status("finished") if self.is_finished(name) else _status(trials)
            for name, trials in claims.items()
        }

    def is_finished(self, name: str) -> bool:
        return (self.out / name / RESULT).exists()

    def mend(self, retry: bool = False) -> None:
        """Put in the queue what is missing there: at first everything, later what dead workers had.

        With `retry`, what failed as well.
        """
        with self._alone(), warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            fail_stale_trials(self.study)
            for name, status in self._own_status().items():
                if status.state == "missing" or (retry and status.state == "failed"):
                    self.study.enqueue_trial({}, {"run": name, **self.runs[name].values})

    def claim(self) -> Claim | None:
        """A waiting run whose baseline is there, now ours; None if there is none."""
        for trial in self.study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
            run = self.runs.get(trial.user_attrs["run"])  # None: the sweep no longer has it
            if run is None or (run.baseline and not self.is_finished(run.baseline)):
                continue
            # The heartbeat comes first: a worker killed between the two must not go unnoticed.
            self.storage.record_heartbeat(trial._trial_id)
            with suppress(UpdateFinishedTrialError):
                # Not study.ask(): with nothing in the queue that would make a new trial.
                if self.storage.set_trial_state_values(trial._trial_id, TrialState.RUNNING):
                    self._note(trial, "worker", f"{socket.gethostname()} {os.getpid()}")
                    return Claim(run, trial)
        return None

    @contextmanager
    def beating(self, claim: Claim) -> Iterator[None]:
        """Show that the worker of a claim is alive, from a thread of its own."""
        stop = threading.Event()

        def beat() -> None:
            while not stop.wait(self.beat_every):
                with suppress(StorageInternalError, SQLAlchemyError):  # out of reach for a moment
                    self.storage.record_heartbeat(claim.trial._trial_id)
            self.storage.remove_session()

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def finish(self, claim: Claim, top1: float) -> None:
        self._end(claim, TrialState.COMPLETE, top1)

    def fail(self, claim: Claim, error: str) -> None:
        self._note(claim.trial, "error", error)
        self._end(claim, TrialState.FAIL)

    def put_back(self, claim: Claim) -> None:
        self._end(claim, TrialState.FAIL)
        self.mend()

    def _note(self, trial: FrozenTrial, key: str, value: str) -> None:
        with suppress(UpdateFinishedTrialError):
            self.storage.set_trial_user_attr(trial._trial_id, key, value)

    def _end(self, claim: Claim, state: TrialState, top1: float | None = None) -> None:
        """Our trial may have ended before: we were slow, and another worker was given the run."""
        with suppress(UpdateFinishedTrialError):
            self.study.tell(claim.trial.number, top1, state, skip_if_finished=True)

    def is_done(self) -> bool:
        """True if every run is finished or failed."""
        return all(status.state in ("finished", "failed") for status in self.status().values())


def _status(trials: Sequence[FrozenTrial]) -> Status:
    """Of a run without a result, from all its claims."""
    states = {trial.state for trial in trials}
    if TrialState.RUNNING in states:
        return Status("running")
    if TrialState.WAITING in states:
        return Status("waiting")
    error = trials[-1].user_attrs.get("error") if trials else None
    return Status("failed", error) if error else Status("missing")
