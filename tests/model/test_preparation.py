"""prepare on networks of every shape: what it finds, what it keeps, what it refuses."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import prune

import dbq
from dbq.errors import LayerError, NoMatchError, PlanError, WeightsError
from dbq.model.layers import QuantConv2d, QuantLinear
from dbq.plans.plan import LayerPlan, Plan
from dbq.quantizers.inputs import BatchNormClip, ClippedInput, ConstantClip, RunningClip
from tests.gradient import gradient

of = LayerPlan.of
IMAGE = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(1))


class Net(nn.Module):
    """Functional ReLUs, a residual, a concatenation, a grouped convolution, a shared layer."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.stem_bn = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.dw, self.dw_bn = nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.BatchNorm2d(8)
        self.pw, self.pw_bn = nn.Conv2d(8, 8, 1, bias=False), nn.BatchNorm2d(8)
        self.shared = nn.Conv2d(8, 8, 1)
        self.grouped = nn.Conv2d(16, 16, 3, groups=4, padding=1)
        self.hidden = nn.Linear(16, 12)
        self.head = nn.Linear(12, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.stem_bn(self.stem(x)))
        y = self.dw_bn(self.dw(x)).relu()
        x = F.relu(x + self.pw_bn(self.pw(y)))
        x = torch.cat([self.shared(x), self.shared(x).relu()], dim=1)
        x = self.grouped(x).mean((2, 3))
        return self.head(torch.sigmoid(self.hidden(x)))


def clip_of(net: nn.Module, name: str) -> nn.Module:
    layer = net.get_submodule(name)
    assert isinstance(layer, QuantConv2d | QuantLinear)
    assert isinstance(layer.input_quantizer, ClippedInput)
    return layer.input_quantizer.clip


def test_roles_sources_and_signs() -> None:
    net = Net()
    summary = dbq.prepare(net, "dbq-2t-4", IMAGE)
    found = {row.name: (row.role, row.weight, row.clip) for row in summary.layers}
    assert found == {
        "stem": ("first", "8b", "±range"),
        "dw": ("depthwise", "8b", "bn stem_bn"),
        "pw": ("pointwise", "2T", "bn dw_bn"),
        "shared": ("pointwise", "2T", "range"),  # reads relu(residual sum): no batch norm, no sign
        "grouped": ("conv", "8b", "±range"),  # half of the concatenation may be negative
        "hidden": ("pointwise", "2T", "±range"),
        "head": ("last", "8b", "range"),  # a sigmoid
    }
    assert summary.notes == ()
    clip = clip_of(net, "pw")
    assert isinstance(clip, BatchNormClip)
    assert clip.batch_norm is net.dw_bn


def test_relu6_rule_and_relu6_cap() -> None:
    def net() -> nn.Sequential:
        return nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU6(), nn.Conv2d(8, 8, 1),
            nn.BatchNorm2d(8), nn.Conv2d(8, 4, 1), nn.Conv2d(4, 2, 1),
        )  # fmt: skip

    by_bn, by_relu6 = net(), net()
    dbq.prepare(by_bn, "fx8-3", IMAGE)
    dbq.prepare(by_relu6, "fx8-2", IMAGE)
    clip = clip_of(by_bn, "3")
    assert isinstance(clip, BatchNormClip)
    assert clip.cap == 6.0
    assert isinstance(clip_of(by_relu6, "3"), ConstantClip)
    # BN with no ReLU behind it is signed: clipping at 6 makes no sense there
    assert isinstance(clip_of(by_relu6, "5"), RunningClip)
    assert clip_of(by_bn, "5").signed


def test_a_layer_called_on_unlike_tensors_gets_a_running_range() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.bn, self.b = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), nn.Conv2d(3, 3, 1)
            self.c = nn.Conv2d(3, 3, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.c(self.b(self.bn(self.a(x)).relu()) + self.b(x))

    net = Twice()
    dbq.prepare(net, "fx8-3", IMAGE)
    clip = clip_of(net, "b")
    assert isinstance(clip, RunningClip)
    assert net.b.input_quantizer.signed


def clips(net: nn.Module, plan: str = "fx8-3") -> dict[str, str]:
    return {row.name: row.clip for row in dbq.prepare(net, plan, IMAGE).layers}


class Between(nn.Module):
    """conv a, batch norm, something given, conv b, conv c."""

    def __init__(self, something: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.a, self.norm = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.b, self.c = nn.Conv2d(4, 4, 1), nn.Conv2d(4, 2, 1)
        self.something = something

    def forward(self, x: Tensor) -> Tensor:
        return self.c(self.b(self.something(self.norm(self.a(x)))))


def written_in_place(y: Tensor) -> Tensor:
    y = y.relu()
    y.sub_(0.5)
    return y


def view_written_in_place(y: Tensor) -> Tensor:
    y = y.relu()
    y.flatten(1).mul_(-1.0)
    return y


def shared_with_in_place(y: Tensor) -> Tensor:
    F.relu(y, inplace=True)
    return y


@pytest.mark.parametrize(
    ("something", "clip"),
    [
        (lambda y: y, "±bn norm"),
        (F.relu, "bn norm"),
        (lambda y: y.relu_(), "bn norm"),
        (lambda y: F.relu(y, inplace=True), "bn norm"),
        (lambda y: F.relu6(y)[:, :].contiguous().view(2, 4, 16, 16), "bn norm"),
        (lambda y: torch.cat(y.relu().chunk(2, 1), 1), "range"),
        (written_in_place, "±range"),
        (view_written_in_place, "±range"),
        (shared_with_in_place, "bn norm"),
        (lambda y: F.avg_pool2d(y.relu(), 2), "range"),
        (lambda y: F.dropout(y.relu(), 0.5), "range"),
        (lambda y: torch.add(y.relu(), y.relu(), alpha=-1), "±range"),
        (lambda y: torch.mul(y.relu(), other=-1.0), "±range"),
        (lambda y: y.relu() * -1.0, "±range"),
        (lambda y: y.relu() * 2.0, "range"),
        (lambda y: y.relu() + y, "±range"),
        (lambda y: y.relu() * torch.sigmoid(y), "range"),
        (lambda y: torch.sigmoid(y) * y, "±range"),
        (lambda y: y.relu() - 1.0, "±range"),
        (lambda y: y / y.norm(dim=1, keepdim=True), "±range"),
        (F.silu, "±range"),
    ],
)
def test_what_stands_between_batch_norm_and_layer(
    something: Callable[[Tensor], Tensor], clip: str
) -> None:
    assert clips(Between(something))["b"] == clip


def test_in_place_sum_is_not_the_batch_norms_range() -> None:
    class Residual(Between):
        def forward(self, x: Tensor) -> Tensor:
            z = self.norm(self.a(x))
            z.add_(100.0)
            return self.c(self.b(F.relu(z)))

    assert clips(Residual(F.relu))["b"] == "range"


def test_tracing_leaves_no_trace() -> None:
    class Remembers(Between):
        def forward(self, x: Tensor) -> Tensor:
            self.seen = self.norm(self.a(x))
            return self.c(self.b(self.seen))

    net = Remembers(F.relu)
    dbq.prepare(net, "fx8-3", IMAGE)
    assert isinstance(net.seen, Tensor)


def test_layers_called_by_keyword() -> None:
    class ByKeyword(Between):
        def forward(self, x: Tensor) -> Tensor:
            return self.c(input=self.b(input=F.relu(self.norm(self.a(input=x)))))

    assert clips(ByKeyword(F.relu)) == {"a": "±range", "b": "bn norm", "c": "±range"}


def test_a_model_that_looks_at_values_is_read_as_it_ran() -> None:
    class Branching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.bn, self.b = nn.Conv2d(3, 8, 1), nn.BatchNorm2d(8), nn.Conv2d(8, 2, 1)

        def forward(self, x: Tensor) -> Tensor:
            x = self.bn(self.a(x)).relu()
            if x.sum() > 0:
                x = x * 2
            return self.b(x)

    net = Branching()
    dbq.prepare(net, "fx8-3", IMAGE)
    assert isinstance(clip_of(net, "b"), RunningClip)
    net.train()(IMAGE).sum().backward()


# ---------------------------------------------------------------- what stays as it was


def test_model_keeps_class_keys_parameters_and_hooks() -> None:
    net = Net()
    keys, parameters = set(net.state_dict()), dict(net.named_parameters())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    calls = []
    net.pw.register_forward_hook(lambda *_: calls.append("pw"))
    dbq.prepare(net, "dbq-2t-4", IMAGE)
    assert type(net) is Net
    assert keys <= set(net.state_dict())
    for name, parameter in parameters.items():
        assert dict(net.named_parameters())[name] is parameter, "optimizers made before still work"
    calls.clear()
    before = net.pw.weight.detach().clone()
    net.train()(IMAGE).square().sum().backward()
    optimizer.step()
    assert calls == ["pw"]
    assert not torch.equal(net.pw.weight, before)


def test_float_plan_changes_nothing() -> None:
    net, twin = Net(), Net()
    twin.load_state_dict(net.state_dict())
    dbq.prepare(net, "fp", IMAGE)
    assert torch.equal(net.eval()(IMAGE), twin.eval()(IMAGE))
    assert not any(isinstance(m, QuantConv2d | QuantLinear) for m in net.modules())


def test_training_flag_and_statistics_are_untouched() -> None:
    net = Net()
    net.pw.eval()
    state = copy.deepcopy(net.state_dict())
    dbq.prepare(net, "fx8-3", IMAGE)
    assert net.training
    assert not net.pw.training
    for key, value in state.items():
        assert torch.equal(net.state_dict()[key], value), key


def test_float_checkpoint_loads_after_prepare_and_refits() -> None:
    trained = Net()
    net = Net()
    dbq.prepare(net, "dbq-2t-4", IMAGE)
    dbq.calibrate(net, [IMAGE])
    net.load_state_dict(trained.state_dict())  # strict
    twin = copy.deepcopy(trained)
    dbq.prepare(twin, "dbq-2t-4", IMAGE)
    assert torch.equal(net.eval()(IMAGE), twin.eval()(IMAGE)), "as if loaded before"
    assert clip_of(net, "shared").limit == 0, "ranges of the old weights are forgotten"


def test_quantized_checkpoint_round_trip_and_partial_loads() -> None:
    net = Net()
    dbq.prepare(net, "dbq-2t-4", IMAGE)
    with torch.no_grad():
        net.pw.weight_quantizer.alpha += 0.05
    dbq.calibrate(net, [IMAGE])
    other = Net()
    dbq.prepare(other, "dbq-2t-4", IMAGE)
    other.load_state_dict(net.state_dict())
    assert torch.equal(net.eval()(IMAGE), other.eval()(IMAGE))
    # A partial load that does not touch the layer must not refit its quantizer.
    alpha = net.pw.weight_quantizer.alpha.detach().clone()
    net.load_state_dict({"head.bias": torch.zeros(5)}, strict=False)
    assert torch.equal(net.get_parameter("pw.weight_quantizer.alpha"), alpha)
    # A checkpoint with half of a quantizer is not a float checkpoint.
    broken = net.state_dict()
    del broken["pw.weight_quantizer.alpha"]
    with pytest.raises(RuntimeError, match=r"Missing key.*pw\.weight_quantizer\.alpha"):
        other.load_state_dict(broken)


def test_deepcopy_and_pickle_follow_the_copys_batch_norm() -> None:
    net = Net()
    dbq.prepare(net, "dbq-2t-4", IMAGE)
    for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert torch.equal(net.eval()(IMAGE), twin.eval()(IMAGE))
        assert clip_of(twin, "pw").batch_norm is twin.dw_bn
        assert twin.dw_bn is not net.dw_bn


def test_sync_batch_norm_conversion_keeps_the_clip_alive() -> None:
    net = Net()
    dbq.prepare(net, "dbq-2t-4", IMAGE)
    net = nn.SyncBatchNorm.convert_sync_batchnorm(net)
    with torch.no_grad():
        net.dw_bn.bias += 10
    assert clip_of(net, "pw")(IMAGE) > 10


@pytest.mark.slow
@pytest.mark.parametrize("plan", ["dbq-2t-4", "dbq-1t", "fx8-2"])
def test_torch_compile_of_a_prepared_model(plan: str) -> None:
    net = Net()
    dbq.prepare(net, plan, IMAGE)
    dbq.calibrate(net, [IMAGE])
    net.eval()
    compiled = torch.compile(net, backend="aot_eager")
    assert torch.equal(compiled(IMAGE), net(IMAGE))
    net.train()
    twin = copy.deepcopy(net)
    compiled(IMAGE).square().sum().backward()
    twin(IMAGE).square().sum().backward()
    largest = max(float(p.grad.abs().max()) for p in twin.parameters())
    for (name, a), (_, b) in zip(net.named_parameters(), twin.named_parameters(), strict=True):
        # float32 sums over 512 pixels in another order; some gradients are zero but for rounding
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-3, atol=1e-6 * largest)
        assert torch.isfinite(gradient(a)).all(), name


def test_autocast_trains() -> None:
    net = Net()
    dbq.prepare(net, "dbq-2t-4", IMAGE)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = net.train()(IMAGE).float().square().sum()
    loss.backward()
    assert all(torch.isfinite(gradient(p)).all() for p in net.parameters())


# ---------------------------------------------------------------- refusals


def refused(
    plan: Plan | str, error: type[Exception], match: str, net: nn.Module | None = None
) -> None:
    net = net or Net()
    state, kinds = copy.deepcopy(net.state_dict()), [type(m) for m in net.modules()]
    with pytest.raises(error, match=match) as caught:
        dbq.prepare(net, plan, IMAGE)
    assert "\n" not in str(caught.value)
    assert [type(m) for m in net.modules()] == kinds, "a refused model is left as it was"
    for key, value in net.state_dict().items():
        assert torch.equal(value, state[key]) or value.isnan().any()


def test_names_patterns_and_plans_that_match_nothing() -> None:
    refused(Plan("p", names={"pww": of("2T")}), NoMatchError, "'pww'.* pw, dw")
    refused(Plan("p", patterns={"blk.*": of("2T")}), NoMatchError, r"'blk\.\*'")
    refused(
        Plan("p", roles={"depthwise": of(8)}),
        NoMatchError,
        "first, last.* depthwise",
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 1)),
    )
    refused("dbq-2t-5", PlanError, "dbq-2t-5.* dbq-2t-4")


def test_layers_that_cannot_be_quantized() -> None:
    plan = Plan("p", names={"dw_bn": of("8b")})
    refused(plan, LayerError, "'dw_bn'.* BatchNorm2d")

    class Standardised(nn.Conv2d):
        def forward(self, input: Tensor) -> Tensor:
            return self._conv_forward(input, self.weight / self.weight.std(), self.bias)

    net = nn.Sequential(Standardised(3, 4, 3), nn.Conv2d(4, 4, 1), nn.Conv2d(4, 2, 1))
    refused(Plan("p", names={"0": of("8b")}), LayerError, "'0'.* Standardised", net)
    (note,) = dbq.prepare(net, "fx8-3", IMAGE).notes
    assert note.startswith("0 ")
    assert "Standardised" in note


def test_parametrized_layers_are_left_alone() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 1), nn.Conv2d(4, 2, 1))
    torch.nn.utils.parametrizations.weight_norm(net[1])
    (note,) = dbq.prepare(net, "fx8-3", IMAGE).notes
    assert note.startswith("1 ")
    net.train()(IMAGE).sum().backward()


class Volume(nn.Conv3d):
    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input[:, :, None])[:, :, 0]


def test_layers_that_would_not_work_are_left_alone_and_named() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 1), Volume(4, 4, (1, 2, 2)),
                        nn.Conv2d(4, 4, 1), nn.Conv2d(4, 2, 1))  # fmt: skip
    net[1].forward = lambda x: x  # what some wrapping libraries do
    prune.l1_unstructured(net[3], "weight", 0.5)
    notes = dbq.prepare(net, "fx8-3", IMAGE).notes
    assert [note.split()[0] for note in sorted(notes)] == ["1", "2", "3"]
    assert "Volume" in sorted(notes)[1]


def test_quantizers_follow_the_mode_of_their_layer() -> None:
    net = Net()
    net.pw.eval()
    dbq.prepare(net, "dbq-2t-4", IMAGE)
    assert not net.pw.weight_quantizer.training
    assert net.shared.weight_quantizer.training


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
@pytest.mark.parametrize("cast", ["before", "after"])
def test_other_data_types(dtype: torch.dtype, cast: str) -> None:
    net = Net()
    if cast == "before":
        net = net.to(dtype)
        dbq.prepare(net, "dbq-2t-4", IMAGE.to(dtype))
    else:
        dbq.prepare(net, "dbq-2t-4", IMAGE)
        net = net.to(dtype)
    images = IMAGE.to(dtype)
    dbq.calibrate(net, [images])
    output = net.train()(images)
    assert output.dtype == dtype
    output.float().square().sum().backward()
    assert all(torch.isfinite(gradient(p)).all() for p in net.parameters())
    net.eval()
    for name, layer in dbq.branches(net).items():
        used = net.get_submodule(name).quantized_weight()
        assert torch.equal(layer.weight.to(used.dtype), used), name


def test_nan_float_checkpoint_names_the_layer() -> None:
    net = Net()
    dbq.prepare(net, "dbq-2t-4", IMAGE)
    state = Net().state_dict()
    state["pw.weight"][0, 0] = torch.nan
    with pytest.raises(WeightsError, match=r"pw.*1 of 64"):
        net.load_state_dict(state)


def test_unreached_layers_are_reported() -> None:
    class Unused(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.spare = nn.Conv2d(3, 4, 1), nn.Conv2d(3, 4, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.used(x)

    (note,) = dbq.prepare(Unused(), "fx8-3", IMAGE).notes
    assert note.startswith("spare ")
    refused(Plan("p", names={"spare": of(8)}), NoMatchError, "'spare'", Unused())


def test_bad_weights_name_their_layer() -> None:
    net = Net()
    with torch.no_grad():
        net.pw.weight[3, 2] = torch.nan
    refused("dbq-2t-4", WeightsError, "layer pw: 1 of 64 weights are NaN or infinite", net)


def test_twice_is_an_error() -> None:
    net = Net()
    dbq.prepare(net, "fx8-3", IMAGE)
    with pytest.raises(LayerError, match="stem"):
        dbq.prepare(net, "fx8-3", IMAGE)


def test_bad_methods_and_options() -> None:
    refused(Plan("p", default=of("2B")), PlanError, "binary weights .2B. need a method")
    refused(
        Plan("p", default=of("2T", method="dqb")), PlanError, "no quantizer 'dqb'; closest: dbq"
    )
    refused(Plan("p", default=of(8, method="dbq")), PlanError, "'dbq' makes ternary weights, .* 8b")
    refused(
        Plan("p", default=of("2T", init=3)), PlanError, "option init = 3 of 'dbq': expected str"
    )
    refused(
        Plan("p", default=of(8, per_channel="no")), PlanError, "per_channel = 'no'.*expected bool"
    )
    refused(None, PlanError, "not a NoneType")  # type: ignore[arg-type]
    refused(Plan("p", default=of("2T", init="kmean")), PlanError, "closest: kmeans")
    refused(
        Plan("p", default=of("2T", inti="x")),
        PlanError,
        "method 'dbq' has no option 'inti'; closest: init",
    )


def test_frozen_layers_stay_frozen() -> None:
    net = Net()
    net.pw.weight.requires_grad_(False)
    dbq.prepare(net, "dbq-2t-1", IMAGE)
    assert not any(p.requires_grad for p in net.pw.weight_quantizer.parameters())
    assert all(p.requires_grad for p in net.shared.weight_quantizer.parameters())


def test_models_without_weights_or_of_no_use() -> None:
    with torch.device("meta"):
        net = Net()
    with pytest.raises(LayerError, match="meta"):
        dbq.prepare(net, "fx8-3", IMAGE.to("meta"))
    with pytest.raises(LayerError, match="str"):
        dbq.prepare("resnet20", "fx8-3", IMAGE)  # type: ignore[arg-type]


def test_empty_batch() -> None:
    net = Net()
    dbq.prepare(net, "fx8-3", IMAGE)
    dbq.calibrate(net, [IMAGE])
    assert net.eval()(IMAGE[:0]).shape == (0, 5)


def test_input_that_does_not_fit() -> None:
    with pytest.raises(LayerError, match="dict") as caught:
        dbq.prepare(Net(), "fx8-3", {"x": IMAGE})
    assert "\n" not in str(caught.value)
    with pytest.raises(LayerError, match=r"\(1, 4, 8, 8\)"):
        dbq.prepare(Net(), "fx8-3", torch.zeros(1, 4, 8, 8))


# ---------------------------------------------------------------- the summary


def test_summary_prints_and_serialises() -> None:
    summary = dbq.prepare(Net(), "dbq-2t-4", IMAGE)
    text = str(summary)
    assert "plan dbq-2t-4" in text
    for row in summary.layers:
        assert row.name in text
    data = summary.to_json()
    assert data["plan"] == "dbq-2t-4"
    assert data["layers"][2]["shape"] == (8, 8, 1, 1)
    assert 0 < data["layers"][2]["weight_error"] < 0.3


def test_plan_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('[roles.pointwise]\nweight = "3T"\noptions = { init = "kmeans" }\n')
    net = Net()
    summary = dbq.prepare(net, path, IMAGE)
    assert {row.name for row in summary.layers if row.weight == "3T"} == {"pw", "shared", "hidden"}
    assert net.pw.weight_quantizer.init == "kmeans"
