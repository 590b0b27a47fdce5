"""A result's JSON is what it has always been: runs of earlier versions can be read."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dbq.errors import TrainingError
from dbq.training.record.result import Result
from dbq.training.record.rundir import RunDir

# As version 0.1 wrote it.
OLD = """{
 "recipe": "digits-2t",
 "about": "MobileNetV1 0.25 on digits",
 "plan": "dbq-2t-4",
 "seed": 3,
 "epochs": 2,
 "top1": 91.25,
 "top5": 99.5,
 "best_top1": 92.5,
 "best_epoch": 0,
 "paper_top1": null,
 "test": {"data": "digits", "split": "every fifth image", "images": 360},
 "seconds": 12.5,
 "cost": {"C_C": 400, "C_S": 300.5, "C_R": 200, "C_M": 100, "params": 10, "macs": 20},
 "revision": "0123456789ab+",
 "date": "2026-11-01",
 "command": "dbq train digits-2t --out run",
 "processes": 2,
 "launch": null,
 "machine": {"cpu": "a CPU", "threads": 1, "device": "cpu", "gpu": null},
 "weights": "runs/fp"
}"""


def test_old_results_are_read_and_written_back_unchanged(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text(OLD)
    run = RunDir(tmp_path)
    assert run.is_finished
    result = run.result()
    assert (result.top1, result.cost.C_S, result.test.images) == (91.25, 300.5, 360)
    assert (result.provenance.processes, result.provenance.machine["threads"]) == (2, 1)
    assert list(result.to_json().items()) == list(json.loads(OLD).items()), "the order as well"
    run.write_result(replace(result, top1=50.0))
    written = json.loads((tmp_path / "result.json").read_text())
    assert len(written.pop("sha256")) == 64
    assert written == {**json.loads(OLD), "top1": 50.0}
    assert run.result() == replace(result, top1=50.0)


def test_unknown_keys_are_ignored_and_circumstances_may_be_missing() -> None:
    data = {**json.loads(OLD), "later": 1}
    del data["launch"]  # not recorded by the first versions
    assert Result.from_json(data) == Result.from_json(json.loads(OLD))


@pytest.mark.parametrize("missing", ["top1", "cost", "test"])
def test_what_is_not_a_result_is_named(missing: str, tmp_path: Path) -> None:
    data = json.loads(OLD)
    del data[missing]
    (tmp_path / "result.json").write_text(json.dumps(data))
    with pytest.raises(TrainingError, match=r"result\.json"):
        RunDir(tmp_path).result()


@pytest.mark.parametrize(
    "text",
    ["", "[]", "3", "null", "[" * 100_000, "{" + OLD, OLD.replace("91.25", '"high"'),
     OLD.replace("91.25", "null"), OLD.replace('"seed": 3', '"seed": [3]'),
     OLD.replace('"cost": {', '"cost": 7, "x": {'), OLD.replace('"images": 360', '"images": {}'),
     OLD.replace('"machine": {', '"machine": 1, "x": {')],
)  # fmt: skip
def test_a_damaged_result_is_named(text: str, tmp_path: Path) -> None:
    assert text != OLD
    (tmp_path / "result.json").write_text(text)
    with pytest.raises(TrainingError, match=r"result\.json") as caught:
        RunDir(tmp_path).result()
    assert "\n" not in str(caught.value)


def test_no_flipped_bit_becomes_another_result(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text(OLD)
    run = RunDir(tmp_path)
    result = run.result()
    run.write_result(result)
    whole = (tmp_path / "result.json").read_bytes()
    refused = 0
    for at in range(len(whole)):
        for bit in range(8):
            damaged = bytearray(whole)
            damaged[at] ^= 1 << bit
            (tmp_path / "result.json").write_bytes(damaged)
            try:
                # A bit of the key itself may fall: the result then is like one of an earlier version.
                assert run.result() == result
            except TrainingError:
                refused += 1
    assert refused > 0.8 * 8 * len(whole)


def test_file_names_are_written_in_one_place() -> None:
    """Everybody else asks RunDir; docstrings may mention a file.

    The name of the weights is the hubs' as well, where it is part of another layout.
    """
    source = Path(__file__).parents[3] / "src" / "dbq"
    names = ("result.json", "run.json", "metrics.jsonl", "recipe.toml", "error.txt", "bench.json",
             "last.safetensors", "best.safetensors", "model.safetensors")  # fmt: skip
    for name in names:
        holders = [
            path.relative_to(source).as_posix()
            for path in sorted(source.rglob("*.py"))
            if f'"{name}"' in path.read_text() or f"'{name}'" in path.read_text()
            if path != source / "networks" / "pretrained.py"
        ]
        assert holders == ["training/record/rundir.py"], name
