"""What may happen to a process and its files: for the tests, and for benchmarks/torture.py."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

# Python reads this file before anything else if its directory is in PYTHONPATH. The clock on the wall
# goes to any time at all, also backwards; the monotonic one leaps ahead, as after a machine was asleep.
JUMPY = """
import random, time
dice, monotonic, ahead = random.Random({seed}), time.monotonic, 0.0
def wall():
    return dice.uniform(0, 2**33)
def leaping():
    global ahead
    ahead += dice.choice((0, 0, 0, 3600, 86400))
    return monotonic() + ahead
time.time, time.time_ns, time.monotonic = wall, lambda: int(wall() * 1e9), leaping
"""


class NotHereError(Exception):
    """A disturbance that this machine does not allow; the message says why."""


@contextmanager
def small_disk(place: Path, kilobytes: int) -> Iterator[Path]:
    """A file system of that size at `place`, which only root can make."""
    place.mkdir()
    size = f"size={kilobytes}k"
    _mount("-t", "tmpfs", "-o", size, "none", str(place))
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def enlarge(place: Path, kilobytes: int) -> None:
    """Give a `small_disk` another size."""
    _mount("-o", f"remount,size={kilobytes}k", str(place))


def _mount(*arguments: str) -> None:
    if os.geteuid() != 0:
        raise NotHereError("only root can mount a small tmpfs")
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotHereError(f"cannot mount a small tmpfs ({done.stderr.strip()})")


def kill_while_writing(process: subprocess.Popen[Any], directory: Path, writes: int) -> bool:
    """Kill a process in the middle of its write number `writes`; False if it ended before."""
    seen: set[str] = set()
    while process.poll() is None:
        partial = {path.name for path in directory.glob("*.partial")}
        seen |= partial
        if partial and len(seen) > writes:
            process.send_signal(signal.SIGSTOP)
            if any(directory.glob("*.partial")):  # else it was renamed meanwhile
                process.kill()
                process.wait()
                return True
            process.send_signal(signal.SIGCONT)
        time.sleep(0.0005)
    return False


def jumping_clocks(directory: Path, seed: int) -> str:
    """A PYTHONPATH with which clocks jump in a Python process."""
    directory.mkdir(exist_ok=True)
    (directory / "sitecustomize.py").write_text(JUMPY.format(seed=seed))
    return os.pathsep.join([str(directory), *filter(None, [os.environ.get("PYTHONPATH")])])


def scatter_times(directory: Path, dice: Random) -> None:
    """Give every file any time of change between 1970 and 2242."""
    for path in directory.iterdir():
        os.utime(path, (dice.uniform(0, 2**33), dice.uniform(0, 2**33)))


def memory_in_use() -> int:
    """Bytes of memory that this process occupies now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
