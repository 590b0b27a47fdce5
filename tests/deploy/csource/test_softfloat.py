"""Floats by integers: every bit is that of IEEE 754, subnormal numbers and signs of zero included."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dbq.deploy.csource.sections import sections
from tests.deploy.csource.native import compile_c

pytestmark = pytest.mark.process  # starts a compiler

NUMBERS = 20_000
CALLS = """
typedef uint32_t function_t(uint32_t, uint32_t);
static void each(const uint32_t *a, const uint32_t *b, uint32_t *to, int n, function_t *f) {
    for (int i = 0; i < n; i++) {
        to[i] = f(a[i], b[i]);
    }
}
static uint32_t converted(uint32_t a, uint32_t b) { return float_of((int32_t)a) + 0u * b; }
static uint32_t whole(uint32_t a, uint32_t b) { return (uint32_t)integer_of(a) + 0u * b; }
static uint32_t less(uint32_t a, uint32_t b) { return is_less(a, b) != 0 ? 1u : 0u; }
static uint32_t scaled(uint32_t a, uint32_t b) { return scaled_float((int32_t)a, b); }
void run(const uint32_t *a, const uint32_t *b, uint32_t *to, int n, int what);
void run(const uint32_t *a, const uint32_t *b, uint32_t *to, int n, int what) {
    function_t *const f[] = {times, plus, divided, less, converted, whole, scaled};
    each(a, b, to, n, f[what]);
}
"""


def function(section: str, start: str) -> str:
    text = sections()[section][1]
    return text[text.index(start) : text.index("\n}\n", text.index(start)) + 3]


@pytest.fixture(scope="module", params=[(), ("-U__GNUC__",)], ids=["builtins", "plain"])
def run(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Any]:
    folder = tmp_path_factory.mktemp("softfloat")
    functions = (
        function("values", "static uint32_t times"),
        function("mean pool", "static uint32_t divided"),
        function("sums", "APART static uint32_t scaled_float"),
    )
    head = "#include <stdint.h>\n#define APART\n" + sections()["softfloat"][1]
    text = head + "\n".join(functions) + CALLS
    (folder / "soft.c").write_text(text)
    sanitizer = ("-fsanitize=undefined", "-fno-sanitize-recover=all")
    compile_c(folder, "-O1", "-shared", "-fPIC", *sanitizer, *request.param, "soft.c", "-o", "a.so")
    library = ctypes.CDLL(str(folder / "a.so"))

    def call(what: int, a: Any, b: Any) -> Any:
        a, b = (np.ascontiguousarray(x).view(np.uint32) for x in (a, b))
        to = np.zeros(len(a), np.uint32)
        pointers = (x.ctypes.data_as(ctypes.c_void_p) for x in (a, b, to))
        library.run(*pointers, len(a), what)
        return to

    return call


def floats(seed: int, lowest: int, highest: int) -> Any:
    """Random bits with exponents of that range, short and long fractions, zeros among them."""
    rng = np.random.default_rng(seed)
    exponents = rng.integers(lowest, highest, NUMBERS, endpoint=True).astype(np.uint32)
    fractions = rng.integers(0, 2**23, NUMBERS, np.uint32)
    fractions >>= rng.choice([0, 0, 11, 22], NUMBERS).astype(np.uint32)
    fractions <<= rng.choice([0, 0, 1, 12], NUMBERS).astype(np.uint32)
    signs = rng.integers(0, 2, NUMBERS, np.uint32)
    bits = signs << 31 | exponents << 23 | fractions & np.uint32(0x7FFFFF)
    bits[:: NUMBERS // 50] &= 0x80000000
    return bits.view(np.float32)


def check(found: Any, expected: Any) -> None:
    np.testing.assert_array_equal(found, np.ascontiguousarray(expected).view(np.uint32))


# Exponents of both operands; the results are finite, and in the last two they are subnormal.
@pytest.mark.parametrize("range", [(100, 150), (120, 130), (0, 3), (50, 70)])
def test_products_and_sums(run: Callable[..., Any], range: tuple[int, int]) -> None:
    a, b = floats(1, *range), floats(2, *range)
    check(run(0, a, b), a * b)
    check(run(1, a, b), a + b)
    near = (a.view(np.uint32) ^ np.uint32(0x80000001)).view(np.float32)  # nearly all cancels
    check(run(1, a, near), a + near)
    check(run(3, a, b), (a < b).astype(np.uint32))


def test_means(run: Callable[..., Any]) -> None:
    a, b = floats(3, 100, 160), np.random.default_rng(4).integers(1, 2**16, NUMBERS, np.uint32)
    check(run(2, a, b), a / b.astype(np.float32))


def test_integers(run: Callable[..., Any]) -> None:
    codes = np.random.default_rng(5).integers(-(2**31), 2**31, NUMBERS)
    codes >>= np.random.default_rng(6).integers(0, 31, NUMBERS)
    codes = np.append(codes, [0, 1, -1, 2**31 - 1, -(2**31), 2**24 + 1, 2**24 + 3]).astype(np.int32)
    check(run(4, codes, codes), codes.astype(np.float32))
    scales = floats(8, 90, 150)[: len(codes)]
    check(run(6, codes[: len(scales)], scales), codes[: len(scales)].astype(np.float32) * scales)
    a = floats(7, 110, 156)
    a[:4] = 0.5, 1.5, -2.5, 0.49999997
    check(run(5, a, a), np.rint(a).astype(np.int32))
