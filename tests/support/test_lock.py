"""A lock has one holder, who can be named, and whose death frees it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from dbq.errors import LockedError, TrainingError
from dbq.support.lock import only_one

HOLDER = """
import sys
from pathlib import Path
from dbq.support.lock import only_one

with only_one(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.process
def test_another_process_is_named_and_its_death_frees_the_lock(tmp_path: Path) -> None:
    lock = tmp_path / "run" / "lock"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    with pytest.raises(LockedError) as error, only_one(lock, wait=False):
        pass
    assert str(lock.parent) in str(error.value)
    assert str(holder.pid) in str(error.value)
    assert socket.gethostname() in str(error.value)
    holder.kill()
    holder.communicate()  # until it is gone
    with only_one(lock, wait=False):
        pass
    pids = [int(line.split()[1]) for line in lock.read_text().splitlines()]
    assert pids == [holder.pid, os.getpid()], "a line for each holder"


@pytest.mark.parametrize("name", ["file", "file\0", "file" * 100])
def test_where_nothing_can_be_written(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TrainingError, match="file"), only_one(tmp_path / name / "lock"):
        pass
