"""What cannot be lowered is named: the node, the operation, and what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dbq
from dbq.errors import LoweringError
from dbq.lowering.lower import lower

ONE = torch.ones(())
FX8 = dbq.Plan("all", default=dbq.LayerPlan.of("8b", 8))


def conv(inside: int = 4, outside: int = 4) -> nn.Conv2d:
    return nn.Conv2d(inside, outside, 3, padding=1)


class Between(nn.Module):
    """Two convolutions with `middle` between them."""

    def __init__(self, middle: Callable[[Tensor], Tensor] | nn.Module) -> None:
        super().__init__()
        self.first, self.last = conv(3), conv()
        self.middle = middle

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.middle(self.first(x)))


def lowered(model: nn.Module, plan: dbq.Plan | str = FX8, calibrated: bool = True) -> dbq.Program:
    x = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    dbq.prepare(model, plan, x)
    if calibrated:
        dbq.calibrate(model, [x])
    return lower(model, x, report=None)


# What the error names: the place, and the operation or number that is in the way.
REFUSED: dict[str, tuple[nn.Module, str]] = {
    "cosine": (Between(torch.cos), r"^cos \(cos, test_refusals.py:\d+\): cos cannot"),
    "quotient": (Between(lambda x: x / x), r"^div \(div, .*divides"),
    "uneven pool": (Between(nn.AdaptiveAvgPool2d(3)), r"^middle .* 8 x 8 to 3 x 3"),
    "border": (Between(nn.AvgPool2d(3, 2, 1, ceil_mode=True)), r"^middle.*count_include_pad"),
    "dilated pool": (Between(nn.MaxPool2d(2, dilation=2)), r"^middle.* dilation"),
    "pixel shuffle": (
        nn.Sequential(conv(3), nn.PixelShuffle(2), conv(1)),
        r"^2 .*reads 1 \(pixel_sh",
    ),
    "transposed": (Between(lambda x: x.transpose(2, 3)), r"^last .*reads transpose"),
    "mean of rows": (Between(lambda x: x.mean(3, keepdim=True)), r"^mean .*mean over 3"),
    "rows joined": (Between(lambda x: torch.cat([x, x], 2)), r"^cat .*dimension 2"),
    "no statistics": (
        Between(nn.BatchNorm2d(4, track_running_stats=False)),
        r"^middle .*statistics",
    ),
    "group norm": (Between(nn.GroupNorm(2, 4)), r"^middle .*group_norm.*batch norm"),
    "layer norm": (Between(nn.LayerNorm([4, 8, 8])), r"^middle .*layer_norm.*batch norm"),
    "softmax": (nn.Sequential(conv(3), nn.Softmax(1)), r"^1 .*softmax"),
    "images mixed": (Between(lambda x: x.flip(0)), r"^last .*reads flip"),
    "dropped at random": (Between(nn.functional.dropout), r"^dropout .*training=self\.training"),
    "padded with ones": (Between(nn.ConstantPad2d(1, 1.0)), r"^middle .*with 1\.0"),
    "resized by cubes": (
        Between(nn.Upsample(scale_factor=2, mode="bicubic")),
        r"^middle .*bicubic",
    ),
    "map added": (Between(lambda x: x + torch.arange(8.0)), r"^add .*a constant of shape \[8\]"),
    "linear on pixels": (
        nn.Sequential(conv(3), nn.Flatten(2), nn.Linear(64, 3)),
        r"^2 .*pixels, shape \[4, 64\]",
    ),
    "unknown tensor": (Between(lambda x: x + ONE), r"^add .*no torch function.*buffer"),
    "joined with a constant": (
        Between(lambda x: torch.cat([x[:, :2], torch.ones_like(x[:, :2])], 1)),
        r"^cat .*a constant where",
    ),
    "unknown argument": (
        Between(lambda x: torch.sum(x, (2, 3), keepdim=True)),
        r"^sum .*sum cannot be lowered",
    ),
    "unknown option": (
        Between(lambda x: torch.add(x, x, out=torch.empty_like(x))),
        r"^add .*'out'",
    ),
    "numpy": (Between(lambda x: torch.from_numpy(x.numpy())), r"^numpy .*values of a tensor"),
}


@pytest.mark.parametrize("case", list(REFUSED))
def test_refused_by_name(case: str) -> None:
    model, names = REFUSED[case]
    with pytest.raises(LoweringError, match=names) as caught:
        lowered(model)
    assert "\n" not in str(caught.value)


def test_float_weights_name_a_plan() -> None:
    with pytest.raises(LoweringError, match=r"^first .*float weights.*dbq-2t-4"):
        lowered(Between(nn.ReLU()), dbq.Plan("one", names={"last": dbq.LayerPlan.of("2T", 8)}))
    for weight, input, message in (
        ("float", 8, "float weights"),
        ("2T", "float", "float activations"),
    ):
        mixed = dbq.Plan("mixed", default=dbq.LayerPlan.of(weight, input),
                         names={"last": dbq.LayerPlan.of("2T", 8)})  # fmt: skip
        with pytest.raises(LoweringError, match=f"^first .*{message}"):
            lowered(Between(nn.ReLU()), mixed)


def test_ranges_must_be_known() -> None:
    with pytest.raises(LoweringError, match=r"^first .*dbq\.calibrate"):
        lowered(Between(nn.ReLU()), calibrated=False)


def test_the_weight_code_that_is_too_large() -> None:
    """|-128| does not fit 8 bits: a guard that takes it there never sees it."""
    model = Between(nn.ReLU())
    x = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    dbq.prepare(model, dbq.Plan("lsq", default=dbq.LayerPlan.of("8b", 8, "lsq")), x)
    dbq.calibrate(model, [x])
    quantizer = model.last.weight_quantizer
    quantizer.code_range = (-128, 127)
    with torch.no_grad():
        quantizer.step.mul_(0.01)
    with pytest.raises(LoweringError, match=r"^last .*-128"):
        lower(model, x, report=None)


def test_a_tensor_overwritten_under_another_name_is_noticed() -> None:
    def through_a_view(x: Tensor) -> Tensor:
        x[:, :1].relu_()
        return x

    with pytest.raises(LoweringError, match=r"^last.*changed in place"):
        lowered(Between(through_a_view))

    def into_zeros(x: Tensor) -> Tensor:
        y = torch.zeros_like(x)
        y[:, 1:] = x[:, :-1]
        return y

    with pytest.raises(LoweringError, match=r"^last.*changed in place"):
        lowered(Between(into_zeros))


def test_what_lower_is_given() -> None:
    model = Between(nn.ReLU())
    with pytest.raises(LoweringError, match=r"\[3, 8, 8\]"):
        lower(model, torch.zeros(3, 8, 8))
    with pytest.raises(LoweringError, match=r"\(0\.5,\)"):
        lower(model, torch.zeros(1, 3, 8, 8), mean=(0.5,), std=(0.5,))


def test_names_of_classes() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 4, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)
    )
    x = torch.rand(2, 3, 4, 4)
    dbq.prepare(model, "fx8-3", x)
    dbq.calibrate(model, [x])
    assert "classes" not in dbq.lower(model, x, report=None).facts
    program = dbq.lower(model, x, classes=("cat", "größe"), report=None)
    assert program.facts["classes"] == ["cat", "größe"]
    odd: list[Any] = [["cat"], "ab", ["cat", 1], ["cat", "cat"], ["a", "b", "c"]]
    for classes in odd:
        with pytest.raises(LoweringError, match="2 different strings"):
            dbq.lower(model, x, classes=classes, report=None)


def test_a_network_that_branches_on_values() -> None:
    class Branching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = conv(3)

        def forward(self, x: Tensor) -> Tensor:
            return self.conv(x) if x.sum() > 0 else x

    with pytest.raises(LoweringError, match=r"^bool \(bool, test_refusals.py:\d+\).*values"):
        lowered(Branching())
