"""`export_c` and its command: the same bytes again, budgets, names, what is refused, flash and RAM."""

from __future__ import annotations

import subprocess
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from typer.testing import CliRunner

import dbq
from dbq.cli.main import app
from dbq.deploy.csource import layers
from dbq.deploy.csource.arena import plan_memory
from dbq.deploy.csource.footprint import footprint
from dbq.deploy.csource.layouts import LAYOUTS
from dbq.deploy.file.fileformat import load_program, save
from dbq.errors import LoweringError
from tests.deploy.csource.native import compile_c
from tests.deploy.csource.test_exact import pointwise
from tests.native.handmade import random_program, small_program


def texts(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_the_same_program_gives_the_same_bytes(tmp_path: Path) -> None:
    program = random_program(5)
    save(program, tmp_path / "net.dbq")
    dbq.export_c(program, tmp_path / "a", "net")
    dbq.export_c(load_program(tmp_path / "net.dbq"), tmp_path / "b", "net")
    assert texts(tmp_path / "a") == texts(tmp_path / "b")


def test_compact_writes_the_network_that_it_is(tmp_path: Path) -> None:
    program = pointwise(64, 30, (4, 4), 2)
    written = dbq.export_c(program, tmp_path, "net", compact=True)
    other = load_program(tmp_path / "net.dbq")
    assert written.footprint.tables < dbq.export_c(program, tmp_path / "long").footprint.tables
    scales, short = (p.convolutions[0].results[0].scales for p in (program, other))
    assert 0 < np.abs(scales - short).max() < 0.005 * np.abs(scales).max()


def test_what_is_over_a_budget_is_named_and_not_written(tmp_path: Path) -> None:
    program = pointwise(64, 30, (4, 4), 2)
    size = footprint(program)
    with pytest.raises(LoweringError, match=r"1 over the budget.* image,"):
        dbq.export_c(program, tmp_path / "c", flash=size.flash - 1)
    with pytest.raises(LoweringError, match=r"bytes of RAM.* p,"):
        dbq.export_c(program, tmp_path / "c", ram=1000)
    assert not (tmp_path / "c").exists()
    small = dbq.export_c(program, tmp_path / "c", ram=size.arena // 2)
    assert small.footprint.arena <= size.arena // 2


def test_an_unknown_operation_is_named_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {kind: handler for kind, handler in layers.HANDLERS.items() if kind != "curve"}
    monkeypatch.setattr("dbq.deploy.csource.source.HANDLERS", known)
    with pytest.raises(LoweringError, match=r"g \(curve\)"):
        dbq.export_c(small_program(), tmp_path / "c")
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("name", ["Net", "1net", "int", "a-b", "n" * 41])
def test_bad_names(name: str, tmp_path: Path) -> None:
    with pytest.raises(LoweringError, match="C functions"):
        dbq.export_c(small_program(), tmp_path, name)


def test_hostile_names_stay_inside_of_comments(tmp_path: Path) -> None:
    program = small_program()
    renamed = type(program)("*/ evil /*", program.tensors, program.operations, program.outputs)
    code = dbq.export_c(renamed, tmp_path).source.code
    assert "*/ evil" not in code
    assert dbq.export_c(renamed, tmp_path).source.name == "evil"


def test_tensors_that_are_needed_together_do_not_overlap() -> None:
    """Restated: from its step to its last reader; a depthwise layer over its input apart."""
    for seed in range(20):
        program = random_program(seed, length=10)
        memory = plan_memory(program)
        last = {t: i for i, op in enumerate(program.operations) for t in op.reads}
        spans = []
        for step, op in enumerate(program.operations):
            for tensor in op.writes:
                if tensor not in memory.tensors or memory.tensors[tensor] in [
                    memory.tensors.get(i) for i in op.reads
                ]:
                    continue
                channels, height, width = program.tensors[tensor].shape
                size = 4 if program.tensors[tensor].type == "i32" else 1
                start = memory.tensors[tensor]
                end = start + channels * height * width * size
                assert end <= memory.bytes
                spans.append((start, end, step, last.get(tensor, step)))
        for i, (a, b, first, final) in enumerate(spans):
            for c, d, begin, end in spans[:i]:
                if begin <= final and first <= end:
                    assert b <= c or d <= a


def test_a_depthwise_layer_writes_over_its_input() -> None:
    found = 0
    for seed in range(40):
        program = random_program(seed, ("depthwise",), length=3)
        places = plan_memory(program).tensors
        for op in program.convolutions:
            found += op.writes[0] in places and places.get(op.input) == places[op.writes[0]]
    assert found > 3


def test_a_sum_writes_over_one_of_its_terms() -> None:
    """Where a term has its type and is not read again; two results never share a place."""
    found = 0
    for seed in range(40):
        program = random_program(seed, ("add", "convolution"), length=4)
        places = plan_memory(program).tensors
        last = {t: i for i, op in enumerate(program.operations) for t in op.reads}
        for step, op in enumerate(program.operations):
            own = [places[i] for i in op.writes if i in places]
            assert len(set(own)) == len(own)
            if op.kind == "add":
                kept = [places[i] for i in op.reads if last[i] > step]
                assert not set(kept) & set(own)
                found += any(places[i] in own for i in op.reads)
    assert found > 3


@pytest.mark.parametrize("layout", list(LAYOUTS))
def test_layouts_are_complete_and_compile(layout: str, tmp_path: Path) -> None:
    program = pointwise(6, 7, (3, 3), 1)
    written = dbq.export_c(program, tmp_path, "eye", layout=layout)
    names = {str(file.relative_to(tmp_path)) for file in written.files}
    expected = {
        "arduino": {"library.properties", "examples/eye_run/eye_run.ino"},
        "zephyr": {"zephyr/module.yml", "zephyr/CMakeLists.txt", "zephyr/Kconfig"},
        "cmsis-pack": {"dbq.eye.pdsc"},
    }[layout]
    assert names == expected | {"src/eye.c", "src/eye.h", "test/eye_test.c", "README.md"}
    compile_c(tmp_path, "-Isrc", "src/eye.c", "test/eye_test.c", "-o", "test_program")
    assert subprocess.run([tmp_path / "test_program"]).returncode == 0
    for file in expected:
        text = (tmp_path / file).read_text()
        assert "eye" in text
        assert len(text.splitlines()) < 40
    if layout == "cmsis-pack":
        root = ElementTree.parse(tmp_path / "dbq.eye.pdsc").getroot()
        listed = {str(file.get("name")) for file in root.iter("file")}
        assert listed == {"src/eye.c", "src/eye.h"}
    if layout == "arduino":
        lines = (tmp_path / "library.properties").read_text().splitlines()
        needed = {
            "name",
            "version",
            "author",
            "maintainer",
            "sentence",
            "paragraph",
            "architectures",
        }
        assert needed <= {line.split("=")[0] for line in lines}


def test_an_unknown_layout_is_named(tmp_path: Path) -> None:
    with pytest.raises(LoweringError, match="arduinoo"):
        dbq.export_c(pointwise(6, 7, (3, 3), 1), tmp_path / "c", layout="arduinoo")
    assert not (tmp_path / "c").exists()


def test_the_command(tmp_path: Path) -> None:
    save(pointwise(20, 9, (4, 4), 2), tmp_path / "net.dbq")
    runner, file, folder = CliRunner(), str(tmp_path / "net.dbq"), str(tmp_path / "c")
    done = runner.invoke(app, ["export", file, "--c", folder, "--name", "eye", "--ram", "64kB"])
    assert done.exit_code == 0, done.output
    assert "flash" in done.output
    assert sorted(texts(tmp_path / "c")) == ["README.md", "eye.c", "eye.h", "eye_test.c"]
    for bad in (["export", file], ["export", file, "--onnx", "x", "--ram", "64kB"],
                ["export", file, "--c", folder, "--ram", "much"],
                ["export", file, "--c", folder, "--verify", "arm-m99"]):  # fmt: skip
        done = runner.invoke(app, bad)
        assert done.exit_code != 0, bad
