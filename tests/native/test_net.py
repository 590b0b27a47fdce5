"""The Python binding: what it accepts, what it says, what it refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from dbq.deploy import engine as native
from dbq.deploy import reference
from dbq.deploy.engine import Net, available_isas, load
from dbq.deploy.file.fileformat import save, write_program
from dbq.deploy.program import Program
from dbq.errors import EngineError, FileFormatError
from dbq.version import __version__
from tests.native.handmade import images_for, random_program, small_program

pytestmark = pytest.mark.native


@pytest.fixture
def program() -> Program:
    return small_program()


@pytest.fixture
def net(program: Program, monkeypatch: pytest.MonkeyPatch) -> Net:
    monkeypatch.delenv("DBQ_ISA", raising=False)
    return load(write_program(program))


def test_from_a_path_and_from_bytes(program: Program, tmp_path: Path) -> None:
    save(program, tmp_path / "net.dbq")
    images = images_for(program, 2)
    expected = load(write_program(program))(images)
    for path in (tmp_path / "net.dbq", str(tmp_path / "net.dbq")):
        np.testing.assert_equal(load(path, threads=2)(images), expected)


def test_the_path_is_part_of_the_error(tmp_path: Path) -> None:
    (tmp_path / "bad.dbq").write_bytes(b"something else")
    with pytest.raises(FileFormatError, match=r"bad\.dbq: this is no \.dbq file"):
        load(tmp_path / "bad.dbq")


def test_facts(program: Program, net: Net) -> None:
    assert net.name == program.name
    assert net.input_shape == (3, 3, 1)
    assert net.threads == 1
    assert net.isa == os.environ.get("DBQ_ISA", available_isas()[-1])
    assert net.facts == program.facts
    assert net.load_milliseconds > 0
    assert repr(net) == f"Net('s', image 3x3x1, {net.isa}, 1 threads)"
    assert native.library().dbq_version().decode() == __version__


def test_describe(program: Program, net: Net) -> None:
    found = net.describe()
    assert [layer.name for layer in found.layers] == [op.name for op in program.operations]
    assert [layer.macs for layer in found.layers] == [program.macs(op) for op in program.operations]
    for layer, op in zip(found.layers, program.operations, strict=True):
        tensor = program.tensors[op.writes[0]]
        assert (layer.type, layer.shape) == (tensor.type, tensor.shape)
    assert [layer.precision for layer in found.layers] == ["", "2T", "3b"] + [""] * 11 + ["2T"]
    assert json.loads(json.dumps(found.to_json()))["layers"][1]["kernel"] == found.layers[1].kernel
    text = str(found)
    assert all(layer.kernel in text for layer in found.layers)
    assert found.layers[6].kernel == ""  # channels are pointers
    assert found.peak_memory >= sum(layer.weight_bytes for layer in found.layers)


def test_profile(net: Net) -> None:
    times = net.profile(np.zeros(net.input_shape, np.uint8))
    assert len(times) == len(net.describe().layers)
    assert all(time >= 0 for time in times)
    with pytest.raises(EngineError, match="one image, got 2"):
        net.profile(np.zeros((2, *net.input_shape), np.uint8))


@pytest.mark.parametrize(
    "images",
    [
        np.zeros((3, 3, 1), np.float32),
        np.zeros((3, 3, 1), np.int8),
        np.zeros((2, 1, 3, 3), np.uint8),
        np.zeros((3, 3), np.uint8),
        np.zeros((3, 3, 3), np.uint8),
        np.zeros((1, 1, 3, 3, 1), np.uint8),
        [[1, 2], [3, 4]],
    ],
)
def test_images_that_do_not_fit(net: Net, images: npt.ArrayLike) -> None:
    with pytest.raises(EngineError, match=r"s expects uint8 \[N, 3, 3, 1\]: resize or convert"):
        net(images)


def test_an_empty_batch(net: Net) -> None:
    found = net(np.zeros((0, 3, 3, 1), np.uint8))
    assert {name: array.shape for name, array in found.items()} == {"": (0, 3), "map": (0, 3, 2, 2)}


def test_outputs_by_name(program: Program, net: Net) -> None:
    assert net.outputs == {"": (3, 1, 1), "map": (3, 2, 2)}
    assert net.output_shape == (3, 1, 1)
    found = net(images_for(program, 2))
    assert list(found) == ["", "map"]
    np.testing.assert_equal(found, reference.run(program, images_for(program, 2)))


def test_an_output_with_pixels_keeps_them() -> None:
    for seed in range(20):
        program = random_program(seed, length=1)
        shape = program.tensors[program.output].shape
        if shape[1:] != (1, 1):
            assert load(write_program(program))(images_for(program, 2)).shape == (2, *shape)


@pytest.mark.parametrize("threads", [0, -1, 257, 2**32 + 2, "2", 2.0, None])
def test_impossible_numbers_of_threads(net: Net, program: Program, threads: int) -> None:
    with pytest.raises(EngineError, match=f"{threads!r} threads, expected 1 to 256"):
        net.threads = threads
    with pytest.raises(EngineError, match="threads, expected 1 to 256"):
        load(write_program(program), threads)


def test_closed(net: Net) -> None:
    net.close()
    net.close()
    assert repr(net) == "Net(closed)"
    with pytest.raises(EngineError, match="closed; load it again"):
        net(np.zeros((3, 3, 1), np.uint8))


def test_an_instruction_set_that_is_not_here(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DBQ_ISA", "sse9")
    with pytest.raises(EngineError, match=r'DBQ_ISA is "sse9", this processor has: scalar'):
        load(write_program(program))


def test_without_the_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(native, "LIBRARY", tmp_path / "libdbq.so")
    native.library.cache_clear()
    with pytest.raises(EngineError, match="native engine does not load"):
        load(b"")
    native.library.cache_clear()


def test_torch_is_not_imported() -> None:
    code = "import sys, dbq.deploy.engine, dbq.deploy.reference; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
