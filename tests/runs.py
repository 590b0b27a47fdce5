"""Short runs, in this process or in one of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

from dbq.training.recipe import Recipe, load_recipe
from dbq.training.record.checkpoint import read_checkpoint

TINY = """
about = "tests"
[model]
name = "resnet20"
[data]
name = "digits"
[train]
epochs = 2
batch = 360
rate = 0.02
every = "step"
[quantize]
plan = "resnet-2t"
[temperature]
start = 20
increment = 20
[machine]
device = "cpu"
"""


class single_thread:  # noqa: N801  # reads as a phrase where it is used
    """What torchrun gives its processes; sums then have the same order everywhere."""

    def __enter__(self) -> None:
        self.before = torch.get_num_threads()
        torch.set_num_threads(1)

    def __exit__(self, *error: object) -> None:
        torch.set_num_threads(self.before)


def tiny_recipe(path: Path, *overrides: str) -> Recipe:
    return load_recipe(path, overrides)


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}


def dbq_train(recipe: Path, out: Path, *arguments: str) -> list[str]:
    """The command line of a run of its own."""
    return [sys.executable, "-m", "dbq", "train", str(recipe), "--out", str(out), *arguments]


def torchrun(processes: int, command: list[str], *options: str) -> list[str]:
    """The same command under torchrun."""
    launcher = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={processes}"]
    return [*launcher, "--standalone", *options, *command[1:]]


def wait_for_checkpoint(
    run: Path, process: subprocess.Popen[Any], epoch: int, step: int, timeout: float = 90
) -> None:
    """Until the run has a checkpoint of that position or later."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        assert process.poll() is None, "the run ended before it could be disturbed"
        if (run / "last.safetensors").exists():
            _, facts = read_checkpoint(run / "last.safetensors")
            if (facts["position"]["epoch"], facts["position"]["step"]) >= (epoch, step):
                return
        time.sleep(0.02)
    raise AssertionError(f"no checkpoint in {timeout} s")


def finished(command: list[str], timeout: float = 120) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=timeout, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done


def same_network(one: Path, other: Path) -> None:
    """Both runs ended with the same bits."""
    for name in ("model.safetensors", "best.safetensors"):
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


def without_time(run: Path) -> list[dict[str, object]]:
    """What a run recorded of its epochs, but for how long they took."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: row[key] for key in row if key != "seconds"} for row in rows]
