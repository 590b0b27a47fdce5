"""Integer lines in place of float scales: equal for every sum that can occur, by brute force."""

from __future__ import annotations

import numpy as np
import pytest

from dbq.deploy.csource.exact.lines import COMPACT, LONG, SHORT, Thresholds, fit, fit_form
from dbq.deploy.tensors import Result, Type


def codes_of(result: Result, sums: np.ndarray, type: Type) -> np.ndarray:
    return result.codes([sums.T[:, :, None, None]], type)[:, :, 0, 0].T.astype(np.int64)


def random_result(seed: int, type: Type, reach: int, channels: int = 6) -> Result:
    rng = np.random.default_rng(seed)
    low, high = (0, 255) if type == "u8" else (-128, 127)
    if seed % 3 == 0:
        low, high = low // 2, high // 4
    scales = rng.normal(0, 3 * 255 / reach, (channels, 1)).astype(np.float32)
    scales[0] = 0
    scales[1] = 0.5  # halves, which round to even
    offsets = rng.normal(60, 60, channels).astype(np.float32)
    offsets[2] = np.float32(0.5)
    return Result(0, low, high, scales, offsets)


@pytest.mark.parametrize("type", ["u8", "i8"])
@pytest.mark.parametrize("reach", [3, 700, 20_000, 150_000])
@pytest.mark.parametrize("seed", range(3))
def test_every_sum(seed: int, reach: int, type: Type) -> None:
    result = random_result(seed, type, reach)
    channels = len(result.offsets)
    least, most = np.full(channels, -reach), np.full(channels, reach // 2)
    lines = fit(result, least, most)
    assert lines is not None
    sums = np.tile(np.arange(-reach, reach // 2 + 1), (channels, 1))
    found = lines.codes(sums, result.low, result.high)
    np.testing.assert_array_equal(found, codes_of(result, sums, type))


def test_listed_sums_are_found() -> None:
    """A slope so fine that float rounding leaves no line: the exceptions are listed, and are few."""
    result = Result(0, 0, 255, np.array([[0.00171]], np.float32), np.array([3.3], np.float32))
    least, most = np.array([-1000]), np.array([200_000])
    lines = fit_form(Thresholds(result, least, most), SHORT)
    assert lines is not None
    sums = np.arange(-1000, 200_001)[None]
    np.testing.assert_array_equal(lines.codes(sums, 0, 255), codes_of(result, sums, "u8"))
    plain = type(lines)(lines.m, lines.b, lines.n, lines.form, ((),))
    wrong = (plain.codes(sums, 0, 255) != codes_of(result, sums, "u8")).sum()
    assert wrong == lines.odd_count > 0


@pytest.mark.parametrize("form", [COMPACT, SHORT, LONG])
def test_numbers_of_16_bits_hold_m_b_and_n(form: object) -> None:
    """Unpacked as kernels/results.c unpacks them."""
    result = random_result(1, "u8", 700)
    least, most = np.full(6, -700), np.full(6, 700)
    lines = fit_form(Thresholds(result, least, most), SHORT)
    assert lines is not None
    zeros = form.m_zeros  # type: ignore[attr-defined]
    step = 2 ** np.maximum(lines.n - form.fraction, 0)  # type: ignore[attr-defined]
    m, b = lines.m >> zeros << zeros, lines.b // step * step
    halves = type(lines)(m, b, lines.n, form, lines.odd).halves().reshape(6, -1).astype(np.int64)  # type: ignore[arg-type]
    first = halves[:, 0] | halves[:, 1] << 16
    np.testing.assert_array_equal(first & 31, lines.n)

    def signed(x: np.ndarray, bits: int) -> np.ndarray:
        x = x & (1 << bits) - 1
        return x - (x >> bits - 1 << bits)

    if form == LONG:
        np.testing.assert_array_equal(signed(first, 32) >> 5, m)
        np.testing.assert_array_equal(signed(halves[:, 2] | halves[:, 3] << 16, 32), b)
    elif form == SHORT:
        np.testing.assert_array_equal(signed(first >> 5, 21), m)
        np.testing.assert_array_equal(signed(halves[:, 2] | first >> 26 << 16, 22) * step, b)
    else:
        np.testing.assert_array_equal(signed(first >> 5, 12) << 9, m)
        np.testing.assert_array_equal(signed(first >> 17, 15) * step, b)


def test_sums_that_do_not_fit_32_bits_have_no_line() -> None:
    result = random_result(1, "u8", 700)
    assert fit(result, np.full(6, -(2**19)), np.full(6, 5)) is None
