"""A sweep on a Ray cluster: a task for each run, which another node repeats if its node dies.

The runs' directories must be on a file system that all nodes share, under the same path; so must be
whatever recipes name (data, weights). A repeated task resumes the run from its last checkpoint. Should
the node that was taken for dead be alive after all, it still holds the run's lock, and the task waits.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Sequence
from typing import Any

from dbq.errors import TrainingError, first_line
from dbq.experiments.sweep.runner import PAUSE, Task, work
from dbq.training.recipe import Recipe

RETRIES = 10  # nodes that may die under one run
FAREWELL = 60  # seconds for cancelled tasks to save


class RayTasks:
    """The runs of a sweep as tasks of the cluster at `address`; "auto" finds a running one."""

    def __init__(self, tasks: Sequence[Task], address: str) -> None:
        self.ray = _connect(address)
        gpus = self.ray.cluster_resources().get("GPU", 0)
        self.left: dict[Any, Task] = {}  # by Ray's reference
        references: dict[str, Any] = {}  # by directory
        for task in tasks:
            device = Recipe.from_toml(task.recipe, task.name).machine.device
            options = {"max_retries": RETRIES, "num_gpus": int(gpus > 0 and device != "cpu")}
            remote = self.ray.remote(**options)(_train)
            # Ray starts a task when the references among its arguments are done.
            reference = remote.remote(task, references.get(task.baseline))
            references[task.directory] = reference
            self.left[reference] = task

    def is_at_work(self) -> bool:
        if not self.left:
            return False
        done, _ = self.ray.wait(list(self.left), num_returns=len(self.left), timeout=PAUSE)
        for reference in done:
            task = self.left.pop(reference)
            try:
                self.ray.get(reference)
            except self.ray.exceptions.RayError as error:  # retries used up, or dbq is not there
                task.files.write_error(f"Ray: {type(error).__name__}: {first_line(error)}")
        return True

    def stop(self) -> None:
        for reference in self.left:
            self.ray.cancel(reference)  # a KeyboardInterrupt in the task, which then saves
        if self.left:
            self.ray.wait(list(self.left), num_returns=len(self.left), timeout=FAREWELL)
        self.ray.shutdown()


def _train(task: Task, baseline: None) -> None:
    work([task])


def _connect(address: str) -> Any:
    try:
        import ray
    except ImportError:
        raise TrainingError("--ray needs Ray: pip install ray") from None
    try:
        host, colon, port = address.rpartition(":")
        if colon and port.isdigit():  # Ray itself would try for minutes
            socket.create_connection((host.rpartition("/")[2], int(port)), timeout=10).close()
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, ValueError, RuntimeError) as error:
        raise TrainingError(f"no Ray cluster at {address}: {first_line(error)}") from None
    return ray
