"""CIFAR-10's two forms: values in their places, and what is wrong with a damaged file."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from dbq.data.cifar10.files import FILES, PER_FILE, RECORD, load_cifar10
from dbq.data.options import DataOptions
from dbq.data.table import check_data, load_data
from dbq.errors import DataError


def write(path: Path, contents: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(contents)


def write_all(directory: Path, suffix: str, contents: bytes) -> None:
    """All six files, as links to one."""
    first, *others = [f"{name}{suffix}" for name in FILES["train"] + FILES["test"]]
    write(directory / first, contents)
    for name in others:
        os.link(directory / first, directory / name)


def short(text: bytes) -> bytes:
    """A str as Python 2 pickles it."""
    return b"U" + bytes([len(text)]) + text


def as_pickle(records: np.ndarray, shape: tuple[int, int] = (PER_FILE, 3072)) -> bytes:
    """A batch, opcode by opcode as in the official files: protocol 2, written by Python 2."""
    labels, pixels = records[:, 0].tolist(), records[:, 1:].tobytes()
    dtype = b"cnumpy\ndtype\n" + short(b"u1") + b"K\x00K\x01\x87R(K\x03" + short(b"|")
    dtype += b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + short(b"b")
    array += b"\x87R(K\x01M" + struct.pack("<H", shape[0]) + b"M" + struct.pack("<H", shape[1])
    array += b"\x86" + dtype + b"\x89T" + struct.pack("<i", len(pixels)) + pixels + b"tb"
    label_list = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    entries = short(b"batch_label") + short(b"testing batch 1 of 1")
    return b"\x80\x02}(" + entries + short(b"labels") + label_list + short(b"data") + array + b"u."


@pytest.fixture
def records() -> np.ndarray:
    records = np.zeros((PER_FILE, RECORD), dtype=np.uint8)
    records[7, 0] = 9
    records[7, 1 + 2 * 1024 + 3 * 32 + 5] = 200  # blue plane, row 3, column 5
    return records


@pytest.mark.parametrize(
    ("folder", "form"),
    [("", "bin"), ("", "py"), ("cifar-10-batches-bin", "bin"), ("cifar-10-batches-py", "py")],
)
def test_values_and_labels(tmp_path: Path, records: np.ndarray, folder: str, form: str) -> None:
    suffix, contents = (".bin", records.tobytes()) if form == "bin" else ("", as_pickle(records))
    write(tmp_path / folder / f"test_batch{suffix}", contents)
    images, labels = load_cifar10(tmp_path, "test")
    assert images.shape == (PER_FILE, 3, 32, 32)
    assert images.dtype == torch.uint8
    assert images.nonzero().tolist() == [[7, 2, 3, 5]]
    assert images[7, 2, 3, 5] == 200
    assert labels.nonzero().tolist() == [[7]]
    assert labels[7] == 9


def test_splits(tmp_path: Path, records: np.ndarray) -> None:
    write_all(tmp_path, ".bin", records.tobytes())
    train, test = load_data(DataOptions("cifar10", str(tmp_path), std=(1.0,) * 3, mean=(0.0,) * 3))
    assert (len(train), len(test), len(train.classes)) == (50_000, 10_000, 10)
    (batch,) = train.batches([torch.tensor([7, 10_007, 8])])
    assert batch.labels.tolist() == [9, 9, 0]
    assert batch.images.sum(dim=(1, 2, 3)).tolist() == pytest.approx([200 / 255, 200 / 255, 0])


def test_both_forms_have_one_checksum(tmp_path: Path, records: np.ndarray) -> None:
    records[:, 0] = np.arange(PER_FILE) % 10
    write_all(tmp_path / "binary", ".bin", records.tobytes())
    write_all(tmp_path / "python", "", as_pickle(records))
    binary, python = (check_data("cifar10", tmp_path / form) for form in ("binary", "python"))
    assert binary == python
    assert binary.problems == []
    assert binary.splits[0].per_class["cat"] == 5000
    records[5, 77] = 4
    (tmp_path / "binary" / "test_batch.bin").unlink()
    write(tmp_path / "binary" / "test_batch.bin", records.tobytes())
    assert check_data("cifar10", tmp_path / "binary").sha256 != python.sha256


def test_damaged_and_missing_files(tmp_path: Path, records: np.ndarray) -> None:
    with pytest.raises(DataError, match=str(tmp_path)):
        load_cifar10(tmp_path, "test")
    write(tmp_path / "test_batch.bin", records[:-1].tobytes())
    with pytest.raises(DataError, match=r"test_batch\.bin.*30726927"):
        load_cifar10(tmp_path, "test")
    with pytest.raises(DataError, match=r"data_batch_1\.bin"):
        load_cifar10(tmp_path, "train")
    records[3, 0] = 10
    write(tmp_path / "test_batch.bin", records.tobytes())
    with pytest.raises(DataError, match=r"test_batch\.bin.* 10,"):
        load_cifar10(tmp_path, "test")


def test_damaged_pickles(tmp_path: Path, records: np.ndarray) -> None:
    path = tmp_path / "test_batch"
    whole = as_pickle(records)
    bad_label = records[:, :].copy()
    bad_label[3, 0] = 10
    fewer = records[:-1]
    for contents, name in [
        (b"", ""),
        (b"GIF89a", ""),
        (bytes(1000), ""),
        (whole[: len(whole) // 2], ""),
        (as_pickle(bad_label), "labels"),
        (as_pickle(fewer, (PER_FILE - 1, 3072)), "data"),
        (as_pickle(records, (PER_FILE, 3071)), ""),
        (whole.replace(b"U\x02u1", b"U\x02i1"), "data"),
        (b"\x80\x02}.", "labels"),
        (b"\x80\x02].", ""),
        (b"\x80\x02}(" + short(b"labels") + b"]" + short(b"data") + b"]u.", "data"),
    ]:
        write(path, contents)
        with pytest.raises(DataError, match=f"test_batch.*{name}"):
            load_cifar10(tmp_path, "test")


@pytest.mark.parametrize(
    ("program", "asks"),
    [
        (b"\x80\x02cposix\nsystem\nU\x0etouch {marker}\x85R.", "posix.system"),
        (b'cbuiltins\neval\n(S\'open("{marker}", "w")\'\ntR.', "builtins.eval"),
        (b'(S\'open("{marker}", "w")\'\nibuiltins\nexec\n.', "builtins.exec"),
        (b"\x80\x04\x8c\x05numpy\x8c\x04load\x93.", "numpy.load"),
        (b"\x80\x04\x8c\x05numpy\x8c\x11ndarray.__class__\x93.", "numpy.ndarray.__class__"),
    ],
)
def test_a_pickle_cannot_run_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: bytes, asks: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "test_batch", program.replace(b"{marker}", b"hostile!"))
    with pytest.raises(DataError, match=asks):
        load_cifar10(tmp_path, "test")
    assert not (tmp_path / "hostile!").exists()


def test_animals_against_vehicles(tmp_path: Path, records: np.ndarray) -> None:
    """Ten labels, as the official batches.meta lists them, become two; pixels stay as they are."""
    records[:10, 0] = range(10)
    records[10:, 0] = 6
    write_all(tmp_path, ".bin", records.tobytes())
    train, test = load_data(DataOptions("cifar10-vehicles", str(tmp_path)))
    assert test.classes == ("animal", "vehicle")
    seen = next(iter(test.batches([torch.arange(11)], 0))).labels
    #       airplane, automobile, bird, cat, deer, dog, frog, horse, ship, truck; frog
    assert seen.tolist() == [1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 0]
    assert (len(train), len(test)) == (50_000, 10_000)
    ten = load_data(DataOptions("cifar10", str(tmp_path)))[1]
    both = [next(iter(split.batches([torch.arange(9)], 0))).images for split in (test, ten)]
    assert torch.equal(*both)
