"""Nothing is lost: a run that was killed or stopped ends with the same bits as one that was not."""

from __future__ import annotations

import fcntl
import json
import multiprocessing
import os
import random
import resource
import signal
import subprocess
import termios
import time
from pathlib import Path

import pytest
import torch
from torch import Tensor

from dbq.errors import DataError, TrainingError
from dbq.training.processes.interrupt import StopRequest, stop_on_signal
from dbq.training.processes.world import World
from dbq.training.recipe import load_recipe
from dbq.training.record.checkpoint import read_checkpoint
from dbq.training.run import Position, _Run, train
from dbq.training.watchers.watching import StepReport
from tests.disturbances import jumping_clocks, kill_while_writing, scatter_times
from tests.runs import (
    dbq_train,
    environment,
    finished,
    same_network,
    single_thread,
    tiny_recipe,
    wait_for_checkpoint,
    without_time,
)

from .test_shipped_recipes import make_imagenet

pytestmark = pytest.mark.process
EVERY_STEP = "machine.checkpoint_minutes=0"
LONG = ("--set", "train.epochs=3", "--set", EVERY_STEP)  # 9 steps, a checkpoint after each


def start(recipe: Path, out: Path, *arguments: str) -> subprocess.Popen[bytes]:
    command = dbq_train(recipe, out, *arguments)
    return subprocess.Popen(
        command, env=environment(), stderr=subprocess.PIPE, preexec_fn=hear_hangups
    )


def hear_hangups() -> None:
    """Whatever this process does: children of nohup ignore them."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture
def undisturbed(tiny: Path, tmp_path: Path) -> Path:
    recipe = tiny_recipe(tiny, "train.epochs=3", EVERY_STEP)
    with single_thread():
        train(recipe, tmp_path / "undisturbed")
    return tmp_path / "undisturbed"


def test_killed_in_the_middle_of_an_epoch(tiny: Path, tmp_path: Path, undisturbed: Path) -> None:
    out = tmp_path / "killed"
    process = start(tiny, out, *LONG)
    wait_for_checkpoint(out, process, epoch=1, step=1)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not (out / "result.json").exists(), "killed too late to show anything"
    finished(dbq_train(tiny, out, *LONG, "--resume"))
    same_network(undisturbed, out)
    assert without_time(undisturbed) == without_time(out)


def test_killed_while_a_partial_file_exists(tiny: Path, tmp_path: Path, undisturbed: Path) -> None:
    out = tmp_path / "killed"
    process = start(tiny, out, *LONG)
    assert kill_while_writing(process, out, writes=6), "ended before it could be killed"
    process.communicate()
    assert len(list(out.glob("*.partial"))) == 1
    finished(dbq_train(tiny, out, *LONG, "--resume"))
    assert not list(out.glob("*.partial"))
    same_network(undisturbed, out)


def test_clocks_jump(
    tiny: Path, tmp_path: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it trains; and the files are from the past and from the future when it resumes."""
    monkeypatch.setenv("PYTHONPATH", jumping_clocks(tmp_path / "clock", seed=0))
    out = tmp_path / "jumped"
    process = start(tiny, out, *LONG)
    wait_for_checkpoint(out, process, epoch=1, step=1)
    process.kill()
    process.communicate()
    scatter_times(out, random.Random(0))
    finished(dbq_train(tiny, out, *LONG, "--resume"))
    same_network(undisturbed, out)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_interrupted_politely(
    tiny: Path, tmp_path: Path, undisturbed: Path, number: signal.Signals
) -> None:
    out = tmp_path / "stopped"
    process = start(tiny, out, *LONG)
    wait_for_checkpoint(out, process, epoch=0, step=1)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"--resume" in errors
    assert b"Traceback" not in errors
    finished(dbq_train(tiny, out, *LONG, "--resume"))
    same_network(undisturbed, out)


def test_a_whole_group_told_to_end(tmp_path: Path) -> None:
    """As schedulers do it: SIGTERM to every process, those that decode images included."""
    make_imagenet(tmp_path / "data")
    out = tmp_path / "run"
    small = ("data.image_size=32", "model.width=0.125", "train.batch=5", "train.epochs=100",
             f"data.directory={tmp_path / 'data'}", "data.workers=2", EVERY_STEP)  # fmt: skip
    command = dbq_train(Path("mobilenet_v1-fp"), out, *(p for s in small for p in ("--set", s)))
    process = subprocess.Popen(
        command, env=environment(), stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    wait_for_checkpoint(out, process, epoch=1, step=0)
    os.killpg(process.pid, signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "--resume" in errors
    assert "Traceback" not in errors


def test_the_terminal_is_closed(tiny: Path, tmp_path: Path) -> None:
    """The last step is saved, although nothing can be printed any more."""
    ours, theirs = os.openpty()
    out = tmp_path / "run"

    def own_terminal() -> None:
        fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)
        hear_hangups()

    process = subprocess.Popen(
        dbq_train(tiny, out, "--set", "train.epochs=1000"),
        env=environment(), stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        preexec_fn=own_terminal,
    )  # fmt: skip
    os.close(theirs)
    wait_for_checkpoint(out, process, epoch=1, step=0)
    before = (out / "last.safetensors").stat().st_mtime_ns
    os.close(ours)
    process.wait(timeout=60)
    assert process.returncode > 0, "ended by the signal, not by itself"
    assert (out / "last.safetensors").stat().st_mtime_ns > before
    assert (out / "lock").exists()


def test_nohup_is_heeded() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_on_signal() as request:
            signal.raise_signal(signal.SIGHUP)
        assert not request.made
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_data_worker_killed_while_the_network_computes(tmp_path: Path) -> None:
    """torch raises from a signal handler, so in whatever line the main process is."""
    make_imagenet(tmp_path / "data")

    class Killer:
        def message(self, text: str) -> None: ...

        def epoch(self, row: dict[str, object]) -> None: ...

        def step(self, report: StepReport) -> None:
            for worker in multiprocessing.active_children():
                worker.kill()
            time.sleep(30)

    recipe = load_recipe("mobilenet_v1-fp", [
        "data.image_size=32", "model.width=0.125", "train.batch=2", "train.epochs=9",
        f"data.directory={tmp_path / 'data'}", "data.workers=1", "machine.device=cpu",
    ])  # fmt: skip
    with single_thread(), pytest.raises(DataError, match=r"data\.workers") as caught:
        train(recipe, tmp_path / "run", watchers=(Killer(),))
    assert "\n" not in str(caught.value)


def test_what_is_there_is_not_overwritten(tiny: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    recipe = tiny_recipe(tiny, "train.epochs=1")
    with single_thread():
        first = train(recipe, out)
        with pytest.raises(TrainingError, match="--resume"):
            train(recipe, out)
        before = (out / "model.safetensors").stat().st_mtime_ns
        assert train(recipe, out, resume=True) == first, "a finished run is not done again"
        assert (out / "model.safetensors").stat().st_mtime_ns == before
        with pytest.raises(TrainingError, match=r"train.rate"):
            train(tiny_recipe(tiny, "train.epochs=1", "train.rate=0.5"), out, resume=True)


def test_elsewhere_and_otherwise_computed_it_goes_on(tiny: Path, tmp_path: Path) -> None:
    """What does not decide the outcome may change, and what was set need not be set again."""
    out = tmp_path / "run"
    finished(dbq_train(tiny, out, "--set", "train.epochs=1", "--set", "train.seed=5"))
    (out / "result.json").unlink()
    again = dbq_train(tiny, out, "--resume", "--set", "data.workers=0", "--set",
                      "machine.channels_last=true", "--json")  # fmt: skip
    result = json.loads(finished(again).stdout)
    assert (result["epochs"], result["seed"]) == (1, 5)


def test_a_request_that_comes_during_the_sums_is_not_lost() -> None:
    """The handler may run at any moment, also while the sums of a step are added up."""

    class Summing(World):
        def total(self, values: Tensor) -> Tensor:
            request.made = True
            return values

    request, run = StopRequest(), object.__new__(_Run)
    run.world, run.at = Summing(0, 1, torch.device("cpu")), Position()
    run.pending = torch.zeros(3, dtype=torch.double)
    assert not run._asked_to_stop(request)
    assert run._asked_to_stop(request)


def test_stopped_at_the_last_step_of_an_epoch(
    tiny: Path, tmp_path: Path, undisturbed: Path
) -> None:
    class StopThere:
        def message(self, text: str) -> None: ...

        def epoch(self, row: dict[str, object]) -> None: ...

        def step(self, report: StepReport) -> None:
            if (report.epoch, report.step) == (0, report.steps - 1):
                os.kill(os.getpid(), signal.SIGINT)

    recipe = tiny_recipe(tiny, "train.epochs=3", EVERY_STEP)
    out = tmp_path / "stopped"
    with single_thread():
        with pytest.raises(KeyboardInterrupt):
            train(recipe, out, watchers=(StopThere(),))
        _, metadata = read_checkpoint(out / "last.safetensors")
        assert (metadata["position"]["epoch"], metadata["position"]["step"]) == (0, 3)
        train(recipe, out, resume=True)
    same_network(undisturbed, out)
    assert without_time(undisturbed) == without_time(out)


def test_damaged_checkpoint_is_named(tiny: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    recipe = tiny_recipe(tiny, "train.epochs=1")
    with single_thread():
        train(recipe, out)
        (out / "result.json").unlink()
        whole = (out / "last.safetensors").read_bytes()
        (out / "last.safetensors").write_bytes(whole[: len(whole) // 2])
        with pytest.raises(TrainingError, match=r"last\.safetensors"):
            train(recipe, out, resume=True)


def test_full_disk_leaves_the_last_checkpoint(tiny: Path, tmp_path: Path) -> None:
    """A limit on the size of files stands for a full disk: the write fails half-way, for real."""
    out = tmp_path / "run"
    finished(dbq_train(tiny, out, "--set", "train.epochs=1", "--set", EVERY_STEP))
    (out / "result.json").unlink()
    before = (out / "last.safetensors").read_bytes()

    def small_files() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    done = subprocess.run(
        dbq_train(tiny, out, "--set", "train.epochs=1", "--set", EVERY_STEP, "--resume"),
        env=environment(), capture_output=True, text=True, preexec_fn=small_files, check=False,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert "error: cannot write" in done.stderr
    assert "File too large" in done.stderr
    assert "Traceback" not in done.stderr
    assert (out / "last.safetensors").read_bytes() == before
    assert not [name for name in os.listdir(out) if name.endswith(".partial")]
