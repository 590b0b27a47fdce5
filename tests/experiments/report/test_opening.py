"""The tiles of a report: which run they are about, and what they compare it with."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dbq.deploy.file.fileformat import save
from dbq.experiments.export import program_of_run
from dbq.experiments.report.facts import RunFacts, read_run
from dbq.experiments.report.opening import opening, subject, tiles_of
from dbq.training.record.rundir import RunDir


@pytest.fixture(scope="module")
def two(two_branches: Path) -> RunFacts:
    return read_run(two_branches, "two")[0]


@pytest.fixture(scope="module")
def plain(float_baseline: Path) -> RunFacts:
    return read_run(float_baseline, "plain")[0]


def test_three_numbers_against_float(two: RunFacts, plain: RunFacts) -> None:
    assert subject([plain, two]) is two
    assert subject([plain]) is plain
    accuracy, size, cost = tiles_of(two, plain)
    assert accuracy.number == f"{two.result.top1:.2f} %"
    assert f"{plain.result.top1:.2f} %" in accuracy.against
    # A float weight has 32 bits, a ternary one of two branches about 4, others 8.
    ratio = plain.result.cost.C_M / two.result.cost.C_M
    assert 3 < ratio < 10
    assert f"{ratio:.1f} times less" in size.against
    assert f"{plain.result.cost.C_S / two.result.cost.C_S:.1f} times less" in cost.against


def test_only_the_same_network_is_compared_with(two: RunFacts, plain: RunFacts) -> None:
    assert f"float: {plain.result.top1:.2f} %" in opening([two, plain])
    assert "float:" not in opening([two, replace(plain, network="another")])
    assert "times less" not in opening([plain])


def test_names_are_escaped(two: RunFacts) -> None:
    assert "<b>" not in opening([replace(two, name="<b>bold</b>")])


def test_latency_is_measured_if_the_file_is_there(two_branches: Path, tmp_path: Path) -> None:
    run = RunDir(tmp_path / "run")
    run.path.mkdir()
    for file in two_branches.iterdir():
        (run.path / file.name).write_bytes(file.read_bytes())
    assert read_run(run.path, "x")[0].bench_source == ""
    save(program_of_run(run.path), run.deployed)
    facts = read_run(run.path, "x")[0]
    assert facts.bench is not None
    assert tiles_of(facts, None)[-1].against == "measured on this machine"
    run.deployed.write_bytes(b"damaged")
    assert tiles_of(read_run(run.path, "x")[0], None)[-1].number == "–"
    (run.path / "bench.json").write_text(json.dumps({**facts.bench, "milliseconds": 1.5}))
    assert tiles_of(read_run(run.path, "x")[0], None)[-1].number == "1.5 ms"
