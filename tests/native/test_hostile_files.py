"""Files that lie: each gets a named error and one line of text, none a crash or a wrong result."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from dbq.deploy import reference
from dbq.deploy.engine import load
from dbq.deploy.file.fileformat import read_program, write_program
from dbq.deploy.tensors import Shape
from dbq.errors import DbqError, EngineError, FileFormatError
from tests.native.damage import HEADER, bit_flips, extreme_words, repaired, truncations
from tests.native.handmade import (
    images_for,
    one_average,
    one_convolution,
    small_program,
    tall_depthwise,
)

pytestmark = pytest.mark.native

SMALL = write_program(small_program())


def refusal(content: bytes | str | Path) -> str:
    """The error that loading `content` gives: one line that says what to do."""
    with pytest.raises(DbqError) as caught:
        load(content)
    text = str(caught.value)
    assert isinstance(caught.value, FileFormatError | EngineError)
    assert text
    assert "\n" not in text
    return text


def problem(content: bytes) -> str | None:
    """What the engine has against a file; None if it loads."""
    try:
        load(content).close()
    except (FileFormatError, EngineError) as error:
        return str(error)
    return None


def problem_in_python(content: bytes) -> str | None:
    """The same of the Python reader."""
    try:
        read_program(content)
    except FileFormatError as error:
        return str(error)
    return None


def survivors(files: Iterable[bytes]) -> list[bytes]:
    """Those that load. All others must be refused with a text."""
    problems = [(content, problem(content)) for content in files]
    assert all(text != "" for _, text in problems)
    return [content for content, text in problems if text is None]


def test_truncated_anywhere() -> None:
    assert survivors(truncations(SMALL)) == []
    bodies = truncations(SMALL[HEADER:])
    assert survivors(repaired(body) for body in bodies) == []


def test_every_bit_flipped_under_the_checksum() -> None:
    assert survivors(bit_flips(SMALL)) == []


def test_every_bit_flipped_with_the_checksum_repaired() -> None:
    """What still loads must mean the same to the Python reader, and run to the same numbers."""
    flips = [repaired(body) for body in bit_flips(SMALL[HEADER:])]
    loaded = survivors(flips)
    assert 100 < len(loaded) < len(flips)  # floats and weights have many valid values
    for content in loaded[::3]:  # every third: the numpy reference takes its time
        program = read_program(content)
        images = images_for(program, 1)
        with load(content) as net:
            np.testing.assert_equal(net(images), reference.run(program, images))


def test_extreme_numbers_everywhere() -> None:
    files = survivors(repaired(body) for body in extreme_words(SMALL[HEADER:]))
    assert len(files) > 10
    assert [content for content in files if problem_in_python(content) is not None] == []


def test_both_readers_refuse_the_same_files() -> None:
    flips = [repaired(body) for body in bit_flips(SMALL[HEADER:])]
    refused = [content for content in flips if problem(content) is not None]
    assert len(refused) > 1000
    assert [content for content in refused if problem_in_python(content) is None] == []
    zero_in_a_name = repaired(b"\1\0\0" + SMALL[HEADER + 3 :])
    assert problem(zero_in_a_name) is not None
    assert problem_in_python(zero_in_a_name) is not None


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "no .dbq file"),
        (b"\x89PNG\r\n\x1a\n" + bytes(100), "no .dbq file"),
        (SMALL[:31], "no .dbq file"),
        (repaired(SMALL[HEADER:], version=3), "version 3, this library reads 1 to 2"),
        (SMALL + b"\0", "bytes after the header"),
        (SMALL[:24] + b"\1" + SMALL[25:], "header are not 0"),
        (SMALL[:12] + b"\0\0\0\0" + SMALL[16:], "checksum"),
        (SMALL.replace(b"\r\n\x1a\n", b"\n\x1a\n"), "no .dbq file"),
        (repaired(b""), "ends too early"),
        (repaired(SMALL[HEADER:] + b"\0"), "after the last operation"),
        (repaired(b"\xff\xff"), "65535 expected"),
        (repaired(b"\0\0\xff\xff\xff\xff"), "4294967295 expected"),
        (repaired(b"\0\0\2\0\0\0{}\xff\xff\xff\xff"), "tensors: 4294967295"),
        (repaired(b"\1\0\xff" + SMALL[HEADER + 3 :]), "not UTF-8"),
        (repaired(b"\1\0\0" + SMALL[HEADER + 3 :]), "is 0"),
    ],
)
def test_damaged_frames(content: bytes, words: str) -> None:
    assert words in refusal(content)


TENSOR = struct.Struct("<BIIIf")
TABLE = HEADER + len(b"\1\0s") + 4 + len(b"{}") + 4  # where the first tensor starts


def with_tensor(index: int, *fields: float) -> bytes:
    at = TABLE + index * TENSOR.size
    return repaired((SMALL[:at] + TENSOR.pack(*fields) + SMALL[at + TENSOR.size :])[HEADER:])


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ((4, 1, 3, 3, 1.0), "type of a tensor: 4"),
        ((0, 0, 3, 3, 1.0), "channels of a tensor: 0"),
        ((0, 65536, 3, 3, 1.0), "channels of a tensor: 65536"),
        ((0, 1, 0, 3, 1.0), "height of a tensor: 0"),
        ((0, 1, 3, 65536, 1.0), "width of a tensor: 65536"),
        ((0, 1, 65535, 65535, 1.0), "4294836225 pixels"),
        ((0, 1, 3, 3, float("nan")), "scale of a tensor: nan"),
        ((0, 1, 3, 3, float("inf")), "scale of a tensor: inf"),
        ((0, 1, 3, 3, 2e20), "scale of a tensor: 2e+20"),
        ((0, 1, 3, 3, 0.0), "scale of a tensor: not above 0"),
        ((0, 1, 3, 3, -1.0), "scale of a tensor: not above 0"),
        ((2, 1, 3, 3, 1.0), "not of type u8 or i8"),
        ((0, 65535, 3, 3, 1.0), "ends too early"),
    ],
)
def test_hostile_tensors(fields: tuple[float, ...], words: str) -> None:
    assert words in refusal(with_tensor(0, *fields))


def with_numbers(old: bytes, new: bytes) -> bytes:
    """The small file with one operation's bytes replaced; they occur once."""
    assert SMALL.count(old) == 1
    return repaired(SMALL.replace(old, new)[HEADER:])


WINDOW = struct.pack("<I6H", 4, 2, 2, 2, 2, 1, 1)  # input and window of the max pool
ADD = b"\2\1\0a" + struct.pack("<II", 1, 2)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (ADD, b"\2\1\0a" + struct.pack("<II", 1, 99), "tensor 99, but there are"),
        (ADD, b"\2\1\0a" + struct.pack("<II", 1, 3), "read before it is written"),
        (ADD, b"\2\1\0a" + struct.pack("<II", 1, 4), "read before it is written"),
        (ADD, b"\2\1\0a" + struct.pack("<II", 1, 0), "second summand of 1 channels"),
        (ADD, b"\14\1\0a" + struct.pack("<II", 1, 2), "kind: 12"),
        (ADD, b"\0\1\0a" + struct.pack("<II", 1, 2), "lookup must be the first"),
        (WINDOW, struct.pack("<I6H", 4, 0, 2, 2, 2, 0, 1), "kernel rows: 0"),
        (WINDOW, struct.pack("<I6H", 4, 256, 2, 2, 2, 0, 1), "kernel rows: 256"),
        (WINDOW, struct.pack("<I6H", 4, 2, 2, 0, 2, 1, 1), "stride of rows: 0"),
        (WINDOW, struct.pack("<I6H", 4, 2, 2, 2, 256, 1, 1), "stride of columns: 256"),
        (WINDOW, struct.pack("<I6H", 4, 2, 2, 2, 2, 2, 1), "padding at the top: 2"),
        (WINDOW, struct.pack("<I6H", 4, 2, 2, 255, 2, 1, 1), "last window starts at 254"),
        (WINDOW, struct.pack("<I6H", 3, 2, 2, 2, 2, 1, 1), "type and scale"),
    ],
)  # fmt: skip
def test_hostile_operations(old: bytes, new: bytes, words: str) -> None:
    assert words in refusal(with_numbers(old, new))


SPAN = struct.pack("<ff", -3.0, 3.0)  # low and high of the curve
CURVE = b"\7\1\0g" + struct.pack("<IB", 6, 1)
KNOTS = struct.pack("<H3f", 2, 0.0, 0.25, 1.0)
PLACES = struct.pack("<5H", 1, 0, 0xFFFF, 1, 0)
BLEND = struct.pack("<HHfHHf", 0, 1, 0.25, 1, 1, 0.0)
PRODUCT = b"\10\1\0t" + struct.pack("<II", 9, 10)
OUTPUTS = struct.pack("<IIHIH", 2, 12, 0, 13, 3) + b"map"


def blended(first: int, second: int, share: float) -> bytes:
    return struct.pack("<HHf", first, second, share) + BLEND[8:] + BLEND


def listed(*outputs: tuple[int, bytes]) -> bytes:
    parts = (struct.pack("<IH", tensor, len(name)) + name for tensor, name in outputs)
    return struct.pack("<I", len(outputs)) + b"".join(parts)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (CURVE, CURVE[:-1] + b"\2", "form of the curve: 2"),
        (CURVE, b"\7\1\0g" + struct.pack("<IB", 12, 1), "read before it is written"),
        (SPAN, struct.pack("<ff", 3.0, 3.0), "a curve from 3 to 3"),
        (SPAN, struct.pack("<ff", 3.0, -3.0), "a curve from 3 to -3"),
        (SPAN, struct.pack("<ff", float("nan"), 3.0), "low end of the curve: nan"),
        (SPAN, struct.pack("<ff", 0.0, float("inf")), "high end of the curve: inf"),
        (SPAN, struct.pack("<ff", -2e20, 3.0), "low end of the curve: -2e+20"),
        (SPAN, struct.pack("<ff", 0.0, 1e-21), "segments for each unit: 2e+21"),
        (KNOTS, struct.pack("<H", 0) + KNOTS[2:], "segments: 0"),
        (KNOTS, struct.pack("<H", 4097) + KNOTS[2:], "segments: 4097"),
        (KNOTS, struct.pack("<H", 4096) + KNOTS[2:], "ends too early"),
        (KNOTS, struct.pack("<H3f", 2, 0.0, float("nan"), 1.0), "a knot of nan"),
        (KNOTS, struct.pack("<H3f", 2, 0.0, 1.0, -6e8), "a knot of -6e+08"),
        (PLACES, struct.pack("<5H", 2, 0, 0xFFFF, 1, 0), "row of the input: 2"),
        (PLACES, struct.pack("<5H", 1, 0, 0xFFFE, 1, 0), "column of the input: 65534"),
        (BLEND + BLEND, blended(2, 1, 0.25), "row of the input: 2"),
        (BLEND + BLEND, blended(0, 65535, 0.25), "row of the input: 65535"),
        (BLEND + BLEND, blended(0, 1, -0.25), "a share of -0.25"),
        (BLEND + BLEND, blended(0, 1, 1.0000001), "a share of 1"),
        (BLEND + BLEND, blended(0, 1, float("nan")), "a share of nan"),
        (PRODUCT, PRODUCT[:4] + struct.pack("<II", 9, 8), "3x2x2 times 3x2x3"),
        (PRODUCT, PRODUCT[:4] + struct.pack("<II", 10, 9), "3x1x1 times 3x2x2"),
        (OUTPUTS, listed(), "outputs: 0"),
        (OUTPUTS, struct.pack("<I", 2**32 - 1) + OUTPUTS[4:], "outputs: 4294967295"),
        (OUTPUTS, listed((15, b""), (13, b"map")), "tensor 15, but there are 15"),
        (OUTPUTS, listed((0, b""), (13, b"map")), "tensor 0 is an output and not of type f32"),
        (OUTPUTS, listed((12, b"map"), (13, b"map")), "two outputs of one name"),
        (OUTPUTS, listed((13, b""), (13, b"map")), "two outputs of one name, or of one tensor"),
        (OUTPUTS, listed((12, b"\0"), (13, b"map")), "is 0"),
    ],
)  # fmt: skip
def test_hostile_curves_places_and_outputs(old: bytes, new: bytes, words: str) -> None:
    content = with_numbers(old, new)
    assert words in refusal(content)
    assert problem_in_python(content) is not None


FACTORS = bytes([3, 2, 4, 3])  # of the joined convolution: 3:2 and 4:3


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (FACTORS, bytes([5, 2, 4, 4]), "factors that add up to 8, expected at most 7"),
        (FACTORS, bytes([255, 255, 4, 3]), "factors that add up to 510, expected at most 7"),
        (b"\2\2\1" + struct.pack("<I", 14), b"\2\1\1" + struct.pack("<I", 14), "branches: 1"),
        (b"\2\2\1" + struct.pack("<I", 14), b"\2\4\1" + struct.pack("<I", 14), "branches: 4"),
        (b"\2\2\1" + struct.pack("<I", 14), b"\3\2\1" + struct.pack("<I", 14), "form of the weights: 3"),
    ],
)  # fmt: skip
def test_hostile_factors(old: bytes, new: bytes, words: str) -> None:
    content = with_numbers(old, new)
    assert words in refusal(content)
    assert problem_in_python(content) is not None


def test_values_too_large_for_a_curve() -> None:
    """The scale of what the curve reads, of what that is made of, and the largest code times it."""
    for scale, fits in ((2.0**30 / 128, True), (2.0**30 / 2, False)):
        body = bytearray(SMALL)
        for index in (4, 5, 6):
            end = TABLE + (index + 1) * TENSOR.size
            body[end - 4 : end] = struct.pack("<f", scale)
        content = repaired(bytes(body[HEADER:]))
        assert (problem(content) is None) is (problem_in_python(content) is None) is fits


def test_a_tensor_written_twice_and_one_never() -> None:
    requantize = b"\3\1\0r" + struct.pack("<IBI", 3, 1, 4)
    assert "written twice" in refusal(
        with_numbers(requantize, requantize[:-4] + struct.pack("<I", 2))
    )
    tensors = small_program().tensors
    one_more = struct.pack("<I", len(tensors) + 1)
    body = SMALL[HEADER : TABLE - 4] + one_more + SMALL[TABLE:]
    at = TABLE - HEADER + len(tensors) * TENSOR.size
    body = body[:at] + TENSOR.pack(3, 1, 1, 1, 1.0) + body[at:]
    assert f"no operation writes tensor {len(tensors)}" in refusal(repaired(body))


@pytest.mark.parametrize(
    ("bits", "last_byte", "words"),
    [
        (None, 243, "expected below 243"),
        (None, 1 + 3 + 9 + 27, "filled up"),
        (4, 0x18, "a weight is -8, expected at least -7"),
        (4, 0x81, "a weight is -8, expected at least -7"),
        (3, 0x49, "filled up"),
    ],
)
def test_weights_that_do_not_exist(bits: int | None, last_byte: int, words: str) -> None:
    kernels = 3 if bits is None else 2
    content = write_program(one_convolution(Shape(1, 2, 2), kernels, bits))
    assert words in refusal(repaired(content[HEADER:-1] + bytes([last_byte])))


def test_sums_that_do_not_fit() -> None:
    fits, does_not = 2**29 - 2**6, 2**29
    content = write_program(one_average(fits))
    assert problem(content) is None
    old, new = (struct.pack("<ii", 0, largest) for largest in (fits, does_not))
    assert content.count(old) == 1
    assert "does not fit 32 bits" in refusal(repaired(content.replace(old, new)[HEADER:]))


def test_networks_beyond_the_limit_of_memory() -> None:
    content = write_program(one_convolution(Shape(1, 8192, 8192), kernels=8))
    assert "running needs 2112 MiB, at most 2048" in refusal(content)


def test_kernels_that_would_need_too_much_memory() -> None:
    """A window of 64771 rows: an engine that copies all of them for each thread needs 10 GiB."""
    program = tall_depthwise(width=40000, tap=100)
    images = images_for(program, 1)
    with load(write_program(program)) as net:
        assert net.peak_memory < 2**28
        expected = 3.0 * images[:, :1].transpose(0, 3, 1, 2)
        np.testing.assert_array_equal(net(images).reshape(expected.shape), expected)


def test_paths_that_cannot_be_read(tmp_path: Path) -> None:
    assert "No such file" in refusal(tmp_path / "none.dbq")
    assert "Is a directory" in refusal(tmp_path)
    (tmp_path / "empty.dbq").touch()
    assert "no .dbq file" in refusal(tmp_path / "empty.dbq")
    assert "Not a regular file" in refusal("/dev/null")


def test_files_of_version_1_with_any_bit_flipped() -> None:
    """Both readers agree, and what loads runs to the same numbers."""
    golden = Path(__file__).parents[1] / "deploy" / "file" / "golden" / "version_1.dbq"
    flips = (repaired(body, version=1) for body in bit_flips(golden.read_bytes()[HEADER:]))
    loaded = 0
    for content in list(flips)[::5]:
        text = problem(content)
        assert (text is None) is (problem_in_python(content) is None)
        if text is None and (loaded := loaded + 1) % 10 == 0:
            program = read_program(content)
            images = images_for(program, 1)
            with load(content) as net:
                np.testing.assert_equal(net(images), reference.run(program, images))
    assert loaded > 100
