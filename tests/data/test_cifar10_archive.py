"""Getting CIFAR-10: fetched whole or not at all, only with the right checksum, unpacked safely."""

from __future__ import annotations

import hashlib
import io
import tarfile
from pathlib import Path

import pytest

from dbq.data.cifar10 import archive as cifar10_archive
from dbq.data.cifar10.fetching import fetch
from dbq.data.cifar10.files import FILES, PER_FILE, RECORD, load_cifar10
from dbq.data.table import prepare_data
from dbq.errors import DataError

NAME = "cifar-10-binary.tar.gz"


def md5(contents: bytes) -> str:
    return hashlib.md5(contents).hexdigest()


def tar(path: Path, files: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for name, contents in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(contents)
            archive.addfile(member, io.BytesIO(contents))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for the data set's home page, with its archive."""
    home = tmp_path / "home"
    home.mkdir()
    batch = bytes(PER_FILE * RECORD)
    names = [*FILES["train"], *FILES["test"]]
    tar(home / NAME, {f"cifar-10-batches-bin/{name}.bin": batch for name in names})
    monkeypatch.setattr(cifar10_archive, "HOME", home.as_uri() + "/")
    monkeypatch.setitem(cifar10_archive.ARCHIVES, NAME, md5((home / NAME).read_bytes()))
    return home


def test_fetched_unpacked_and_not_fetched_again(tmp_path: Path, home: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    data = tmp_path / "data"
    said = prepare_data("cifar10", data, lambda *step: seen.append(step))
    size = (home / NAME).stat().st_size
    assert str(data) in said
    assert seen[-1] == (NAME, size, size)
    assert sorted(path.name for path in data.iterdir()) == ["cifar-10-batches-bin", NAME]
    assert len(load_cifar10(data, "train")[1]) == 50_000
    (home / NAME).unlink()
    assert str(data) in prepare_data("cifar10", data)


def test_an_archive_put_there_by_hand(tmp_path: Path, home: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (home / NAME).rename(data / NAME)
    assert NAME in prepare_data("cifar10", data)
    assert load_cifar10(data, "test")[0].shape[0] == PER_FILE


def test_wrong_checksums(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "data"
    monkeypatch.setitem(cifar10_archive.ARCHIVES, NAME, "0" * 32)
    with pytest.raises(DataError, match=f"{NAME}.*{'0' * 32}"):
        prepare_data("cifar10", data)
    assert not data.exists()  # neither under its name nor half of it, and no empty folder
    data.mkdir()
    (data / NAME).write_bytes(b"half of it")
    with pytest.raises(DataError, match=f"{NAME}.*{md5(b'half of it')}"):
        prepare_data("cifar10", data)


def test_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cifar10_archive, "HOME", "http://127.0.0.1:9/")  # nobody listens there
    with pytest.raises(DataError) as caught:
        prepare_data("cifar10", tmp_path / "some" / "data")
    message = str(caught.value)
    assert "http://127.0.0.1:9/cifar-10-binary.tar.gz" in message
    assert str(tmp_path / "some" / "data" / NAME) in message, "where to put it by hand"
    assert list(tmp_path.iterdir()) == [], "an empty folder would look like a data set"
    assert "\n" not in message


def test_interrupted_fetch_leaves_nothing(tmp_path: Path, home: Path) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch((home / NAME).as_uri(), tmp_path / "archive", "", interrupt)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home"]


def test_a_fetch_that_fails_half_way_removes_only_what_it_made(tmp_path: Path, home: Path) -> None:
    (tmp_path / "mine").mkdir()
    for place in (tmp_path / "mine" / "x", tmp_path / "new" / "folder" / "x"):
        with pytest.raises(DataError, match="md5"):
            fetch((home / NAME).as_uri(), place, "0" * 32)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home", "mine"]


def test_two_fetches_and_two_unpackings_at_once(tmp_path: Path, home: Path) -> None:
    """Both succeed, whoever is first; what a killed one left is removed."""
    archive, whole = tmp_path / "data" / NAME, (home / NAME).read_bytes()
    again: list[object] = []

    def another(*_: object) -> None:
        if not again:
            again.append(None)
            fetch((home / NAME).as_uri(), archive, md5(whole))

    fetch((home / NAME).as_uri(), archive, md5(whole), another)
    assert archive.read_bytes() == whole
    left = tmp_path / "data" / f"cifar-10.{'0' * 16}.partial"
    (left / "cifar-10-batches-bin").mkdir(parents=True)
    for _ in range(2):
        cifar10_archive.unpack(archive, tmp_path / "data")
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == [
        "cifar-10-batches-bin", NAME,
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["../outside", "{tmp_path}/outside", "inner/../../../outside"])
def test_an_archive_writes_nowhere_else(tmp_path: Path, name: str) -> None:
    data = tmp_path / "some" / "data"
    data.mkdir(parents=True)
    hostile = name.format(tmp_path=tmp_path)
    tar(data / "x.tar.gz", {"inner/harmless": b"", hostile: b"hostile"})
    with pytest.raises(DataError, match=r"x\.tar\.gz"):
        cifar10_archive.unpack(data / "x.tar.gz", data)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["x.tar.gz"]


def test_damaged_archives(tmp_path: Path, home: Path) -> None:
    whole = (home / NAME).read_bytes()
    for contents in (b"", b"not a tar", whole[: len(whole) // 2]):
        (tmp_path / "x.tar.gz").write_bytes(contents)
        with pytest.raises(DataError, match=r"x\.tar\.gz"):
            cifar10_archive.unpack(tmp_path / "x.tar.gz", tmp_path)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["home", "x.tar.gz"]
