"""Ways to damage a .dbq file, and the checksum put right again."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

HEADER = 32


def repaired(body: bytes, version: int = 1) -> bytes:
    """A file with this body and a header that fits it."""
    magic = b"\x89DBQ\r\n\x1a\n"
    return struct.pack("<8sIIQQ", magic, version, zlib.crc32(body), len(body), 0) + body


def truncations(content: bytes) -> Iterator[bytes]:
    yield from (content[:size] for size in range(len(content)))


def bit_flips(content: bytes) -> Iterator[bytes]:
    for place in range(8 * len(content)):
        flipped = bytearray(content)
        flipped[place // 8] ^= 1 << place % 8
        yield bytes(flipped)


def extreme_words(body: bytes) -> Iterator[bytes]:
    """Four bytes at every place set to numbers that programs get wrong."""
    for word in (0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x7FC00000, 0x7F800000, 0x00010001):
        packed = struct.pack("<I", word)
        for place in range(len(body) - 3):
            yield body[:place] + packed + body[place + 4 :]
