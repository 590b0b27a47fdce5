"""A checkpoint is what was written, or an error that names it and the way back."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from dbq.errors import DbqError, TrainingError, WeightsError
from dbq.networks import tensorfile
from dbq.networks.weights import read_weights
from dbq.training.record.checkpoint import read_checkpoint, write_checkpoint
from dbq.training.record.rundir import RunDir
from dbq.training.run import train
from tests.runs import single_thread, tiny_recipe

TENSORS = {
    "weight": torch.arange(6.0).reshape(2, 3),
    "half": torch.ones(2, dtype=torch.bfloat16),
    "count": torch.tensor(7),
    "none": torch.zeros(0, 3),
    "column": torch.arange(6.0).reshape(3, 2)[:, 0],  # not contiguous
    "single": torch.ones(1, 2)[:, 0],  # contiguous, with a stride of two
}
CONTIGUOUS = {key: value.contiguous() for key, value in TENSORS.items()}
FACTS = {"position": {"epoch": 1}, "metrics": [{"loss": 0.5}]}


def same(tensors: dict[str, torch.Tensor]) -> bool:
    return tensors.keys() == TENSORS.keys() and all(
        torch.equal(value, TENSORS[key]) for key, value in tensors.items()
    )


def test_no_flipped_bit_is_read(tmp_path: Path) -> None:
    path = tmp_path / "last.safetensors"
    write_checkpoint(path, TENSORS, FACTS)
    assert same(read_checkpoint(path)[0])
    assert read_checkpoint(path)[1] == FACTS
    whole, refused = path.read_bytes(), 0
    for at in range(len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << at % 8
        path.write_bytes(damaged)
        for read in (lambda: read_checkpoint(path)[0], lambda: read_weights(path)):
            try:
                # Where the name of the checksum is hit, the rest is as it was.
                assert same(read()), at
            except DbqError:
                refused += 1
    assert refused > 1.5 * len(whole), "of two reads of each damaged file"
    last = bytearray(whole)
    last[-1] ^= 1
    path.write_bytes(last)
    with pytest.raises(TrainingError, match="checksum"):
        read_checkpoint(path)
    with pytest.raises(WeightsError, match="hecksum"):
        read_weights(path)


def test_files_of_earlier_versions_are_read(tmp_path: Path) -> None:
    path = tmp_path / "old.safetensors"
    save_file(CONTIGUOUS, path, metadata={"dbq": json.dumps(FACTS)})
    tensors, facts = read_checkpoint(path)
    assert same(tensors)
    assert facts == FACTS


@pytest.mark.parametrize("text", ["[]", "3", "[" * 100_000, "{"])
def test_metadata_that_is_no_object(tmp_path: Path, text: str) -> None:
    path = tmp_path / "odd.safetensors"
    save_file(CONTIGUOUS, path, metadata={"dbq": text})
    with pytest.raises(TrainingError, match="odd"):
        read_checkpoint(path)


@pytest.fixture
def stopped(tiny: Path, tmp_path: Path) -> RunDir:
    """A run whose last checkpoint is that of its second and last epoch."""
    with single_thread():
        train(tiny_recipe(tiny), tmp_path / "run")
    (tmp_path / "run" / "result.json").unlink()
    return RunDir(tmp_path / "run")


def resume(tiny: Path, run: RunDir) -> str:
    """What a resumed run complains about."""
    with single_thread(), pytest.raises(TrainingError) as caught:
        train(tiny_recipe(tiny), run.path, resume=True)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_what_is_wrong_with_the_last_checkpoint_and_the_way_back(
    tiny: Path, stopped: RunDir
) -> None:
    whole = stopped.last.read_bytes()
    damaged = bytearray(whole)
    damaged[random.Random(0).randrange(len(whole) // 2, len(whole))] ^= 16
    stopped.last.write_bytes(damaged)
    message = resume(tiny, stopped)
    assert str(stopped.last) in message
    assert f"model.weights={stopped.best}" in message

    stopped.last.write_bytes(whole)
    tensors, facts = read_checkpoint(stopped.last)
    for name in ("model.conv1.weight", "model.bn1.running_var", "momentum.conv1.weight"):
        broken = tensors[name].clone()
        broken.view(-1)[0] = torch.nan
        write_checkpoint(stopped.last, {**tensors, name: broken}, facts)
        message = resume(tiny, stopped)
        assert name in message
        assert f"model.weights={stopped.best}" in message
        assert "train.rate" not in message

    for forged in (
        {"epoch": -1}, {"epoch": 10**9}, {"epoch": 0, "step": 10**9}, {"step": 1}, {"step": "1"},
        {"epoch": 1.5}, {"loss": "x"}, {"loss": float("nan")}, {"speed": 1}, {"skipped": 3},
    ):  # fmt: skip
        position: dict[str, Any] = {**facts["position"], **forged}
        write_checkpoint(stopped.last, tensors, {**facts, "position": position})
        assert str(stopped.last) in resume(tiny, stopped), forged
    odd_facts: list[dict[str, Any]] = [
        {"position": 3, "metrics": []}, {**facts, "metrics": [1, 2]}, {"position": {}},
    ]  # fmt: skip
    for metadata in odd_facts:
        write_checkpoint(stopped.last, tensors, metadata)
        assert str(stopped.last) in resume(tiny, stopped), metadata
    odd = torch.ones(3)
    for name in ("momentum.conv1.weight", "model.bn1.bias"):
        write_checkpoint(stopped.last, {**tensors, name: odd}, facts)
        with single_thread(), pytest.raises(DbqError, match=name.removeprefix("model.")):
            train(tiny_recipe(tiny), stopped.path, resume=True)


def test_a_file_that_is_replaced_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """safetensors opens it twice: the first reading sees halves of two checkpoints."""
    path = tmp_path / "last.safetensors"
    write_checkpoint(path, {"a": torch.zeros(3)}, {"step": 1})
    read, calls = tensorfile._read_tensors, []

    def by_halves(file: Path) -> Any:
        calls.append(file)
        if len(calls) == 1:
            write_checkpoint(path, {"a": torch.ones(3)}, {"step": 2})
            raise ValueError("its checksum does not match")
        return read(file)

    monkeypatch.setattr(tensorfile, "_read_tensors", by_halves)
    tensors, metadata = read_checkpoint(path)
    assert (tensors["a"].tolist(), metadata["step"]) == ([1, 1, 1], 2)
    monkeypatch.setattr(tensorfile, "_read_tensors", lambda file: int("damaged"))
    with pytest.raises(TrainingError, match="not a whole checkpoint"):
        read_checkpoint(path)
