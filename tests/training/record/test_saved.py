"""A network comes back from disk bit for bit, without anything being fitted on the way."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import dbq
from dbq.experiments.comparison.methods import precisions
from dbq.plans.plan import LayerPlan, Plan
from dbq.quantizers.dbq.branch import BranchQuantizer
from dbq.quantizers.table import QUANTIZERS
from dbq.training.networks import class_count
from dbq.training.record.checkpoint import read_checkpoint, write_checkpoint
from dbq.training.record.rundir import RunDir
from dbq.training.record.saved import saved_network
from dbq.training.run import train
from tests.runs import single_thread, tiny_recipe

pytestmark = pytest.mark.slow

FITTED = BranchQuantizer.initialise


@pytest.fixture
def no_fitting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Methods without parameters of their own only check new weights; dbq has some."""

    def refuse(self: BranchQuantizer, weight: Tensor) -> None:
        raise AssertionError("fitted")

    monkeypatch.setattr(BranchQuantizer, "initialise", refuse)


def test_loading_fits_nothing(two_branches: Path, no_fitting: None) -> None:
    tensors, metadata = read_checkpoint(two_branches / "model.safetensors")
    assert metadata["classes"] == 10
    model, _, _ = saved_network(two_branches)
    assert model.state_dict().keys() == tensors.keys()
    assert all(torch.equal(value, tensors[key]) for key, value in model.state_dict().items())


def test_a_file_that_does_not_record_its_classes(two_branches: Path, tmp_path: Path) -> None:
    """As earlier versions wrote it; a matrix after the classifier must not be taken for it."""
    tensors, metadata = read_checkpoint(two_branches / "model.safetensors")
    old = {key: value for key, value in metadata.items() if key != "classes"}
    write_checkpoint(tmp_path / "old.safetensors", tensors, old)
    model, _, _ = saved_network(tmp_path / "old.safetensors")
    assert all(torch.equal(value, tensors[key]) for key, value in model.state_dict().items())
    recipe = RunDir(two_branches).recipe()
    state = {"fc.weight": torch.zeros(7, 128), "zzz.weight": torch.zeros(5, 5)}
    assert class_count(recipe, state) == 7


def test_resuming_fits_nothing(tiny: Path, tmp_path: Path, no_fitting: None) -> None:
    recipe = tiny_recipe(tiny, "train.epochs=1")
    with single_thread():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(BranchQuantizer, "initialise", FITTED)
            first = train(recipe, tmp_path)
        (tmp_path / "result.json").unlink()
        again = train(recipe, tmp_path, resume=True)
    assert (again.top1, again.cost) == (first.top1, first.cost)


def network(method: str, fit: bool) -> nn.Module:
    precision = precisions(method)[-1]
    plan = Plan("mine", default=LayerPlan.of(precision, 8, method=method))
    net = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
                        nn.Conv2d(8, 4, 1))  # fmt: skip
    dbq.prepare(net, plan, torch.zeros(1, 3, 8, 8), fit=fit)
    return net.eval()


@pytest.mark.parametrize("method", QUANTIZERS)
def test_a_state_dict_is_all_that_an_unfitted_network_needs(method: str) -> None:
    fitted, loaded = network(method, fit=True), network(method, fit=False)
    images = torch.randn(2, 3, 8, 8)
    fitted.train()(images)  # ranges
    fitted.eval()
    loaded.load_state_dict(fitted.state_dict())
    assert torch.equal(loaded(images), fitted(images))


def test_the_summary_of_an_unfitted_network_states_no_errors() -> None:
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 1), nn.Conv2d(8, 2, 1))
    summary = dbq.prepare(net, "dbq-2t-4", torch.zeros(1, 3, 8, 8), fit=False)
    assert {row.weight_error for row in summary.layers} == {None}
