"""A file is the old one or the new one, whoever else writes it and whenever a writer is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dbq.errors import DiskError
from dbq.support.atomic import partial_folder, write_atomically
from tests.disturbances import NotHereError, small_disk

# Writes until it is killed, which it is at the moment when the partial file is complete.
KILLED = """
import os, signal, sys
from pathlib import Path
from dbq.support.atomic import write_atomically

os.fsync = lambda handle: os.kill(os.getpid(), signal.SIGKILL)
write_atomically(Path(sys.argv[1]), b"never published")
"""


def test_many_writers_of_one_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    contents = [bytes([i]) * 200_000 for i in range(8)]

    def write_and_read(content: bytes) -> list[bytes]:
        found = []
        for _ in range(10):
            write_atomically(path, content)
            found.append(path.read_bytes())
        return found

    with ThreadPoolExecutor(8) as pool:
        seen = [read for reads in pool.map(write_and_read, contents) for read in reads]
    assert [len(read) for read in seen if read not in contents] == []
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.process
def test_what_killed_writers_leave_is_removed_by_the_next(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")
    (tmp_path / "file.mine.partial").write_bytes(b"somebody else's")
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
        assert done.returncode == -signal.SIGKILL
        assert path.read_bytes() == b"old"
        assert len(os.listdir(tmp_path)) == 3, "leftovers accumulate"
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    assert sorted(os.listdir(tmp_path)) == ["file", "file.mine.partial"]


def test_a_writer_at_work_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, sync = tmp_path / "file", os.fsync

    def write_another(handle: int) -> None:
        monkeypatch.setattr(os, "fsync", sync)
        write_atomically(path, b"second")
        assert path.read_bytes() == b"second"

    monkeypatch.setattr(os, "fsync", write_another)
    write_atomically(path, b"first")
    assert path.read_bytes() == b"first"
    assert os.listdir(tmp_path) == ["file"]


def test_file_and_directory_are_forced_to_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.fstat(handle).st_ino))
    write_atomically(tmp_path / "file", b"content")
    assert synced == [(tmp_path / "file").stat().st_ino, tmp_path.stat().st_ino]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real/file")
    write_atomically(tmp_path / "link", b"content")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "file").read_bytes() == b"content"


def test_an_interrupt_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(handle: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "file", b"content")
    assert os.listdir(tmp_path) == []


def test_a_folder_at_work_is_left_alone(tmp_path: Path) -> None:
    with partial_folder(tmp_path / "data") as first:
        (first / "file").write_bytes(b"content")
        with partial_folder(tmp_path / "data") as second:
            assert first != second
        assert (first / "file").exists()
    assert os.listdir(tmp_path) == []


@pytest.mark.process
def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    """A real one: a file system of 64 kB."""
    try:
        with small_disk(tmp_path / "disk", kilobytes=64) as disk:
            write_atomically(disk / "file", b"old")
            with pytest.raises(DiskError, match="No space left"):
                write_atomically(disk / "file", bytes(100_000))
            assert (disk / "file").read_bytes() == b"old"
            assert os.listdir(disk) == ["file"]
            write_atomically(disk / "file", bytes(30_000))
    except NotHereError as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("name", ["no/such/directory", "x" * 300, "nul\0", "."])
def test_what_cannot_be_written_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(DiskError) as caught:
        write_atomically(tmp_path / name, b"content")
    assert str(tmp_path) in str(caught.value)
    assert os.listdir(tmp_path) == []
