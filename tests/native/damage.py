"""Ways to damage a .dbq file, and the checksum put right again."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from random import Random

HEADER = 32
# Numbers that programs get wrong, and the float32 nearest to the largest scale, 1e20.
WORDS = (0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x7FC00000, 0x7F800000, 0x00010001, 0x60AD78EC)


def repaired(body: bytes, version: int = 2) -> bytes:
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
    for word in WORDS:
        packed = struct.pack("<I", word)
        for place in range(len(body) - 3):
            yield body[:place] + packed + body[place + 4 :]


def mutants(
    bodies: Sequence[bytes], dice: Random, count: int, changes: Sequence[int] = (1, 1, 1, 2, 3)
) -> Iterator[bytes]:
    """Bodies with a few random changes each: bits, words, and bytes lost, repeated or moved."""
    for _ in range(count):
        body = bytearray(dice.choice(bodies))
        for _ in range(dice.choice(changes)):
            _change(body, dice)
        yield bytes(body)


def _change(body: bytearray, dice: Random) -> None:
    # Half of all changes are among the first bytes, where names, facts and tensors are.
    at = dice.randrange(min(len(body), 300) if dice.random() < 0.5 else len(body))
    size = dice.choice((1, 2, 4, 8))
    match dice.randrange(6):
        case 0 | 1:
            body[at] ^= 1 << dice.randrange(8)
        case 2:
            body[at : at + 4] = struct.pack("<I", dice.choice(WORDS))
        case 3:
            body[at] = dice.randrange(256)
        case 4:
            del body[at : at + size]
        case 5:
            body[at:at] = body[at : at + size]
