"""Weights as bytes: against the definition in docs/format.md, one code at a time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbq.deploy.file.packing import (
    pack_bits,
    pack_trits,
    packed_size,
    unpack_bits,
    unpack_trits,
)
from dbq.errors import FileFormatError


def int8(values: list[int]) -> np.ndarray:
    return np.array(values, np.int8)


@given(st.lists(st.integers(-1, 1), max_size=40))
def test_trits(codes: list[int]) -> None:
    packed = pack_trits(int8(codes))
    expected = bytearray(packed_size(len(codes), None))
    for i, code in enumerate(codes):
        expected[i // 5] += (code + 1) * 3 ** (i % 5)
    assert packed == expected
    assert unpack_trits(packed, len(codes)).tolist() == codes


@given(st.data(), st.integers(2, 8))
def test_bits(data: st.DataObject, bits: int) -> None:
    limit = 2 ** (bits - 1) - 1
    codes = data.draw(st.lists(st.integers(-limit, limit), max_size=40))
    packed = pack_bits(int8(codes), bits)
    number = sum((code % 2**bits) << (bits * i) for i, code in enumerate(codes))
    assert packed == number.to_bytes(packed_size(len(codes), bits), "little")
    assert unpack_bits(packed, len(codes), bits).tolist() == codes


def test_what_no_writer_writes() -> None:
    with pytest.raises(FileFormatError, match="243"):
        unpack_trits(bytes([242, 243]), 10)
    with pytest.raises(FileFormatError, match="trits"):
        unpack_trits(bytes([81]), 4)
    with pytest.raises(FileFormatError, match="3-bit"):
        unpack_bits(bytes([0x80]), 1, 3)
    with pytest.raises(FileFormatError, match=r"4-bit.* -8"):
        unpack_bits(bytes([0x87]), 2, 4)
