"""Calibration: statistics and ranges from unlabelled images."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import dbq
from dbq.errors import DbqError, LoweringError
from dbq.model.floating import floating
from dbq.plans.plan import Clip
from dbq.quantizers.contract import InputQuantizer
from dbq.quantizers.inputs import RunningClip
from tests.model.small import IMAGE, network


class TestCalibrate:
    def test_statistics_are_plain_averages_of_the_hard_network(self) -> None:
        net = network()
        dbq.prepare(net, "dbq-1t", IMAGE)
        batches = [torch.randn(6, 3, 12, 12) * (1 + i) for i in range(3)]
        assert dbq.calibrate(net, batches, statistics="estimate") == 3
        hard_first = net[0]  # float in dbq-1t; its output statistics can be computed directly
        means = torch.stack([hard_first(b).mean((0, 2, 3)) for b in batches]).mean(0)
        variances = torch.stack([hard_first(b).var((0, 2, 3)) for b in batches]).mean(0)
        # float32 means over 600 values of O(10)
        torch.testing.assert_close(net[1].running_mean, means.detach(), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(net[1].running_var, variances.detach(), rtol=1e-4, atol=1e-4)

    def test_second_norm_sees_hard_weights(self) -> None:
        net = network()
        dbq.prepare(net, "dbq-1t", IMAGE)
        batch = torch.randn(6, 3, 12, 12)
        dbq.calibrate(net, [batch], statistics="estimate")
        norm = net[1]
        assert isinstance(norm, nn.BatchNorm2d)
        with torch.no_grad():
            x = torch.relu(nn.functional.batch_norm(
                net[0](batch), None, None, norm.weight, norm.bias, training=True))  # fmt: skip
            expected = nn.functional.conv2d(x, dbq.branches(net)["3"].weight).mean((0, 2, 3))
        torch.testing.assert_close(net[4].running_mean, expected, rtol=1e-4, atol=1e-5)

    def test_ranges_modes_and_momentum(self) -> None:
        net = network()
        dbq.prepare(net, "fx8-3", IMAGE)
        net.train()
        norm, clip = net[1], net[0].input_quantizer.clip
        assert isinstance(norm, nn.BatchNorm2d)
        assert isinstance(clip, RunningClip)
        norm.momentum = 0.3
        clip.limit.fill_(99.0)
        labelled = [(torch.full((2, 3, 12, 12), 3.0), torch.tensor([0, 1]))]
        dbq.calibrate(net, labelled)
        assert clip.limit == 3.0, "the old range is forgotten"
        assert all(module.training for module in net.modules())
        assert norm.momentum == 0.3
        before = copy.deepcopy(net.state_dict())
        weights = {k: v for k, v in before.items() if "running" not in k and "limit" not in k}
        dbq.calibrate(net, iter(labelled))
        for key, value in weights.items():
            if "num_batches" not in key:
                assert torch.equal(net.state_dict()[key], value), key

    def test_ranges_are_averages_in_any_order(self) -> None:
        for peaks in ([1.0, 10.0, 4.0], [10.0, 4.0, 1.0]):
            net = network()
            dbq.prepare(net, "fx8-3", IMAGE)
            dbq.calibrate(net, [torch.full((1, 3, 12, 12), peak) for peak in peaks])
            limit = net.get_buffer("0.input_quantizer.clip.limit")
            assert float(limit) == pytest.approx(5.0, rel=1e-6)

    def test_models_with_several_inputs(self) -> None:
        class Sum(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.norm = nn.BatchNorm2d(3)

            def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
                return self.norm(a + b)

        net = Sum()
        a, b = torch.ones(2, 3, 4, 4), torch.full((2, 3, 4, 4), 2.0)
        dbq.calibrate(net, [(a, b, "label")], inputs=2)
        assert (net.norm.running_mean == 0).all()  # nothing is quantized
        dbq.calibrate(net, [(a, b, "label")], inputs=2, statistics="estimate")
        assert (net.norm.running_mean == 3).all()

    def test_an_error_leaves_everything_as_it_was(self) -> None:
        net = network()
        dbq.prepare(net, "fx8-3", IMAGE)
        dbq.calibrate(net, [torch.randn(4, 3, 12, 12)])
        before = copy.deepcopy(net.state_dict())
        with pytest.raises(DbqError, match="NoneType"):
            dbq.calibrate(net, [torch.randn(4, 3, 12, 12), None])
        for key, value in net.state_dict().items():
            assert torch.equal(value, before[key]), key

    def test_what_no_batch_reaches_keeps_its_statistics(self) -> None:
        net = network()
        net.append(nn.Identity())
        net[-1].spare = nn.BatchNorm2d(4)
        net[-1].spare.running_mean.fill_(2.5)
        net[-1].without = nn.BatchNorm2d(4, track_running_stats=False)
        dbq.calibrate(net, [torch.randn(4, 3, 12, 12)])
        assert (net[-1].spare.running_mean == 2.5).all()

    def test_no_batches_and_wrong_batches(self) -> None:
        net = network()
        with pytest.raises(DbqError, match="tensor"):
            dbq.calibrate(net, torch.randn(4, 3, 12, 12))
        with pytest.raises(DbqError, match="no batches"):
            dbq.calibrate(net, [])
        with pytest.raises(DbqError, match="dict"):
            dbq.calibrate(net, [{"x": 1}])
        assert net[1].momentum == 0.1


class TestPairs:
    """Statistics moved by what quantization changed."""

    def test_a_float_network_keeps_its_bits(self) -> None:
        net = network()
        dbq.calibrate(net, [torch.randn(8, 3, 12, 12)], statistics="estimate")
        before = copy.deepcopy(net.state_dict())
        dbq.calibrate(net, [3 * torch.randn(8, 3, 12, 12) + 1 for _ in range(3)])
        for key, value in net.state_dict().items():
            assert torch.equal(value, before[key]), key

    def test_statistics_are_moved_by_the_pair(self) -> None:
        """By hand: the second norm's input with hard and with float weights, on the same images."""
        net = network()
        dbq.calibrate(net, [torch.randn(8, 3, 12, 12)], statistics="estimate")
        dbq.prepare(net, "dbq-1t", IMAGE)
        first, second = net[1], net[4]
        assert isinstance(first, nn.BatchNorm2d)
        assert isinstance(second, nn.BatchNorm2d)
        before = copy.deepcopy(net.state_dict())
        batches = [torch.randn(6, 3, 12, 12) + i for i in range(2)]
        with torch.no_grad():
            x = torch.relu(first.eval()(net[0](torch.cat(batches))))
            soft, hard = (
                nn.functional.conv2d(x, weight)
                for weight in (net.get_parameter("3.weight"), dbq.branches(net)["3"].weight)
            )
        assert dbq.calibrate(net, batches) == 2
        for key in ("1.running_mean", "1.running_var"):  # nothing in front of it is quantized
            assert torch.equal(net.state_dict()[key], before[key])
        over = (0, 2, 3)
        mean = before["4.running_mean"] + hard.mean(over) - soft.mean(over)
        var = before["4.running_var"] * hard.var(over) / soft.var(over)
        torch.testing.assert_close(second.running_mean, mean, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(second.running_var, var, rtol=1e-4, atol=1e-6)

    def test_later_norms_see_earlier_ones_corrected(self) -> None:
        """In one batch, as if norm after norm had been corrected for good."""
        net = network()
        net.insert(8, nn.BatchNorm2d(16))
        dbq.calibrate(net, [torch.randn(8, 3, 12, 12)], statistics="estimate")
        dbq.prepare(net, "dbq-1t", IMAGE)
        net.eval()
        float_net, by_hand = copy.deepcopy(net), copy.deepcopy(net)
        batch = torch.randn(16, 3, 12, 12)
        with torch.no_grad():
            x_float = x = batch
            for module, of_float in zip(by_hand, float_net, strict=True):
                if isinstance(module, nn.BatchNorm2d):
                    over = (0, 2, 3)
                    module.running_mean += x.mean(over) - x_float.mean(over)
                    module.running_var *= x.var(over) / x_float.var(over)
                x = module(x)
                with floating(float_net):
                    x_float = of_float(x_float)
        dbq.calibrate(net, [batch])
        for norm, wanted in zip(net, by_hand, strict=True):
            if isinstance(norm, nn.BatchNorm2d):
                torch.testing.assert_close(norm.running_mean, wanted.running_mean)
                torch.testing.assert_close(norm.running_var, wanted.running_var)

    def test_an_error_undoes_the_correction(self) -> None:
        net = network()
        dbq.prepare(net, "dbq-1t", IMAGE)
        before = copy.deepcopy(net.state_dict())
        with pytest.raises(DbqError, match="NoneType"):
            dbq.calibrate(net, [torch.randn(4, 3, 12, 12), None])
        for key, value in net.state_dict().items():
            assert torch.equal(value, before[key]), key
        with pytest.raises(DbqError, match="pairs, estimate or keep"):
            dbq.calibrate(net, [IMAGE], statistics="guess")  # type: ignore[arg-type]


def test_ranges_alone() -> None:
    """ "keep" fits what the batches show of ranges, and no batch norm."""
    net, whole = network(), network()
    for each in (net, whole):
        dbq.prepare(
            each, dbq.Plan("ranges", default=dbq.LayerPlan.of("8b", "8b"), clip="range"), IMAGE
        )
    before = copy.deepcopy(net.state_dict())
    batches = [torch.randn(4, 3, 12, 12), torch.randn(4, 3, 12, 12)]
    assert dbq.calibrate(net, batches, statistics="keep") == 2
    changed = {
        key for key, value in net.state_dict().items() if not torch.equal(value, before[key])
    }
    assert changed
    assert all(key.endswith("clip.limit") for key in changed)
    first = next(key for key in net.state_dict() if key.endswith("clip.limit"))
    mean = sum(float(batch.abs().max()) for batch in batches) / 2
    assert float(net.state_dict()[first]) == pytest.approx(mean)


class TestInputQuantizers:
    """What `calibrate` does to each rule for activations that observes the batches."""

    @pytest.mark.parametrize("clip", ["range", "lqnet", "lsq"])
    def test_forgotten_if_estimated_and_kept_if_learned(self, clip: Clip) -> None:
        net = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.ReLU(), nn.Conv2d(8, 4, 1))
        dbq.prepare(net, dbq.Plan("p", default=dbq.LayerPlan.of(8, 8), clip=clip), IMAGE)
        quantizers = [m for m in net.modules() if isinstance(m, InputQuantizer)]
        assert [m.is_learned for m in quantizers] == [False, clip == "lsq"]  # the image has a range
        assert not any(m.has_seen for m in quantizers)
        dbq.calibrate(net, [IMAGE])
        assert all(m.has_seen for m in quantizers)
        once = [copy.deepcopy(m.state_dict()) for m in quantizers]
        dbq.calibrate(net, [5 * IMAGE])
        for quantizer, state in zip(quantizers, once, strict=True):
            for key, value in state.items():
                moved = not torch.equal(quantizer.state_dict()[key], value)
                assert moved is not quantizer.is_learned, key
        assert {m.momentum for m in quantizers} == {0.1}

    @pytest.mark.parametrize("clip", ["range", "lqnet", "lsq"])
    def test_an_error_leaves_them_as_they_were(self, clip: Clip) -> None:
        net = network()
        dbq.prepare(net, dbq.Plan("p", default=dbq.LayerPlan.of(8, 8), clip=clip), IMAGE)
        before = copy.deepcopy(net.state_dict())
        with pytest.raises(DbqError, match="str"):
            dbq.calibrate(net, [IMAGE, "no batch"])
        for key, value in net.state_dict().items():
            assert torch.equal(value, before[key]), key

    @pytest.mark.parametrize("clip", ["range", "lsq"])
    def test_a_tensor_of_zeros_has_been_seen(self, clip: Clip) -> None:
        """A dead ReLU in front of a layer: once calibrated, the network deploys."""
        net = nn.Sequential(nn.Conv2d(3, 8, 12), nn.ReLU(), nn.Flatten(), nn.Linear(8, 4))
        with torch.no_grad():
            net[0].weight.zero_()
            net[0].bias.fill_(-1.0)
        dbq.prepare(net, dbq.Plan("p", default=dbq.LayerPlan.of(8, 8), clip=clip), IMAGE)
        with pytest.raises(LoweringError, match=r"^0"):
            dbq.lower(net, IMAGE)
        dbq.calibrate(net, [IMAGE, 2 * IMAGE])
        state = net.state_dict()
        assert dbq.lower(net, IMAGE).operations
        net.load_state_dict(state)
        assert dbq.lower(net, IMAGE).operations
