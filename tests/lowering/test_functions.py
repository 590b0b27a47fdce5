"""Every function that lowering knows, between two convolutions: the program against torch.

`lower` itself compares each operation with torch, step by step, and raises if an 8-bit code is off by
more than one. What these tests add is that the function is lowered at all, that the outputs agree end to
end, and that the file says the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import dbq
from dbq.deploy import reference
from dbq.deploy.file.fileformat import read_program, write_program
from dbq.deploy.operations.curve import Curve
from dbq.lowering.lower import lower

FX8 = dbq.Plan("all", default=dbq.LayerPlan.of("8b", 8))
CHANNELS = 6

Function = Callable[["Between", Tensor], Tensor]


class Between(nn.Module):
    """Two convolutions with `function` between them; some functions use the parameters."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, CHANNELS, 3, padding=1), nn.BatchNorm2d(CHANNELS)
        self.gate = nn.Conv2d(CHANNELS, CHANNELS, 1)
        self.gamma = nn.Parameter(torch.linspace(-1, 2, CHANNELS)[:, None, None])
        self.last = nn.LazyConv2d(5, 1)
        self.slopes = nn.PReLU(CHANNELS, 0.3)
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.function(self, self.norm(self.first(x))))


def squeeze_excite(net: Between, x: Tensor) -> Tensor:
    return x * torch.sigmoid(net.gate(x.mean((2, 3), keepdim=True)))


def written_out_hard_swish(net: Between, x: Tensor) -> Tensor:
    return x * F.relu6(x + 3) / 6


def focus(net: Between, x: Tensor) -> Tensor:
    return torch.cat([x[..., ::2, ::2], x[..., 1::2, 1::2]], 1)


FUNCTIONS: dict[str, Function] = {
    "sigmoid": lambda net, x: torch.sigmoid(x),
    "hard sigmoid": lambda net, x: F.hardsigmoid(x),
    "hard swish": lambda net, x: F.hardswish(x),
    "hard swish in place": lambda net, x: F.hardswish(x, inplace=True),
    "hard swish written out": written_out_hard_swish,
    "silu": lambda net, x: F.silu(x),
    "gelu": lambda net, x: F.gelu(x),
    "gelu by tanh": lambda net, x: F.gelu(x, approximate="tanh"),
    "mish": lambda net, x: F.mish(x),
    "tanh": lambda net, x: x.tanh(),
    "elu": lambda net, x: F.elu(x, 0.7),
    "leaky relu": lambda net, x: F.leaky_relu(x, 0.2),
    "prelu": lambda net, x: net.slopes(x),
    "clamp": lambda net, x: x.clamp(-0.5, 1.25),
    "clamp without zero": lambda net, x: F.pad(x, (1, 1, 1, 1)).clamp(0.25, 1),
    "clamp from below": lambda net, x: x.clamp(min=-0.5),
    "clamp from above": lambda net, x: torch.clamp_max(x, 0.5),
    "hardtanh": lambda net, x: F.hardtanh(x),
    "squeeze and excite": squeeze_excite,
    "gate for each pixel": lambda net, x: x * torch.sigmoid(x[:, :1]),
    "gate of both": lambda net, x: x[:, :1] * x.mean((2, 3), keepdim=True),
    "square": lambda net, x: x**2,
    "product": lambda net, x: x * x.relu(),
    "scale and shift": lambda net, x: net.gamma * x.relu() + net.gamma - 0.5,
    "difference": lambda net, x: 1 - x.relu(),
    "difference of tensors": lambda net, x: x.relu() - x,
    "weighted sum": lambda net, x: torch.add(x, x.relu(), alpha=-0.5),
    "negative": lambda net, x: -x,
    "division": lambda net, x: x / 3,
    "sum with a pooled tensor": lambda net, x: x + x.mean((2, 3), keepdim=True),
    "sum with one channel": lambda net, x: x.relu() + x[:, 2:3],
    "nearest": lambda net, x: F.interpolate(x, scale_factor=2),
    "nearest to a size": lambda net, x: F.interpolate(x, size=(5, 11)),
    "bilinear": lambda net, x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "bilinear aligned": lambda net, x: F.interpolate(
        x, size=(13, 5), mode="bilinear", align_corners=True
    ),
    "reflected": lambda net, x: F.pad(x, (2, 1, 1, 2), mode="reflect"),
    "repeated": lambda net, x: F.pad(x, (2, 1, 1, 2), mode="replicate"),
    "cropped": lambda net, x: F.pad(x, (-1, 0, 0, -2)),
    "flipped": lambda net, x: x.flip(3),
    "sliced": lambda net, x: x[:, :, 1:-1, 2:],
    "every second pixel": focus,
    "padded, then activated": lambda net, x: F.silu(F.pad(x, (1, 0, 0, 1))),
    "ceil mode": lambda net, x: F.avg_pool2d(x, 3, 2, ceil_mode=True),
    "ceil mode that cuts nothing": lambda net, x: F.avg_pool2d(x, 2, 2, ceil_mode=True),
    "border not counted": lambda net, x: F.avg_pool2d(x, 3, 1, 1, count_include_pad=False),
    "adaptive max pool": lambda net, x: F.adaptive_max_pool2d(x, 4),
    "mean of flattened pixels": lambda net, x: x.flatten(2).mean(-1)[..., None, None],
    "joined with zeros": lambda net, x: torch.cat([x, torch.zeros_like(x[:, :2])], 1),
    "expanded": lambda net, x: x.mean((2, 3), keepdim=True).expand_as(x) + x,
    "contiguous before view": lambda net, x: (
        x.view(2, 3, 2, 8, 8).transpose(1, 2).contiguous().view(2, -1, 8, 8)
    ),
    "stochastic depth": lambda net, x: F.dropout(x, 0.3, training=net.training),
}


def prepared(model: nn.Module, x: Tensor) -> nn.Module:
    model(x)  # the lazy layer
    dbq.prepare(model, FX8, x)
    dbq.calibrate(model, [x])
    return model.eval()


@pytest.mark.parametrize("case", list(FUNCTIONS))
def test_function(case: str) -> None:
    torch.manual_seed(11)
    x = torch.rand(2, 3, 8, 8)
    model = prepared(Between(FUNCTIONS[case]), x)
    program = lower(model, x, report=None)
    assert program.facts["agreement"]["codes"] > 0
    # Codes that differ by one, of some tens that a sum adds up.
    assert program.facts["agreement"]["largest_logit_error"] < 0.05
    images = np.random.default_rng(1).integers(0, 256, (3, 8, 8, 3), np.uint8)
    expected = reference.run(program, images)
    content = write_program(program)
    assert np.array_equal(reference.run(read_program(content), images), expected)


IMAGES: dict[str, nn.Module] = {
    "normalised": nn.Sequential(nn.BatchNorm2d(3), nn.Conv2d(3, 4, 3)),
    "clipped": nn.Sequential(nn.Hardtanh(-0.3, 0.6), nn.Conv2d(3, 4, 3)),
    "averaged": nn.Sequential(nn.AvgPool2d(2), nn.Conv2d(3, 4, 3)),
    "enlarged": nn.Sequential(nn.Upsample(scale_factor=2, mode="bilinear"), nn.Conv2d(3, 4, 3)),
}


class ImageAgain(nn.Module):
    """Reads the image in a layer, and again, pooled, further down."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 4, 3, 2, 1), nn.Conv2d(7, 5, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.cat([self.first(x).relu(), F.avg_pool2d(x, 3, 2, 1)], 1))


@pytest.mark.parametrize(
    ("case", "gate"),
    [
        ("sigmoid", torch.sigmoid),
        ("hard sigmoid", F.hardsigmoid),
        ("hard swish", F.hardsigmoid),
        ("silu", torch.sigmoid),
        ("gelu", torch.special.ndtr),
        ("gelu by tanh", lambda x: F.gelu(x, approximate="tanh") / x),
        ("mish", lambda x: F.mish(x) / x),
        ("tanh", torch.tanh),
        ("elu", torch.expm1),
    ],
)
def test_curves_are_near_what_they_stand_for(case: str, gate: Callable[[Tensor], Tensor]) -> None:
    """Off by 2^-13 at most: in g, and for x * g(x) in g times the interval where g still changes."""
    torch.manual_seed(11)
    x = torch.rand(2, 3, 8, 8)
    program = lower(prepared(Between(FUNCTIONS[case]), x), x, report=None)
    (curve,) = (op for op in program.operations if isinstance(op, Curve))
    at = torch.linspace(-30, 30 if case != "elu" else 0, 100_001, dtype=torch.float64)
    at = at[at != 0]
    places = np.linspace(curve.low, curve.high, curve.segments + 1)
    found = np.interp(at.numpy(), places, curve.knots)
    assert np.abs(found - gate(at).numpy()).max() <= 2**-13


@pytest.mark.parametrize("case", [*IMAGES, "read again"])
def test_the_image_itself(case: str) -> None:
    torch.manual_seed(9)
    mean, std = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)
    x = (torch.rand(2, 3, 8, 8) - 0.5) / 0.25
    model = ImageAgain() if case == "read again" else IMAGES[case]
    dbq.prepare(model, FX8, x)
    dbq.calibrate(model, [x])
    program = lower(model.eval(), x, mean=mean, std=std, report=None)
    assert program.facts["agreement"]["largest_logit_error"] < 0.05
    assert [op.kind for op in program.operations].count("lookup") == 1


@pytest.mark.parametrize(
    "options",
    [
        {"kernel_size": 2, "stride": 2},
        {"kernel_size": 3, "stride": 2, "padding": 1, "output_padding": 1},
        {"kernel_size": (4, 3), "stride": (2, 1), "padding": (3, 1), "groups": 2, "bias": False},
        {"kernel_size": 3, "stride": 3, "dilation": 2, "output_padding": 2},
        {"kernel_size": 1, "stride": 2, "padding": 0},
        {"kernel_size": 2, "padding": 2},
    ],
    ids=str,
)
@pytest.mark.parametrize("weight", ["2T", "8b"])
def test_transposed_convolution(options: dict[str, Any], weight: str) -> None:
    torch.manual_seed(8)
    x = torch.rand(2, 3, 7, 6)
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU(), nn.ConvTranspose2d(4, 6, **options),
                          nn.ReLU(), nn.Conv2d(6, 2, 1))  # fmt: skip
    plan = dbq.Plan("all", default=dbq.LayerPlan.of(weight, 8))
    assert dbq.prepare(model, plan, x).notes == ()
    dbq.calibrate(model, [x])
    program = lower(model.eval(), x, report=None)
    assert program.facts["agreement"]["largest_logit_error"] < 0.05
    model.train()(x).sum().backward()
    assert model[2].weight.grad.abs().sum() > 0


def test_several_outputs_by_name() -> None:
    class Pyramid(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Conv2d(3, 4, 3, 2, 1), nn.Conv2d(4, 6, 3, 2, 1)

        def forward(self, x: Tensor) -> dict[str, object]:
            fine = self.a(x).relu()
            coarse = self.b(fine)
            return {"fine": fine, "more": [coarse, F.max_pool2d(coarse, 2), fine.sigmoid()]}

    torch.manual_seed(3)
    x = torch.rand(2, 3, 16, 16)
    model = Pyramid()
    dbq.prepare(model, FX8, x)
    dbq.calibrate(model, [x])
    program = lower(model.eval(), x, report=None)
    assert [output.name for output in program.outputs] == ["fine", "more.0", "more.1", "more.2"]
    pixels = (x * 255).round().to(torch.uint8)
    with torch.no_grad():
        torchs = model(pixels / 255)
    found = reference.run(program, pixels.permute(0, 2, 3, 1).numpy())
    assert found["fine"].min() == 0
    for name, expected in zip(found, [torchs["fine"], *torchs["more"]], strict=True):
        # Every operation was compared with torch's, so here a loose bound tells outputs apart.
        assert np.allclose(found[name], expected.numpy(), atol=0.05 * float(expected.abs().max()))


def test_a_batch_norm_that_holds_its_activation() -> None:
    """Lowered as a plain batch norm, the logits were off by 74 % and nothing was said."""

    class NormAct(nn.BatchNorm2d):
        def forward(self, input: Tensor) -> Tensor:
            return F.silu(super().forward(input))

    torch.manual_seed(5)
    x = torch.rand(2, 3, 8, 8)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), NormAct(8), nn.Conv2d(8, 4, 1))
    dbq.prepare(model, FX8, x)
    dbq.calibrate(model, [x])
    program = lower(model.eval(), x, report=None)
    assert "curve" in [op.kind for op in program.operations]


def test_batch_norms_whose_statistics_are_not_those_of_the_data() -> None:
    """Their outputs are far from beta +- 64 gamma, and 32-bit codes must hold them all the same."""
    torch.manual_seed(7)
    x = torch.rand(2, 3, 8, 8)
    model = nn.Sequential(nn.Conv2d(3, 6, 1), nn.BatchNorm2d(6), nn.SiLU(), nn.Conv2d(6, 4, 1))
    with torch.no_grad():
        model[0].weight.mul_(1000)
    dbq.prepare(model, FX8, x)
    dbq.calibrate(model, [x])  # by pairs: the statistics stay 0 and 1
    program = lower(model.eval(), x, report=None)
    assert program.facts["agreement"]["largest_logit_error"] < 0.05


def test_a_tensor_of_zeros_is_no_reason_to_refuse() -> None:
    torch.manual_seed(6)
    x = torch.rand(2, 3, 8, 8)
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Conv2d(4, 4, 1), nn.ReLU(), nn.Conv2d(4, 2, 1))
    with torch.no_grad():
        model[1].bias.fill_(-100.0)
    dbq.prepare(model, FX8, x)
    dbq.calibrate(model, [x])
    lower(model.eval(), x, report=None)
