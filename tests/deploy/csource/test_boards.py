"""Generated C under QEMU: every machine has the bits of the specification."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dbq.deploy.csource.boards.machines import MACHINES
from dbq.deploy.csource.boards.verify import missing_tools, verify
from dbq.deploy.csource.exact.compact import compacted
from dbq.deploy.csource.footprint import footprint_of
from dbq.deploy.csource.source import to_c
from dbq.deploy.program import Program
from dbq.deploy.tensors import Shape
from dbq.deploy.window import Window
from tests.deploy.csource.test_exact import pointwise, wide
from tests.native.handmade import small_program

pytestmark = [pytest.mark.process, pytest.mark.slow]


def three_by_three(branches: int) -> Program:
    """Not pointwise: taps are gathered, with padding and a stride."""
    program = pointwise(4, 4, (9, 9), branches)
    image, layer, last = program.operations
    codes = np.random.default_rng(5).integers(-1, 2, (branches, 4, 4, 3, 3), np.int8)
    layer = replace(layer, codes=codes, window=Window((3, 3), (2, 2), (1, 1), (1, 1)))  # type: ignore[call-arg]
    tensors = [program.tensors[0], *(
        replace(t, shape=Shape(t.shape.channels, 5, 5)) for t in program.tensors[1:]
    )]  # fmt: skip
    return Program("three", tuple(tensors), (image, layer, last), program.outputs)


# Around a block of 3 pixels, a row of 12, and ten taps in two bytes; one kernel more than a pair;
# several windows; scales that fit the short forms and others.
PROGRAMS = {
    "every kind": small_program(),
    "signed": pointwise(130, 9, (3, 7), 2, "i8"),
    "joined": compacted(pointwise(129, 9, (5, 5), 2)),
    "joined in tiles": compacted(pointwise(7, 4, (15, 15), 2)),
    "joined in windows": pointwise(300, 3, (1, 4), 2),
    "joined 3x3": compacted(three_by_three(2)),
    "one branch": compacted(pointwise(38, 5, (5, 5), 1)),
    "one branch 3x3": compacted(three_by_three(1)),
    "one byte of weights": compacted(pointwise(3, 4, (2, 5), 1)),
    "codes of 32 bits": wide(0, -(2**30), 2**30),
}


@pytest.mark.parametrize("name", list(MACHINES))
def test_machines(name: str) -> None:
    machine = MACHINES[name]
    if tools := missing_tools(machine):
        pytest.skip(f"{' and '.join(tools)} not installed")
    for program in PROGRAMS.values():
        found = verify(to_c(program, "net"), machine, cases=4)
        assert found.wrong == 0
        assert len(found.instructions) == len(program.operations)
        assert found.stack <= found.stack_bound + 400  # the test itself
        assert found.float_calls == ()


def instructions(program: Program) -> int:
    return verify(to_c(program, "net"), MACHINES["arm-m4"]).total


def test_instructions_are_counted_and_flash_is_as_estimated() -> None:
    """Twice the kernels are about twice the work of a layer; the same run has the same count."""
    if tools := missing_tools(MACHINES["arm-m4"]):
        pytest.skip(f"{' and '.join(tools)} not installed")
    small, large = pointwise(40, 40, (8, 8), 1), pointwise(40, 80, (8, 8), 1)
    assert instructions(small) == instructions(small)
    assert 1.6 < instructions(large) / instructions(small) < 2.1
    source = to_c(large, "net")
    found, estimate = verify(source, MACHINES["arm-m4"]), footprint_of(source)
    assert 0.75 < found.flash / estimate.flash < 1.1
    assert estimate.arena <= found.ram <= estimate.arena + 16
