"""The .dbq file: golden bytes, the way back, and what is refused."""

from __future__ import annotations

import re
import struct
import zlib
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from dbq.deploy import reference
from dbq.deploy.engine import load
from dbq.deploy.file.fileformat import HEADER, load_program, read_program, save, write_program
from dbq.deploy.operations.convolution import Convolution
from dbq.deploy.operations.lookup import Lookup
from dbq.deploy.operations.table import OPERATIONS
from dbq.deploy.program import Output, Program
from dbq.deploy.tensors import Result, Shape, Tensor
from dbq.deploy.window import Window
from dbq.errors import DiskError, FileFormatError, LoweringError

ROOT = Path(__file__).parents[3]


def golden_program() -> Program:
    """The example of docs/format.md: a 1x2 grey image, two kernels of joined branches."""
    tensors = (Tensor("u8", Shape(1, 1, 2), 0.5), Tensor("f32", Shape(2, 1, 1), 1.0))
    lookup = Lookup("image", 0, np.arange(256, dtype=np.uint8)[None])
    codes = np.array(
        [[[[[1, 0]]], [[[-1, 1]]]], [[[[0, 0]]], [[[1, 1]]]]], np.int8
    )  # [2, 2, 1, 1, 2]
    factors = np.array([[2, 1], [3, 2]], np.uint8)
    scales = np.array([[0.25], [0.5]], np.float32)
    result = Result(1, 0, 0, scales, np.array([0.0, -2.0], np.float32))
    convolution = Convolution("fc", (result,), 0, Window((1, 2)), 1, codes, None, factors)
    return Program("two", tensors, (lookup, convolution), (Output(1),), {"classes": ["a", "b"]})


def dumped() -> bytes:
    """The bytes of the hex dump in docs/format.md; a row of dots stands for the lookup table."""
    text = (ROOT / "docs" / "format.md").read_text()
    (block,) = re.findall(r"```hexdump\n(.*?)```", text, re.S)
    found = bytearray()
    for line in block.splitlines():
        offset, content = line.split(maxsplit=1)
        assert int(offset, 16) == len(found), line
        if content.startswith("..."):
            found += bytes(range(256))
            continue
        found += bytes.fromhex(content.split("  ")[0])
    return bytes(found)


def test_golden_bytes() -> None:
    """The page, the writer and the reader agree; a new version needs a new page."""
    assert write_program(golden_program()).hex(" ") == dumped().hex(" ")
    program = read_program(dumped())
    assert write_program(program) == dumped()
    # by hand: kernel 0 sees 0.25 * 2 * 7, kernel 1 sees 0.5 * (3 * (9 - 7) + 2 * (7 + 9)) - 2
    image = np.array([[[[7], [9]]]], np.uint8)
    assert reference.run(program, image).tolist() == [[3.5, 17.0]]
    assert load(dumped())(image).tolist() == [[3.5, 17.0]]


def test_a_file_of_version_1() -> None:
    """Written and run by the last release that wrote version 1; all seven kinds it knew are in it."""
    content = (Path(__file__).parent / "golden" / "version_1.dbq").read_bytes()
    assert content[8] == 1
    program = read_program(content)
    assert program.outputs == (Output(program.output, ""),)
    assert {op.kind for op in program.operations} == {op.kind for op in OPERATIONS[:7]}
    images = (np.arange(2 * 27) ** 2 % 251).astype(np.uint8).reshape(2, 9, 3, 1)
    expected = [[-470.0], [-215.0]]
    assert reference.run(program, images).tolist() == expected
    assert load(content)(images).tolist() == expected
    assert load(write_program(program))(images).tolist() == expected


def test_the_page_lists_every_operation() -> None:
    """Kind, name and contents of each, as the code has them."""
    text = (ROOT / "docs" / "format.md").read_text()
    rows = re.findall(r"^\| (\d+) \| ([^|]+) \| ([^|]+) \|[^|]+\|$", text, re.M)
    listed = [(int(kind), name, contents) for kind, name, contents in rows]
    assert listed == [(i, op.kind, op.layout) for i, op in enumerate(OPERATIONS)]


def repaired(content: bytearray) -> bytes:
    """With the length and checksum that fit the body."""
    body = content[HEADER.size :]
    struct.pack_into("<IQ", content, 12, zlib.crc32(body), len(body))
    return bytes(content)


def test_python_reads_damaged_files_like_the_engine_does() -> None:
    """Truncated at every byte, every byte changed: an error of ours or a valid program, nothing else."""
    whole = dumped()
    for size in range(len(whole)):
        with pytest.raises(FileFormatError):
            read_program(whole[:size])
        if size > HEADER.size:
            with pytest.raises(FileFormatError):
                read_program(repaired(bytearray(whole[:size])))
    for at in range(HEADER.size, len(whole)):
        for value in (0, 1, 127, 255):
            changed = bytearray(whole)
            changed[at] = value
            with suppress(FileFormatError):  # anything else fails the test
                read_program(repaired(changed))


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [
        (0, b"X", r"\.dbq"),
        (8, b"\x03", "version 3"),
        (40, b"!", "checksum"),
    ],
)
def test_errors_say_what_is_wrong(at: int, value: bytes, message: str) -> None:
    whole = dumped()
    with pytest.raises(FileFormatError, match=message):
        read_program(whole[:at] + value + whole[at + 1 :])


def test_a_reserved_field_is_not_a_version() -> None:
    whole = dumped()
    with pytest.raises(FileFormatError, match="reserved") as caught:
        read_program(whole[:24] + b"\x01" + whole[25:])
    assert "version" not in str(caught.value)


def test_save_is_whole_or_nothing(tmp_path: Path) -> None:
    path = tmp_path / "net.dbq"
    assert save(golden_program(), path) == len(dumped())
    assert write_program(load_program(path)) == dumped()
    with pytest.raises(DiskError, match=r"missing/net\.dbq"):
        save(golden_program(), tmp_path / "missing" / "net.dbq")
    with pytest.raises(FileFormatError, match=r"other\.dbq"):
        load_program(tmp_path / "other.dbq")
    assert [p.name for p in tmp_path.iterdir()] == ["net.dbq"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 10**500, object(), {1, 2}])
def test_facts_that_no_reader_would_accept_are_not_written(value: object) -> None:
    with pytest.raises(LoweringError, match="facts"):
        write_program(golden_program().with_facts(odd=value))
