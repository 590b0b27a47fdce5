"""The two readers of .dbq files, in C++ and in Python, refuse exactly the same files."""

from __future__ import annotations

import random
import struct

import pytest

from dbq.deploy.file.fileformat import write_program
from dbq.deploy.tensors import Shape
from tests.native.damage import HEADER, mutants, repaired
from tests.native.handmade import one_convolution, random_program, small_program
from tests.native.verdicts import disagreements, engine_accepts, python_accepts

pytestmark = pytest.mark.native

SMALL = write_program(small_program())


@pytest.mark.parametrize("seed", range(8))
def test_mutants(seed: int) -> None:
    dice = random.Random(seed)
    bodies = [SMALL[HEADER:]]
    bodies += [write_program(random_program(8 * seed + i, length=3))[HEADER:] for i in range(8)]
    files = [repaired(body) for body in mutants(bodies, dice, count=1000)]
    assert disagreements(iter(files)) == []
    assert 30 < sum(map(python_accepts, files)) < 970  # both answers are exercised


def test_a_kernel_without_weights() -> None:
    """A kernel of 0 rows or columns, and no bytes of weights: nothing else in the file is wrong."""
    content = write_program(one_convolution(Shape(1, 2, 2), kernels=3))
    kernel = content.rindex(struct.pack("<6H", 1, 1, 1, 1, 0, 0))
    for size in (struct.pack("<2H", 0, 1), struct.pack("<2H", 1, 0)):
        damaged = repaired(content[HEADER:kernel] + size + content[kernel + 4 : -1])
        assert engine_accepts(damaged) is False
        assert not python_accepts(damaged)


def with_facts(facts: bytes) -> bytes:
    old = struct.pack("<I", 2) + b"{}"
    assert SMALL.count(old) == 1
    return repaired(SMALL.replace(old, struct.pack("<I", len(facts)) + facts)[HEADER:])


VALID = [
    b' {"a" : [1, -0.5e+3, "\\u00e4\\n", true, false, null, {}, []] }\n', b'{"a": 1, "a": 2}',
    b'{"a": "\\ud800"}', b'{"\xc3\xa4": 0}', b'{"a": ' + b"[" * 63 + b"]" * 63 + b"}",
    b'{"a": ' + b"1" * 400 + b"}", b'{"a": "[[[' + b"[" * 99 + b'"}', b'{"a": "\\u0000"}',
]  # fmt: skip
INVALID = [
    b"", b"[]", b"1", b"{", b"{}}", b"{} x", b"{,}", b'{"a"}', b'{"a":}', b'{"a": 1,}', b"{a: 1}",
    b'{"a": NaN}', b'{"a": Infinity}', b'{"a": -Infinity}', b'{"a": 01}', b'{"a": 1.}', b'{"a": .5}',
    b'{"a": +1}', b'{"a": 1e}', b'{"a": -}', b'{"a": [1 2]}', b'{"a": tru}', b'{"a": "\\x"}',
    b'{"a": "\\u12g4"}', b'{"a": "\n"}', b'{"a": "\0"}', b'{"a": "}', b'{"a": "\\"}', b"{'a': 1}",
    b'\xef\xbb\xbf{"a": 1}', b'{"a": "\xff"}', '{"a": 1}'.encode("utf-16-le"), b"{}\0", b"{}\x0c",
    b'{"a": ' + b"[" * 64 + b"]" * 64 + b"}", b'{"a": ' + b"[" * 10**5 + b"]" * 10**5 + b"}",
    b'{"a": 1, "a": ' + b"[" * 64 + b"]" * 64 + b', "a": 1}', b'{"a": [1, 2}', b'{"a": {"b": 1]}',
    b'{"a": ' + b"1" * 401 + b"}", b'{"a": 1.' + b"1" * 400 + b"}", '{"a": ١}'.encode(),
]  # fmt: skip


@pytest.mark.parametrize("facts", VALID)
def test_facts_that_are_json(facts: bytes) -> None:
    assert engine_accepts(with_facts(facts))
    assert python_accepts(with_facts(facts))


@pytest.mark.parametrize("facts", INVALID)
def test_facts_that_are_not(facts: bytes) -> None:
    assert engine_accepts(with_facts(facts)) is False
    assert not python_accepts(with_facts(facts))


@pytest.mark.parametrize(("bits", "valid"), [(0x60AD78EC, True), (0x60AD78ED, False), (1, True)])
def test_the_largest_scale_is_that_of_binary32(bits: int, valid: bool) -> None:
    """1e20 is no float32; the nearest is a little larger."""
    at = SMALL.index(struct.pack("<I", 2) + b"{}") + 10 + 13
    body = SMALL[HEADER:at] + struct.pack("<I", bits) + SMALL[at + 4 :]
    assert engine_accepts(repaired(body)) is valid
    assert python_accepts(repaired(body)) is valid
