"""Attacks on trainings: whatever happens to a run, resuming it ends with the same bits.

The run is the recipe digits-2t for two epochs, a checkpoint after every step. `base` holds one that
nobody disturbed (`whole`), one that was stopped half-way (`stopped`), and the float run before them.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from random import Random

from tests.disturbances import (
    enlarge,
    jumping_clocks,
    kill_while_writing,
    scatter_times,
    small_disk,
)
from tests.native.damage import mutants
from tests.runs import (
    dbq_train,
    environment,
    finished,
    same_network,
    wait_for_checkpoint,
    without_time,
)

LIMIT = 300  # seconds for any one run
SECONDS = 9.0  # about as long as an undisturbed run takes
FILES = 6_000  # kilobytes that a run needs on a disk, about
POLITE = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
RUDE = (signal.SIGQUIT, signal.SIGABRT, signal.SIGSEGV, signal.SIGUSR1, signal.SIGALRM)


def prepare(base: Path) -> None:
    """Train what the attacks compare with."""
    finished(dbq_train(Path("digits-fp"), base / "fp", "--set", "train.epochs=4"), LIMIT)
    finished(command(base, base / "whole"), LIMIT)
    process = start(base, base / "stopped")
    wait_for_checkpoint(base / "stopped", process, epoch=0, step=12, timeout=LIMIT)
    process.kill()
    process.communicate()


def command(base: Path, out: Path, *more: str) -> list[str]:
    options = (f"model.weights={base / 'fp'}", "train.epochs=2", "machine.checkpoint_minutes=0")
    settings = [part for option in options for part in ("--set", option)]
    return dbq_train(Path("digits-2t"), out, *settings, *more)


def start(base: Path, out: Path, **extra: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(base, out, "--resume"),
        env=environment() | extra,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str], *expected: int) -> str:
    """What a process that ends by itself has to say: never a traceback."""
    _, errors = process.communicate(timeout=LIMIT)
    assert process.returncode in expected, (process.returncode, errors[-2000:])
    assert "Traceback" not in errors, errors[-2000:]
    return errors


def same_in_the_end(base: Path, out: Path, **extra: str) -> Counter[str]:
    """Resume a run to its end: it must be the undisturbed one, and nothing may lie about."""
    ended(start(base, out, **extra), 0)
    same_network(base / "whole", out)
    assert without_time(base / "whole") == without_time(out)
    assert not list(out.glob("*.partial"))
    return Counter({"runs with the same bits": 1})


def kill_9(dice: Random, work: Path, base: Path) -> Counter[str]:
    """At any moment, from the first import to the last write, several times in a run."""
    counts: Counter[str] = Counter()
    for _ in range(dice.randint(1, 4)):
        process = start(base, work / "run")
        try:
            process.wait(dice.uniform(0, SECONDS))
        except subprocess.TimeoutExpired:
            process.kill()
            counts["kills"] += 1
        process.communicate()
    return counts + same_in_the_end(base, work / "run")


def kill_9_while_writing(dice: Random, work: Path, base: Path) -> Counter[str]:
    """While a partial file exists."""
    counts: Counter[str] = Counter()
    for _ in range(dice.randint(1, 3)):
        process = start(base, work / "run")
        if kill_while_writing(process, work / "run", writes=dice.randint(0, 60)):
            counts["kills"] += 1
        process.communicate()
    return counts + same_in_the_end(base, work / "run")


def other_signals(dice: Random, work: Path, base: Path) -> Counter[str]:
    """Polite ones save and say so; others end the process; one stops it for a while."""
    process = start(base, work / "run")
    wait_for_checkpoint(work / "run", process, epoch=0, step=dice.randint(0, 20), timeout=LIMIT)
    time.sleep(dice.uniform(0, 0.3))
    number = dice.choice((*POLITE, *RUDE, signal.SIGSTOP))
    process.send_signal(number)
    if number is signal.SIGSTOP:
        time.sleep(dice.uniform(0, 2))
        process.send_signal(signal.SIGCONT)
        ended(process, 0)
    elif number in POLITE:
        assert "--resume" in ended(process, 130)
    else:
        process.communicate(timeout=LIMIT)
        assert process.returncode == -number, (number, process.returncode)
    return Counter({"signals": 1}) + same_in_the_end(base, work / "run")


def two_at_once(dice: Random, work: Path, base: Path) -> Counter[str]:
    """Of two trainings in a directory one goes on; the other ends, naming the first."""
    processes = []
    for _ in range(2):
        processes.append(start(base, work / "run"))
        time.sleep(dice.uniform(0, 4))
    errors = [ended(process, 0, 2) for process in processes]
    codes = [process.returncode for process in processes]
    assert 0 in codes, errors
    if 2 in codes:
        other = processes[codes.index(0)]
        assert f"process {other.pid} " in errors[codes.index(2)], errors
    return Counter({"pairs": 1}) + same_in_the_end(base, work / "run")


def full_disk(dice: Random, work: Path, base: Path) -> Counter[str]:
    """A disk that fills up at some moment: one line, and after tidying up the run goes on."""
    with small_disk(work / "disk", dice.randint(4, FILES)) as disk:
        counts: Counter[str] = Counter()
        process = start(base, disk / "run")
        errors = ended(process, 0, 2)
        if process.returncode == 2:
            assert "cannot write" in errors, errors
            counts["full disks"] += 1
        enlarge(disk, 10 * FILES)
        return counts + same_in_the_end(base, disk / "run")


def jumping_clock(dice: Random, work: Path, base: Path) -> Counter[str]:
    """Clocks that jump while it trains; files from the past and from the future."""
    extra = {"PYTHONPATH": jumping_clocks(work / "clock", dice.randrange(2**32))}
    process = start(base, work / "run", **extra)
    wait_for_checkpoint(work / "run", process, epoch=0, step=dice.randint(0, 20), timeout=LIMIT)
    process.kill()
    process.communicate()
    scatter_times(work / "run", dice)
    return Counter({"kills": 1}) + same_in_the_end(base, work / "run", **extra)


def damaged_checkpoint(dice: Random, work: Path, base: Path) -> Counter[str]:
    """A changed last.safetensors is refused by name, or the change did not matter."""
    shutil.copytree(base / "stopped", work / "run")
    last = work / "run" / "last.safetensors"
    whole = last.read_bytes()
    (damaged,) = mutants([whole], dice, count=1, changes=(1,))
    last.write_bytes(damaged)
    process = start(base, work / "run")
    errors = ended(process, 0, 2)
    counts = Counter({"damaged checkpoints": 1})
    if process.returncode == 2:
        assert str(last) in errors, errors
        assert errors.count("\n") == 1, errors
        counts["refused by name"] += 1
        last.write_bytes(whole)
    return counts + same_in_the_end(base, work / "run")


ATTACKS = (
    kill_9, kill_9_while_writing, other_signals, two_at_once, full_disk, jumping_clock,
    damaged_checkpoint,
)  # fmt: skip
