"""Generated C has the bits of the specification: every operation, in every way it is computed."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dbq.deploy.csource.exact.compact import compacted
from dbq.deploy.csource.files import export_c
from dbq.deploy.operations.convolution import Convolution
from dbq.deploy.operations.lookup import Lookup
from dbq.deploy.operations.requantize import Requantize
from dbq.deploy.program import Output, Program
from dbq.deploy.tensors import Result, Shape, Tensor, Type
from dbq.deploy.window import Window
from tests.deploy.csource.native import check, compile_c, write
from tests.native.handmade import KINDS, images_for, random_program, small_program

pytestmark = pytest.mark.process  # starts a compiler


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_operation(kind: str, tmp_path: Path) -> None:
    for seed in range(3):
        folder = tmp_path / str(seed)
        folder.mkdir()
        program = random_program(seed, (kind,), length=2, outputs=seed % 3 + 1)
        check(program, images_for(program, 2), folder)


def test_long_programs(tmp_path: Path) -> None:
    """Many tensors alive at different times: the arena must not let one overwrite another."""
    for seed in range(100, 106):
        folder = tmp_path / str(seed)
        folder.mkdir()
        program = random_program(seed, length=12, outputs=seed % 3 + 1)
        check(program, images_for(program, 2), folder)
    check(small_program(), images_for(small_program(), 3), tmp_path)


def pointwise(
    channels: int,
    kernels: int,
    size: tuple[int, int],
    branches: int,
    type: Type = "u8",
    seed: int = 0,
) -> Program:
    """Image, a ternary pointwise layer of 8-bit codes, and a float for each of them by another layer."""
    rng = np.random.default_rng(seed)
    shape, out = Shape(channels, *size), Shape(kernels, *size)
    codes = rng.integers(-1, 2, (branches, kernels, channels, 1, 1), np.int8)
    factors = rng.integers(1, 4, (kernels, branches), dtype=np.uint8) if branches > 1 else None
    spread = 150 * np.sqrt(channels) * branches
    scales = rng.normal(0, 128 / spread, (kernels, 1)).astype(np.float32)
    offsets = rng.normal(100, 30, kernels).astype(np.float32)
    ones = np.ones((1, 1, kernels, 1, 1), np.int8)
    floats = Result(2, 0, 0, np.ones((1, 1), np.float32), np.zeros(1, np.float32))
    operations = (
        Lookup("image", 0, np.tile(np.arange(256, dtype=np.uint8), (channels, 1))),
        Convolution(
            "p", (Result(1, 0, 255, scales, offsets),), 0, Window((1, 1)), 1, codes, None, factors
        ),
        Convolution("sum", (floats,), 1, Window((1, 1)), 1, ones, 2),
    )
    tensors = (
        Tensor(type, shape, 1.0),
        Tensor("u8", out, 1.0),
        Tensor("f32", Shape(1, *size), 1.0),
    )
    return Program("pointwise", tensors, operations, (Output(2),))


# Sizes around a tile of 12 pixels and a byte of 5 channels, all weights in one window and in several.
@pytest.mark.parametrize("type", ["u8", "i8"])
@pytest.mark.parametrize("branches", [1, 2])
@pytest.mark.parametrize(
    ("channels", "size"), [(1, (1, 1)), (5, (3, 4)), (6, (1, 13)), (64, (2, 5)), (300, (3, 3))]
)
def test_pointwise(
    channels: int, size: tuple[int, int], branches: int, type: Type, tmp_path: Path
) -> None:
    program = pointwise(channels, 7, size, branches, type)
    check(program, images_for(program, 3), tmp_path)


def test_lanes_at_their_limits(tmp_path: Path) -> None:
    """128 weights of one sign times 255: the largest sum of a lane, beside the smallest."""
    program = pointwise(128, 4, (2, 6), 1)
    codes = program.convolutions[0].codes
    codes[0, 0], codes[0, 1], codes[0, 2, ::2], codes[0, 2, 1::2] = 1, -1, 1, -1
    images = images_for(program, 3)
    images[0], images[1], images[2, ::2] = 255, 0, 255
    check(program, images, tmp_path)


def wide(seed: int, low: int, high: int) -> Program:
    """Codes of 32 bits, by scales and offsets of all sizes, zeros among them; then each as a float."""
    program = pointwise(9, 60, (3, 5), 1, seed=seed)
    rng = np.random.default_rng(seed)
    image, layer, _ = program.operations
    sizes = rng.normal(0, 1, (60, 2)) * 2.0 ** rng.integers(-24, 24, (60, 2))
    sizes[rng.random((60, 2)) < 0.1] = 0
    sizes[:6] = np.round(sizes[:6] * 2) / 2  # sums that end in a half
    scales, offsets = sizes[:, :1].astype(np.float32), sizes[:, 1].astype(np.float32)
    codes = Result(1, low, high, scales, offsets)
    floats = Result(2, 0, 0, np.ones((60, 1), np.float32), np.zeros(60, np.float32))
    shape = program.tensors[1].shape
    tensors = (program.tensors[0], Tensor("i32", shape, 1.0), Tensor("f32", shape, 1.0))
    operations = (image, replace(layer, results=(codes,)), Requantize("floats", (floats,), 1))  # type: ignore[call-arg]
    return Program("wide", tensors, operations, (Output(2),))


@pytest.mark.parametrize(("low", "high"), [(-(2**30), 2**30), (0, 2**27), (-5000, 70_000), (3, 9)])
def test_wide_codes(low: int, high: int, tmp_path: Path) -> None:
    """A code of 32 bits was a float before, so a float has all of its bits."""
    for seed in range(4):
        folder = tmp_path / str(seed)
        folder.mkdir()
        program = wide(seed, low, high)
        check(program, images_for(program, 6), folder)
        assert ".is_wide = 1" in (folder / "net.c").read_text()


def test_less_ram_for_more_windows(tmp_path: Path) -> None:
    program = pointwise(200, 6, (4, 4), 2)
    check(program, images_for(program, 2), tmp_path, ram=6000)


@pytest.mark.parametrize("flags", [("-DNET_NO_MULTIPLIER",), ("-O3",), ("-Os", "-funsigned-char")])
def test_other_ways_to_compile(flags: tuple[str, ...], tmp_path: Path) -> None:
    for program in (pointwise(20, 7, (5, 5), 2, "i8"), random_program(3, length=8)):
        check(program, images_for(program, 2), tmp_path, flags)


def test_compact_scales_are_those_of_a_program(tmp_path: Path) -> None:
    program = compacted(pointwise(64, 30, (4, 4), 2))
    images = images_for(program, 3)
    check(program, images, tmp_path)


def test_the_test_program_under_sanitizers(tmp_path: Path) -> None:
    """The files as a user gets them, with address and undefined-behaviour sanitizers."""
    for seed, program in enumerate((small_program(), pointwise(130, 9, (5, 5), 2))):
        folder = tmp_path / str(seed)
        export_c(program, folder, "net")
        flags = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
        compile_c(folder, *flags, "net.c", "net_test.c", "-o", "test")
        done = subprocess.run([folder / "test"], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]


def test_the_test_program_sees_a_wrong_bit(tmp_path: Path) -> None:
    export_c(pointwise(6, 7, (3, 3), 1), tmp_path, "net")
    test = (tmp_path / "net_test.c").read_text()
    broken = test.replace("fill(net_image(), n);", "fill(net_image(), n + 1u);")
    assert broken != test
    (tmp_path / "net_test.c").write_text(broken)
    compile_c(tmp_path, "net.c", "net_test.c", "-o", "test")
    assert subprocess.run([tmp_path / "test"]).returncode == 1


STRICTER = ("-Wcast-qual", "-Wcast-align=strict", "-Wshadow", "-Wundef", "-Wsign-conversion",
            "-Wstrict-prototypes", "-Wmissing-prototypes", "-Wunused-macros", "-Wvla")  # fmt: skip


def test_stricter_warnings(tmp_path: Path) -> None:
    """What docs/mcu.md says of the code: no cast removes a const, every `else if` has an `else`."""
    for program in (
        small_program(),
        pointwise(130, 9, (5, 5), 2),
        pointwise(20, 7, (5, 5), 1, "i8"),
    ):
        write(program, tmp_path)
        compile_c(tmp_path, "-O2", *STRICTER, "-c", "net.c", "-o", "net.o")
        code = (tmp_path / "net.c").read_text()
        assert all(word not in code for word in ("goto ", "switch ", "union ", "malloc", "stdio"))
        lines = code.splitlines()
        for i, line in enumerate(lines):
            if start := re.match(r"( *)(\} )?else if \(", line):
                end = next(x for x in lines[i + 1 :] if x.startswith(start[1] + "}"))
                assert "else" in end, (line, end)


def test_too_small_an_arena_does_not_compile(tmp_path: Path) -> None:
    write(small_program(), tmp_path)
    with pytest.raises(AssertionError, match="NET_ARENA_SIZE is too small"):
        compile_c(tmp_path, "-DNET_ARENA_SIZE=16", "-c", "net.c", "-o", "net.o")
