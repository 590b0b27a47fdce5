"""From float32 scales to integers, exactly: code = clamp((floor(s * m / 2^11) + b) >> n).

A Program turns an integer sum s into a code by float32 steps: a function of s that only rises or only
falls, so it is known by its thresholds, the sums at which the code changes, of which 8-bit codes have
255 at most. m, b and n are chosen so that the line has the same thresholds. Where float rounding leaves
no line that has them all, the sums at which the best line is wrong are listed. Nothing is approximate.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, log2
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dbq.deploy.tensors import Array, Result

Longs = npt.NDArray[np.int64]

FRACTION = 11  # bits of s * m that are dropped
LARGEST_SUM = 2**19  # sums are smaller; then no step exceeds 32 bits
MOST_LISTED = 64  # wrong sums of a channel; beyond that, floats are better
MOST_SHIFT = 30
POINT = 11  # bits behind the point of kernels/pairs.c
PAIRS_SHIFT = 9 + POINT  # there, m * 2^(this - n) is multiplied by s * 2^12
LANES_SHIFT = 5 + POINT  # in kernels/ternary.c by s * 2^16


class Form(NamedTuple):
    """How m, b and n are stored: bits without the sign, and how many of b are behind the point."""

    number: int  # as in kernels/results.c
    m_bits: int
    b_bits: int
    fraction: int
    m_zeros: int  # bits at the end of m that are 0 and not stored
    bytes: int  # of a channel


COMPACT = Form(2, 20, 14, 5, 9, 4)
SHORT = Form(0, 20, 21, 13, 0, 6)
LONG = Form(1, 21, 30, 30, 0, 8)


@dataclass(frozen=True)
class Lines:
    """m, b and n of each channel, and the sums for which they are wrong, with the right codes."""

    m: Longs
    b: Longs
    n: Longs
    form: Form
    odd: tuple[tuple[tuple[int, int], ...], ...]  # of each channel: sums and their codes

    @property
    def odd_count(self) -> int:
        return sum(map(len, self.odd))

    @property
    def bytes(self) -> int:
        """In flash."""
        listed = 2 * (len(self.m) + 1) + 6 * self.odd_count if self.odd_count else 0
        return self.form.bytes * len(self.m) + listed

    def codes(self, sums: Longs, low: int, high: int) -> Longs:
        """What the C code computes, for sums [K, N]."""
        m, b, n = (x[:, None] for x in (self.m, self.b, self.n))
        codes: Longs = np.clip(((sums * m >> FRACTION) + b) >> n, low, high)
        for k, listed in enumerate(self.odd):
            for s, code in listed:
                codes[k][sums[k] == s] = code
        return codes

    def halves(self) -> npt.NDArray[np.uint16]:
        """As the C code reads them: 3 or 4 numbers of 16 bits a channel."""
        b = self.b >> np.maximum(self.n - self.form.fraction, 0)
        if self.form == LONG:
            first, second = (self.m << 5 | self.n) & 0xFFFFFFFF, b & 0xFFFFFFFF
            parts = [first & 0xFFFF, first >> 16, second & 0xFFFF, second >> 16]
        elif self.form == SHORT:
            first = (self.m & 0x1FFFFF) << 5 | self.n | (b >> 16 & 63) << 26
            parts = [first & 0xFFFF, first >> 16, b & 0xFFFF]
        else:
            first = (self.m >> self.form.m_zeros & 0xFFF) << 5 | self.n | (b & 0x7FFF) << 17
            parts = [first & 0xFFFF, first >> 16]
        return np.stack(parts, axis=1).astype(np.uint16).ravel()


def is_fixed(lines: Lines, least: Longs, most: Longs, shift: int) -> bool:
    """Whether m * 2^(shift - n) and b * 2^(POINT - n) are integers of 32 bits, as is what they give."""
    m, b = lines.m * 2.0 ** (shift - lines.n), lines.b * 2.0 ** (POINT - lines.n)
    slope = lines.m * 2.0 ** (POINT - FRACTION - lines.n)
    sizes = [m, b, *(slope * s + b for s in (least, most))]
    whole = all(bool((x == np.rint(x)).all()) for x in (m, b))
    return whole and all(bool((np.abs(x) < 2**31 - 1).all()) for x in sizes)


def fit(result: Result, least: Longs, most: Longs) -> Lines | None:
    """Lines that equal `result` for all sums from least[k] to most[k]; None if there are none."""
    if result.scales.shape[1] != 1 or max(-least.min(), most.max()) >= LARGEST_SUM:
        return None
    thresholds = Thresholds(result, least, most)
    found = [fit_form(thresholds, form) for form in (COMPACT, SHORT, LONG)]
    usable = [x for x in found if x is not None and (x.form != COMPACT or _fits(x, least, most))]
    return min(usable, key=lambda lines: lines.bytes, default=None)


def _fits(lines: Lines, least: Longs, most: Longs) -> bool:
    """Whether s * m + b of the compact form fits 32 bits, where no product is longer."""
    ends = (s * (lines.m >> COMPACT.m_zeros) + 4 * lines.b for s in (least, most))
    return all(bool((np.abs(end) < 2**31).all()) for end in ends)


class Thresholds:
    """The formula as a rising function of u = +-s, and where it rises."""

    def __init__(self, result: Result, least: Longs, most: Longs) -> None:
        self.result = result
        self.slopes = result.scales[:, 0].astype(np.float64)
        self.signs = np.where(self.slopes < 0, -1, 1).astype(np.int64)
        self.first = np.where(self.signs > 0, least, -most)
        self.last = np.where(self.signs > 0, most, -least)
        self.codes = np.arange(result.low + 1, result.high + 1, dtype=np.int64)
        below = np.broadcast_to(self.first[:, None], (len(least), len(self.codes))).copy()
        above = np.broadcast_to(self.last[:, None] + 1, below.shape).copy()
        while (below < above).any():  # the smallest u that has at least the code, by bisection
            middle = (below + above) // 2
            reached = self.at(middle) >= self.codes
            open_ = below < above
            above = np.where(open_ & reached, middle, above)
            below = np.where(open_ & ~reached, middle + 1, below)
        self.u = below

    def at(self, u: Longs, k: int | None = None) -> Longs:
        """Codes at u [K, N], or [N] of one channel."""
        rows = slice(None) if k is None else slice(k, k + 1)
        sums = (self.signs[rows, None] * np.atleast_2d(u))[:, :, None, None]
        one = Result(0, self.result.low, self.result.high,
                     self.result.scales[rows], self.result.offsets[rows])  # fmt: skip
        codes: Array = one.codes([sums.transpose(1, 0, 2, 3)], "i32")[:, :, 0, 0].T
        return codes.astype(np.int64).reshape(np.shape(u))


def fit_form(thresholds: Thresholds, form: Form) -> Lines | None:
    """Lines in one form; None if a channel has none."""
    rows = []
    for k in range(len(thresholds.slopes)):
        row = _fit_channel(thresholds, k, form)
        if row is None:
            return None
        rows.append(row)
    m, b, n = (np.array([row[i] for row in rows], np.int64) for i in range(3))
    return Lines(m * thresholds.signs, b, n, form, tuple(row[3] for row in rows))


Row = tuple[int, int, int, tuple[tuple[int, int], ...]]


def _fit_channel(thresholds: Thresholds, k: int, form: Form) -> Row | None:
    first, last = int(thresholds.first[k]), int(thresholds.last[k])
    low, high = thresholds.result.low, thresholds.result.high
    start, end = (int(c) for c in thresholds.at(np.array([first, last]), k))
    if start == end:  # the same code for all sums
        return 0, start, 0, ()
    real = (thresholds.codes > start) & (thresholds.codes <= end)
    u, codes = thresholds.u[k][real], thresholds.codes[real]
    slope = abs(float(thresholds.slopes[k]))
    n = min(form.m_bits - 1 - floor(log2(slope)) - FRACTION, MOST_SHIFT)
    best: Row | None = None
    while n >= 0 and best is None:
        m0 = round(slope * 2.0 ** (n + FRACTION - form.m_zeros))
        for m in (more + m0 << form.m_zeros for more in (0, -1, 1, -2, 2)):
            if not 0 < m < 2**form.m_bits:
                continue
            # floor(u * m / 2^11) + b >= code * 2^n at the threshold, and not before it.
            lower = codes * 2**n - (u * m >> FRACTION)
            upper = codes * 2**n - ((u - 1) * m >> FRACTION)
            if start > low:  # no code below the first one
                lower = np.append(lower, start * 2**n - (first * m >> FRACTION))
            if end < high:
                upper = np.append(upper, (end + 1) * 2**n - (last * m >> FRACTION))
            step = 2 ** max(n - form.fraction, 0)
            limit = min(2**form.b_bits * step, 2**30)
            b = _deepest(lower, upper, step)
            if not -limit < b < limit:
                break
            if lower.max() <= b < upper.min():
                return m, b, n, ()
            odd = _wrong(thresholds, k, m, b, n)
            if odd is not None and (best is None or len(odd) < len(best[3])):
                best = (m, b, n, odd)
        n -= 1
    return best


def _deepest(lower: Longs, upper: Longs, step: int) -> int:
    """The multiple of `step` that is inside most of lower <= b < upper, in the middle of those."""
    lower, upper = np.sort(lower), np.sort(upper)
    edges = np.unique(np.concatenate([-(-lower // step) * step, -(-upper // step) * step]))
    inside = np.searchsorted(lower, edges, "right") - np.searchsorted(upper, edges, "right")
    at = int(inside.argmax())
    end = edges[at + 1] if at + 1 < len(edges) else edges[at] + step
    return int((edges[at] + end - step) // 2 // step * step) if end > edges[at] else int(edges[at])


def _wrong(
    thresholds: Thresholds, k: int, m: int, b: int, n: int
) -> tuple[tuple[int, int], ...] | None:
    """Sums for which the line gives another code, and the right codes; None if they are too many.

    Both functions rise: wrong are the sums between a threshold of the one and the same of the other.
    """
    low, high = thresholds.result.low, thresholds.result.high
    first, last = int(thresholds.first[k]), int(thresholds.last[k])
    # floor(u * m / 2^11) >= c * 2^n - b: the smallest such u.
    needed = -(-((thresholds.codes * 2**n - b) << FRACTION) // m)
    own, line = thresholds.u[k], np.clip(needed, first, last + 1)
    starts, ends = np.minimum(own, line), np.maximum(own, line)
    if int((ends - starts).sum()) > MOST_LISTED:
        return None
    spans = [np.arange(start, end) for start, end in zip(starts, ends, strict=True)]
    wrong = np.unique(np.concatenate(spans)).astype(np.int64)
    codes = thresholds.at(wrong, k)
    given = np.clip(((wrong * m >> FRACTION) + b) >> n, low, high)
    sign = int(thresholds.signs[k])
    pairs = zip(sign * wrong, codes, codes != given, strict=True)
    return tuple(sorted((int(s), int(code)) for s, code, is_wrong in pairs if is_wrong))
