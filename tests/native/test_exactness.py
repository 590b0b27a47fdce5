"""The engine gives the bits of the specification: every operation, level, batch and thread count."""

from __future__ import annotations

import numpy as np
import pytest

from dbq.deploy import reference
from dbq.deploy.engine import available_isas, load
from dbq.deploy.file.fileformat import write_program
from dbq.deploy.program import Program
from tests.native.handmade import KINDS, images_for, random_program, small_program

pytestmark = pytest.mark.native

ISAS = available_isas()


def check(program: Program, isa: str, monkeypatch: pytest.MonkeyPatch, count: int = 3) -> None:
    monkeypatch.setenv("DBQ_ISA", isa)
    images = images_for(program, count)
    with load(write_program(program)) as net:
        assert net.isa == isa
        for threads in (1, 2, 3):
            net.threads = threads
            np.testing.assert_equal(net(images), reference.run(program, images))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_operation(kind: str, isa: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(30):
        check(random_program(seed, (kind,), length=2), isa, monkeypatch, count=2)


@pytest.mark.parametrize("isa", ISAS)
def test_long_programs(isa: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many tensors alive at different times: the memory plan must not let one overwrite another."""
    for seed in range(100, 140):
        check(random_program(seed, length=14, outputs=seed % 3 + 1), isa, monkeypatch)


def test_the_smallest_program(monkeypatch: pytest.MonkeyPatch) -> None:
    for isa in ISAS:
        check(small_program(), isa, monkeypatch, count=9)


def test_batches_of_every_size_are_their_images_one_by_one() -> None:
    program = random_program(11)
    images = images_for(program, 9)
    with load(write_program(program)) as net:
        single = np.concatenate([net(image) for image in images])
        for threads in (1, 2, 4):
            net.threads = threads
            for count in range(10):
                np.testing.assert_array_equal(net(images[:count]), single[:count])


def test_images_need_not_be_contiguous() -> None:
    program = random_program(3)
    images = images_for(program, 4)
    with load(write_program(program)) as net:
        np.testing.assert_array_equal(net(images[::2]), net(images)[::2])
