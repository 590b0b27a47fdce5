"""A sweep of a few short runs, and what its runs must come to."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import torch

from dbq.experiments.sweep.sweep import load_sweep
from dbq.networks.weights import read_weights
from dbq.training.record.checkpoint import read_checkpoint
from dbq.training.record.rundir import RunDir
from dbq.training.run import train
from tests.runs import TINY, environment, single_thread

FLOAT = 'extends = "tiny.toml"\n[quantize]\nplan = "fp"\n[train]\nrate = 0.1\n'
SWEEP = """
about = "tests"
recipe = "tiny.toml"
float = "float.toml"
[shared]
model.width = [0.125, 0.25]
[grid]
"quantize.precision" = ["8b", "1T"]
"""
FOUR_RUNS = SWEEP.replace('"8b", "1T"', '"1T"')
EVERY_STEP = "machine.checkpoint_minutes=0"
EPOCHS = 3
LONGER = f"train.epochs={EPOCHS}"  # 9 steps


def write(folder: Path, sweep: str = SWEEP) -> Path:
    (folder / "tiny.toml").write_text(TINY)
    (folder / "float.toml").write_text(FLOAT)
    (folder / "tiny-sweep.toml").write_text(sweep)
    return folder / "tiny-sweep.toml"


def train_plainly(sweep: Path, out: Path) -> Path:
    """Its runs, one after the other, by `train` alone."""
    with single_thread():
        for run in load_sweep(sweep, [EVERY_STEP, LONGER]).runs(out):
            train(run.recipe, out / run.name)
    return out


def start(file: Path, out: Path, *options: str) -> subprocess.Popen[str]:
    """`dbq sweep`, as a process of its own."""
    sets = ("--set", EVERY_STEP, "--set", LONGER)
    return subprocess.Popen(
        [sys.executable, "-m", "dbq", "sweep", str(file), "--out", str(out), *sets, *options],
        env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def same_run(mine: Path, theirs: Path) -> None:
    for one, other in zip(networks(mine), networks(theirs), strict=True):
        assert one.keys() == other.keys()
        assert all(torch.equal(one[key], other[key]) for key in one)
    assert [row["epoch"] for row in RunDir(mine).metrics()] == list(range(EPOCHS))


def networks(run: Path) -> list[dict[str, torch.Tensor]]:
    return [read_weights(RunDir(run).final), read_weights(RunDir(run).best)]


def holders(run: Path) -> list[int]:
    """The processes that ever trained in a directory, the present one last."""
    lock = run / "lock"
    lines = lock.read_text().splitlines() if lock.exists() else []
    return [int(line.split()[1]) for line in lines]


def in_the_middle(out: Path, names: list[str], dead: set[int], timeout: float = 120) -> str:
    """Wait for a run with a checkpoint of its first epochs that a living process is training."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        for name in names:
            run = RunDir(out / name)
            if run.is_finished or not run.last.exists() or holders(run.path)[-1] in dead:
                continue
            _, metadata = read_checkpoint(run.last)
            if metadata["position"]["epoch"] < EPOCHS - 1:
                return name
        time.sleep(0.02)
    raise AssertionError("nothing was trained")
