"""Packed weights: five trits per byte, or b bits per code. docs/format.md has the rules."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dbq.errors import FileFormatError

TRITS_PER_BYTE = 5  # 3^5 = 243 < 256: 1.6 bits per trit; the optimum is log2(3) = 1.585
_PLACES = 3 ** np.arange(TRITS_PER_BYTE)  # the first trit is the least significant

Codes = npt.NDArray[np.int8]


def pack(codes: Codes, bits: int | None) -> bytes:
    """Codes of `bits` bits each; ternary if that is None."""
    return pack_trits(codes) if bits is None else pack_bits(codes, bits)


def unpack(data: bytes, count: int, bits: int | None) -> Codes:
    """The first `count` codes of bytes made by `pack`."""
    return unpack_trits(data, count) if bits is None else unpack_bits(data, count, bits)


def pack_trits(codes: Codes) -> bytes:
    """Codes in {-1, 0, 1}, five per byte.

    >>> pack_trits(np.array([-1, 0, 1, 1, 0, 1], np.int8)).hex()  # 0+3+18+54+81, 2
    '9c02'
    """
    trits = np.zeros(-(-codes.size // TRITS_PER_BYTE) * TRITS_PER_BYTE, np.uint8)
    trits[: codes.size] = codes.ravel() + 1
    packed: npt.NDArray[np.uint8] = (trits.reshape(-1, TRITS_PER_BYTE) @ _PLACES).astype(np.uint8)
    return packed.tobytes()


def unpack_trits(data: bytes, count: int) -> Codes:
    packed = np.frombuffer(data, np.uint8)
    if packed.size and int(packed.max()) >= 3**TRITS_PER_BYTE:
        raise FileFormatError(f"packed trits contain the byte {packed.max()}, expected at most 242")
    trits = (packed[:, None] // _PLACES % 3).ravel()
    if trits[count:].any():
        raise FileFormatError("the last byte of packed trits is not padded with zeros")
    return (trits[:count] - 1).astype(np.int8)


def pack_bits(codes: Codes, bits: int) -> bytes:
    """Two's complement codes of `bits` bits, least significant bit first.

    >>> pack_bits(np.array([1, -1, 3], np.int8), 3).hex()  # 001, 111, 011
    'f900'
    """
    planes = np.unpackbits(codes.ravel().view(np.uint8)[:, None], axis=1, bitorder="little")
    return np.packbits(planes[:, :bits].ravel(), bitorder="little").tobytes()


def unpack_bits(data: bytes, count: int, bits: int) -> Codes:
    planes = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
    if planes[count * bits :].any():
        raise FileFormatError(f"the last byte of {bits}-bit weights is not padded with zeros")
    planes = planes[: count * bits]
    unsigned = np.packbits(planes.reshape(count, bits), axis=1, bitorder="little")[:, 0]
    sign = 1 << (bits - 1)
    codes: Codes = ((unsigned ^ sign).astype(np.int16) - sign).astype(np.int8)
    if codes.size and int(codes.min()) < 1 - sign:
        raise FileFormatError(
            f"{bits}-bit weights contain the code {-sign}, expected at least {1 - sign}"
        )
    return codes


def packed_size(count: int, bits: int | None) -> int:
    """Size in bytes of `count` packed codes; ternary if `bits` is None.

    >>> packed_size(11, None), packed_size(11, 4)
    (3, 6)
    """
    return -(-count // TRITS_PER_BYTE) if bits is None else -(-count * bits // 8)
