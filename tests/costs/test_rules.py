"""The cost rules against the paper's tables, and against the formulas in plain loops."""

from __future__ import annotations

import copy
import json
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dbq.costs.assignment import assign
from dbq.costs.census import LayerRow, NormRow, take_census
from dbq.costs.rules import Cost, cost, fold, plan_cost
from dbq.errors import LayerError, NoMatchError, PlanError
from dbq.experiments.paper.tables import network_rows
from dbq.plans.plan import FLOAT_LAYER, LayerPlan, Plan
from dbq.plans.precision import Precision
from dbq.plans.shipped import PLANS, uniform_plan
from dbq.quantizers.frozen import Branches, FixedPoint

FLOAT_ENDS = {"first": FLOAT_LAYER, "last": FLOAT_LAYER}


def lq_net(branches: int) -> Plan:
    return Plan(f"lqnet-{branches}b", default=LayerPlan.of(f"{branches}B"), roles=FLOAT_ENDS)  # type: ignore[arg-type]


# The paper's tables, with more digits than it prints: units, network, plan, folded, then C_C, C_R, C_M.
MOBILENET_V1, RESNET, OTHER = (1e10, 1e7, "mobilenet_v1"), (1e9, 1e6, "resnet20"), (1e10, 1e7)
FIGURES = [
    (*MOBILENET_V1, PLANS["fp"], False, "33.3731 30.0033 13.5423"),
    (*MOBILENET_V1, PLANS["fx8-1"], False, "5.7847 10.3767 5.9002"),
    (*MOBILENET_V1, PLANS["fx8-2"], False, "5.2356 7.5558 3.4405"),
    (*MOBILENET_V1, PLANS["fx8-3"], False, "5.2356 7.5558 3.4405"),
    (*MOBILENET_V1, PLANS["dbq-1t"], False, "3.5994 20.5846 4.1236"),
    (*MOBILENET_V1, PLANS["dbq-2t-1"], False, "5.2280 21.2125 4.7515"),
    (*MOBILENET_V1, PLANS["dbq-2t-2"], False, "2.7260 9.1209 4.6444"),
    (*MOBILENET_V1, PLANS["dbq-2t-3"], False, "2.7260 9.1209 4.6444"),
    (*MOBILENET_V1, PLANS["dbq-2t-4"], False, "2.1769 6.2999 2.1847"),
    (*MOBILENET_V1, uniform_plan("iao", 8, 8), True, "4.9688 7.4857 3.3705"),
    (*MOBILENET_V1, uniform_plan("uniq-5", 5, 8), False, "3.7015 6.2930 2.1778"),
    (*MOBILENET_V1, uniform_plan("uniq-4", 4, 8), False, "3.1901 5.8721 1.7569"),
    (*MOBILENET_V1, uniform_plan("rq-5", 5, 5), False, "2.6793 4.7498 2.1778"),
    (*MOBILENET_V1, uniform_plan("rq-6", 6, 6), False, "3.4176 5.6851 2.5987"),
    (*RESNET, PLANS["fp"], False, "23.7343 14.6297 8.6311"),
    (*RESNET, lq_net(1), False, "1.5986 6.3445 0.3459"),
    (*RESNET, lq_net(2), False, "2.8331 6.6118 0.6132"),
    (*RESNET, lq_net(3), False, "4.0677 6.8790 0.8804"),
    (*RESNET, PLANS["resnet-1t"], False, "1.5986 6.6118 0.6132"),
    (*RESNET, PLANS["resnet-2t"], False, "2.8331 7.1463 1.1477"),
    (*OTHER, "mobilenet_v2", PLANS["fp"], False, "17.8317 32.871 11.216"),
    (*OTHER, "mobilenet_v2", PLANS["dbq-2t-4"], False, "1.4215 7.452 2.038"),
    (*OTHER, "shufflenet_v2", PLANS["fp"], False, "8.5237 13.811 7.292"),
    (*OTHER, "shufflenet_v2", PLANS["dbq-2t-4"], False, "0.5976 3.008 1.378"),
]


@pytest.mark.parametrize(
    ("adders", "bits", "network", "plan", "folded", "expected"),
    FIGURES,
    ids=[f"{network}-{plan.name}" for _, _, network, plan, *_ in FIGURES],
)
def test_figures_of_the_papers_tables(
    adders: float, bits: float, network: str, plan: Plan, folded: bool, expected: str
) -> None:
    rows = assign(network_rows(network), plan)
    total = Cost(fold(rows) if folded else rows).total
    ours = (total.C_C / adders, total.C_R / bits, total.C_M / bits)
    for value, text in zip(ours, expected.split(), strict=True):
        assert f"{value:.{len(text.partition('.')[2])}f}" == text
    assert total.C_S == total.C_C


def test_operation_table_of_mobilenet_v1() -> None:
    operations = Cost(network_rows("mobilenet_v1")).operations()
    found = {name: (ops.mults, ops.adds, ops.params) for name, ops in operations.items()}
    assert found == {
        "FL": (10_838_016, 10_436_608, 864),
        "DW": (17_385_984, 15_454_208, 44_640),
        "PW": (539_492_352, 536_782_848, 3_139_584),
        "FC": (1_024_000, 1_023_000, 1_025_000),
        "PL": (0, 49_152, 0),
        "BN": (5_042_688, 5_042_688, 21_888),
        "total": (573_783_040, 568_788_504, 4_231_976),
    }


@pytest.mark.parametrize(("network", "share"), [("mobilenet_v2", "87"), ("shufflenet_v2", "90")])
def test_share_of_pointwise_operations_stated_in_the_paper(network: str, share: str) -> None:
    operations = Cost(network_rows(network)).operations()
    assert f"{100 * operations['PW'].mults / operations['total'].mults:.0f}" == share


# -- the formulas once more, in plain loops ---------------------------------------------------------


class WeightCodes(nn.Module):
    """Stands in for a weight quantizer: random codes, a third of them zero."""

    def __init__(self, precision: str) -> None:
        super().__init__()
        self.precision = Precision.parse(precision)
        self.alpha = nn.Parameter(torch.ones(5))  # must not be counted

    def freeze(self, weight: Tensor) -> Branches | FixedPoint:
        codes = self.codes(weight)
        if self.precision.is_branched:
            return Branches(codes, torch.ones(len(weight), len(codes)))
        return FixedPoint(codes[0], torch.ones(len(weight)))

    def codes(self, weight: Tensor) -> Tensor:
        branches = self.precision.size if self.precision.is_branched else 1
        generator = torch.Generator().manual_seed(weight.numel())
        shape = (branches, *weight.shape)
        codes = torch.randint(-1, 2, shape, generator=generator, dtype=torch.int8)
        codes[:, 0] = 0  # a kernel without any weight: max(D' - 1, 0)
        return codes


class InputCodes(nn.Module):
    def __init__(self, precision: str) -> None:
        super().__init__()
        self.precision = Precision.parse(precision)


def quantized(layer: nn.Module, weight: str | None, input: str | None) -> nn.Module:
    layer.register_module("weight_quantizer", WeightCodes(weight) if weight else None)
    layer.register_module("input_quantizer", InputCodes(input) if input else None)
    return layer


def small_network() -> nn.Sequential:
    return nn.Sequential(
        quantized(nn.Conv2d(3, 8, 3, padding=1, bias=False), "8b", None),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        quantized(nn.Conv2d(8, 8, 3, stride=2, groups=8), None, "8b"),
        quantized(nn.Conv2d(8, 12, 1, bias=False), "2T", "8b"),
        nn.BatchNorm2d(12),
        quantized(nn.Conv2d(12, 6, 3, groups=3), "1T", None),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        quantized(nn.Linear(6, 4), "5b", "4b"),
    )


def brute_force(model: nn.Sequential, x: Tensor) -> dict[str, int]:
    """C_C, C_S, C_R, C_M by the paper's sums, dot product by dot product."""
    found = {"C_C": 0, "C_S": 0, "C_R": 0, "C_M": 0}
    for module in model:
        before, x = x, module(x)
        if isinstance(module, nn.BatchNorm2d):
            found["C_C"] += x.numel() * (23 * 23 + 46)
            found["C_S"] += x.numel() * (23 * 23 + 46)
            found["C_M"] += 32 * 2 * module.num_features
        if not isinstance(module, nn.Conv2d | nn.Linear):
            continue
        quantizer, inputs = module.weight_quantizer, module.input_quantizer
        assert isinstance(quantizer, WeightCodes | None)
        assert isinstance(inputs, InputCodes | None)
        weight = quantizer.precision if quantizer else Precision("float", 32)
        activation = inputs.precision if inputs else Precision("float", 32)
        codes = quantizer.codes(module.weight) if quantizer else module.weight[None]
        b_a = 23 if activation.is_float else activation.size
        b_w = 23 if weight.is_float else weight.size
        for kernel in range(len(module.weight)):
            d = module.weight[kernel].numel()
            log = math.ceil(math.log2(d))
            for _ in range(x[0].numel() // len(module.weight)):
                for branch in codes:
                    d_used = int((branch[kernel] != 0).sum())
                    for name, taps in (("C_C", d), ("C_S", d_used)):
                        adds = max(taps - 1, 0)
                        if weight.is_branched:
                            found[name] += adds * (b_a + log - 1)
                        else:
                            found[name] += taps * b_w * b_a + adds * (b_a + b_w + log - 1)
        bits = 2 * weight.size if weight.is_branched else weight.size
        found["C_M"] += module.weight.numel() * bits
        found["C_M"] += 32 * (0 if module.bias is None else module.bias.numel())
        found["C_R"] += before.numel() * activation.size
    found["C_R"] += found["C_M"]
    return found


def test_costs_are_the_sums_of_the_paper() -> None:
    model, x = small_network().eval(), torch.randn(1, 3, 9, 9)
    total = cost(model, x).total
    with torch.no_grad():
        expected = brute_force(model, x)
    assert {name: getattr(total, name) for name in expected} == expected
    assert all(isinstance(getattr(total, name), int) for name in expected)
    assert total.C_S < total.C_C
    codes = {id(p) for m in model.modules() if isinstance(m, WeightCodes) for p in m.parameters()}
    assert total.params == sum(p.numel() for p in model.parameters() if id(p) not in codes)


def test_precisions_and_roles_are_read_off_the_layers() -> None:
    rows = [
        r for r in cost(small_network(), torch.randn(1, 3, 9, 9)).rows if isinstance(r, LayerRow)
    ]
    assert [(row.role, str(row.weight), str(row.input)) for row in rows] == [
        ("first", "8b", "32b"),
        ("depthwise", "32b", "8b"),
        ("pointwise", "2T", "8b"),
        ("conv", "1T", "32b"),
        ("last", "5b", "4b"),
    ]
    assert rows[3].D == 4 * 9
    assert rows[2].nonzero == tuple(
        int(b.count_nonzero()) for b in WeightCodes("2T").codes(torch.zeros(12, 8, 1, 1))
    )


def test_folding_leaves_one_addition_an_element() -> None:
    model, x = small_network(), torch.randn(1, 3, 9, 9)
    plain, folded = cost(model, x).total, cost(model, x, fold_bn=True).total
    elements = 8 * 81 + 12 * 16
    saved = plain.C_C - folded.C_C
    assert saved == elements * 23 * 23
    assert plain.C_M - folded.C_M == plain.C_R - folded.C_R == 32 * 2 * (8 + 12)
    assert plain.params - folded.params == 2 * (8 + 12)


def test_batch_norm_that_follows_no_layer_cannot_be_folded() -> None:
    for between in (nn.ReLU(), nn.ReLU(inplace=True), nn.MaxPool2d(2)):
        model = nn.Sequential(nn.Conv2d(3, 4, 3), between, nn.BatchNorm2d(4))
        x = torch.randn(2, 3, 8, 8)
        assert cost(model, x, fold_bn=True).total == cost(model, x).total


# -- any model --------------------------------------------------------------------------------------


class Shared(nn.Module):
    """The same convolution at two resolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, padding=1)
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(F.max_pool2d(F.relu(self.conv(x)), 2))
        return self.head(y.mean((2, 3)))


def test_shared_layer_computes_twice_and_is_stored_once() -> None:
    found = cost(Shared(), torch.randn(1, 4, 8, 8))
    first, second = found.rows[:2]
    assert isinstance(first, LayerRow)
    assert isinstance(second, LayerRow)
    assert (first.name, first.positions, second.name, second.positions) == ("conv", 64, "conv", 16)
    assert found.total.macs == 36 * 4 * (64 + 16) + 8
    assert found.total.params == sum(p.numel() for p in Shared().parameters())
    assert found.to_json()["total"]["C_M"] == 32 * found.total.params
    assert found.operations()["PL"].adds == 4 * 15
    assert found.not_counted == ()


def test_tied_parameter_is_stored_once() -> None:
    embedding, head = nn.Embedding(10, 4), nn.Linear(4, 10, bias=False)
    head.weight = embedding.weight
    total = cost(nn.Sequential(embedding, head), torch.zeros(3, 7, dtype=torch.long)).total
    assert (total.params, total.macs) == (40, 7 * 40)


class Sundry(nn.Module):
    """Things without a rule, beside things that need none."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.GroupNorm(2, 8)
        self.up = nn.ConvTranspose2d(8, 8, 2, stride=2)
        self.kernel = nn.Parameter(torch.randn(8, 8, 1, 1))
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.recurrent = nn.LSTM(8, 8, batch_first=True)
        self.idle = nn.Linear(5, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.silu(self.norm(self.conv(x)))
        x = F.dropout(x + F.conv2d(x, self.kernel), training=self.training)
        x = F.interpolate(self.up(x), scale_factor=0.5, mode="bilinear")
        x = (
            torch.cat(x.chunk(2, dim=1), dim=1).flatten(2).transpose(1, 2)
        )  # [N, 8, H, W] -> [N, HW, 8]
        x, _ = self.attention(x, x, x)
        x, _ = self.recurrent(x)
        return torch.softmax(x @ x.transpose(1, 2), dim=-1)


def test_what_has_no_rule_is_listed_by_name() -> None:
    model = Sundry()
    found = cost(model, torch.randn(2, 3, 4, 4))
    listed = {entry.partition(":")[0]: entry.partition(": ")[2] for entry in found.not_counted}
    assert set(listed) == {
        "model (Sundry)",
        "norm (GroupNorm)",
        "attention (MultiheadAttention)",
        "attention.out_proj (NonDynamicallyQuantizableLinear)",
        "recurrent (LSTM)",
        "idle (Linear)",
    }
    assert listed["model (Sundry)"] == "convolution, bmm"
    assert listed["idle (Linear)"] == "never runs"
    assert found.total.macs == 27 * 8 * 16 + 8 * 8 * 4 * 16, (
        "4 x 4 pixels; up, once for each of them"
    )
    assert found.total.params == sum(p.numel() for p in model.parameters())
    assert "never runs" in found.table()


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (nn.Conv1d(2, 3, 3), (2, 2, 8)),
        (nn.InstanceNorm2d(3), (2, 3, 8, 8)),
        (nn.Bilinear(3, 3, 2), (2, 3)),
        (nn.GRU(3, 2), (2, 4, 3)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_other_layers_do_not_crash(model: nn.Module, shape: tuple[int, ...]) -> None:
    x = torch.randn(shape)
    found = cost(model, (x, x) if isinstance(model, nn.Bilinear) else x)
    assert len(found.not_counted) == 1
    assert found.total.macs == 0


@pytest.mark.parametrize(
    "activation", [nn.ReLU(), nn.ReLU6(), nn.SiLU(), nn.Hardswish(), nn.PReLU()]
)
def test_activations_are_left_out_in_silence(activation: nn.Module) -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), activation, nn.MaxPool2d(2), nn.Dropout(), nn.Flatten()
    )
    assert cost(model, torch.randn(1, 3, 8, 8)).not_counted == ()


class Wide(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(4, 3), nn.Linear(6, 3)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.left(x) + self.right(input=y)


@pytest.mark.parametrize("batch", [1, 2, 7])
def test_costs_are_those_of_one_image(batch: int) -> None:
    found = cost(Wide(), (torch.randn(batch, 4), torch.randn(batch, 6)))
    assert (found.total.macs, found.total.C_R - found.total.C_M) == (30, 320)
    assert cost(Shared(), torch.randn(batch, 4, 8, 8)).total.macs == 36 * 4 * 80 + 8


def test_image_without_batch_dimension() -> None:
    conv = nn.Conv2d(3, 4, 3)
    assert cost(conv, torch.randn(3, 8, 8)).total == cost(conv, torch.randn(1, 3, 8, 8)).total


class Pairs(nn.Conv2d):
    def forward(self, input: Tensor) -> Tensor:
        assert len(input) == 2, "expected a pair"
        return super().forward(input)


def test_model_that_refuses_one_image_gets_the_whole_example() -> None:
    assert cost(nn.Sequential(Pairs(3, 4, 1)), torch.randn(2, 3, 5, 5)).total.macs == 2 * 25 * 12
    with pytest.raises(LayerError, match=r"\(3, 3, 5, 5\).*expected a pair"):
        cost(nn.Sequential(Pairs(3, 4, 1)), torch.randn(3, 3, 5, 5))


class Restless(nn.Module):
    """Changes buffers and draws random numbers even in eval mode; norm by function."""

    mean: Tensor
    var: Tensor
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, bias=False)
        self.scale, self.shift = nn.Parameter(torch.ones(4)), nn.Parameter(torch.zeros(4))
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("var", torch.ones(4))
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("last", None)
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        self.mean = self.mean + torch.rand(4)
        self.last = torch.ones(3)
        y = F.batch_norm(self.conv(x), self.mean, self.var, self.scale, self.shift)
        return self.norm(y)


def test_model_is_left_as_it_was() -> None:
    model = Restless()
    model.norm.eval()
    before, modes = copy.deepcopy(model.state_dict()), [m.training for m in model.modules()]
    random_state = torch.get_rng_state()
    cost(model, torch.ones(2, 3, 8, 8))
    after = model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)
    assert [m.training for m in model.modules()] == modes
    assert model.last is None
    assert torch.equal(torch.get_rng_state(), random_state)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_hooks_are_removed_after_a_failure() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3))
    with pytest.raises(LayerError, match="example input"):
        cost(model, torch.randn(1, 5, 8, 8))
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert all(m.training for m in model.modules())


def test_functional_batch_norm_is_counted_and_folded() -> None:
    x = torch.ones(2, 3, 8, 8)
    plain, folded = cost(Restless(), x), cost(Restless(), x, fold_bn=True)
    norms = [row for row in plain.rows if isinstance(row, NormRow)]
    assert [(row.elements, row.params, row.follows_layer) for row in norms] == [
        (4 * 36, 8, True),
        (4 * 36, 8, False),
    ]
    assert plain.total.params - folded.total.params == 8
    assert plain.not_counted == ()


def test_weight_norm_is_stored_as_the_weight_it_makes() -> None:
    conv = nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 8, 3))
    assert cost(nn.Sequential(conv), torch.randn(1, 3, 8, 8)).total.params == 8 * 27 + 8


def test_lazy_layers_are_refused() -> None:
    with pytest.raises(LayerError, match="lazy"):
        cost(nn.Sequential(nn.LazyConv2d(3, 3)), torch.randn(1, 3, 8, 8))


def test_uneven_adaptive_pooling() -> None:
    pool = nn.AdaptiveAvgPool2d(4)  # windows of 3, 3, 3, 3 over 10 pixels
    found = cost(nn.Sequential(pool, nn.AvgPool2d(2)), torch.randn(2, 3, 10, 10))
    assert [row.adds for row in found.rows] == [3 * 16 * 8, 3 * 4 * 3]
    alone = cost(nn.Sequential(nn.Conv2d(3, 3, 1), pool), torch.randn(3, 10, 10))
    assert alone.operations()["PL"].adds == 3 * 16 * 8


# -- plans on float models --------------------------------------------------------------------------

PLAIN = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 16, 1), nn.Flatten(), nn.Linear(16, 4))
IMAGE = torch.zeros(1, 3, 3, 3)


def test_given_sparsity() -> None:
    dense = plan_cost(PLAIN, IMAGE, "dbq-2t-4")
    assert dense.total.C_S == dense.total.C_C
    given = plan_cost(PLAIN, IMAGE, "dbq-2t-4", sparsity={"1": (0.25, 0.75), "3": 0.5})
    assert given.total.C_C == dense.total.C_C
    # 1: 16 kernels, D' = 6 and 2, 8 + 3 - 1 bits; 3: 4 kernels, D' = 8 of 16, 8 + 8 + 4 - 1 bits
    saved_branches = 16 * (7 + 7 - 5 - 1) * 10
    saved_linear = 4 * (8 * 64 + 8 * 19)
    saved = dense.total.C_S - given.total.C_S
    assert saved == saved_branches + saved_linear


def test_plan_cost_needs_no_arithmetic() -> None:
    with torch.device("meta"):
        model, x = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)), torch.zeros(1, 3, 8, 8)
    assert plan_cost(model, x, "fx8-3").total.macs == 27 * 8 * 36


@pytest.mark.parametrize(
    ("plan", "sparsity", "error", "message"),
    [
        (Plan("p", names={"9": FLOAT_LAYER}), None, NoMatchError, "'9'"),
        (Plan("p", patterns={"x*": FLOAT_LAYER}), None, NoMatchError, "'x\\*'"),
        (
            Plan("p", roles={"depthwise": LayerPlan.of(8)}),
            None,
            NoMatchError,
            "p .*first, last, pointwise",
        ),
        ("dbq-2t-4", {"7": 0.5}, NoMatchError, "'7'"),
        ("dbq-2t-4", {"1": 1.5}, PlanError, "1.5 of layer 1"),
        ("dbq-2t-4", {"1": (0.5, 0.5, 0.5)}, PlanError, "layer 1 .*2"),
        (uniform_plan("p", "1B", "float"), {"1": 0.5}, PlanError, "layer 1.*binary"),
        ("dbq-9t", None, PlanError, "dbq-9t"),
    ],
)
def test_plan_errors(plan: Any, sparsity: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        plan_cost(PLAIN, IMAGE, plan, sparsity=sparsity)


# -- presentation -----------------------------------------------------------------------------------


def test_json_is_plain_and_adds_up() -> None:
    found = cost(small_network(), torch.randn(1, 3, 9, 9))
    data = json.loads(json.dumps(found.to_json()))
    assert set(data) == {"total", "by_role", "operations", "rows", "not_counted", "note"}
    for name, value in data["total"].items():
        assert sum(part[name] for part in data["by_role"].values()) == value
    for name in ("C_C", "C_S", "C_R", "C_M", "params"):
        assert sum(row[name] for row in data["rows"]) == data["total"][name]
    for name in ("mults", "adds", "params"):
        parts = [ops[name] for part, ops in data["operations"].items() if part != "total"]
        assert sum(parts) == data["operations"]["total"][name]
    assert data["rows"][0] | {"C_C": 0, "C_S": 0} == {
        "group": "first", "name": "0", "C_C": 0, "C_S": 0, "C_R": 32 * 243 + 8 * 216, "C_M": 8 * 216,
        "params": 216, "D": 27, "N": 648, "macs": 17496, "inputs": 243, "weight": "8b", "input": "32b",
        "sparsity": data["rows"][0]["sparsity"],
    }  # fmt: skip


@pytest.mark.parametrize("by", ["layer", "role", "ops"])
def test_tables_fit_a_hundred_columns(by: Any) -> None:
    text = Cost(assign(network_rows("mobilenet_v2"), PLANS["dbq-2t-4"])).table(by)
    assert max(map(len, text.splitlines())) <= 100
    assert "total" in text


def test_long_lists_of_what_is_not_counted_are_cut() -> None:
    text = str(Cost((), tuple(f"layer{i} (LSTM): mm" for i in range(13))))
    assert "layer9 (LSTM)" in text
    assert "layer10" not in text
    assert "and 3 more" in text


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_census_of_nothing() -> None:
    found = cost(nn.Identity(), torch.zeros(1, 3))
    assert found.rows == ()
    assert found.total.C_C == 0
    assert take_census(nn.Linear(3, 0), torch.zeros(1, 3)).rows


def test_permuted_images_are_no_operation() -> None:
    """Pooling a channels-last tensor calls as_strided_, which moves nothing and computes nothing."""
    net = nn.Sequential(nn.Conv2d(3, 4, 1), nn.AdaptiveAvgPool2d(1))
    found = cost(net, torch.rand(2, 8, 8, 3).permute(0, 3, 1, 2))
    assert "as_strided" not in str(found)
    assert found.total == cost(net, torch.rand(2, 3, 8, 8)).total
