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
    "sigmoid": (Between(nn.Sigmoid()), r"^middle: Sigmoid "),
    "tanh": (Between(torch.tanh), r"^tanh: tanh "),
    "product": (Between(lambda x: x * x), r"^mul: mul "),
    "uneven pool": (Between(nn.AdaptiveAvgPool2d(3)), r"^middle .* 8 x 8 to 3 x 3"),
    "border": (
        Between(nn.AvgPool2d(3, 1, 1, count_include_pad=False)),
        r"^middle.*count_include_pad",
    ),
    "dilated pool": (Between(nn.MaxPool2d(2, dilation=2)), r"^middle.* dilation"),
    "pixel shuffle": (nn.Sequential(conv(3), nn.PixelShuffle(2), conv(1)), r"^1: PixelShuffle "),
    "transposed": (Between(lambda x: x.transpose(2, 3)), r"^last reads transpose"),
    "mean of rows": (Between(lambda x: x.mean(3, keepdim=True)), r"^mean: mean over 3"),
    "broadcast": (Between(lambda x: x + x[:, :1]), r"^add adds \[4, 8, 8\] and \[1, 8, 8\]"),
    "rows joined": (Between(lambda x: torch.cat([x, x], 2)), r"^cat .*dimension 2"),
    "no statistics": (
        Between(nn.BatchNorm2d(4, track_running_stats=False)),
        r"^middle .*statistics",
    ),
    "softmax": (nn.Sequential(conv(3), nn.Softmax(1)), r"^1: Softmax "),
    "last activation": (nn.Sequential(conv(3), nn.ReLU()), r"activation after 0"),
    "last pool": (nn.Sequential(conv(3), nn.MaxPool2d(2)), r"ends with _1"),
    "image scaled": (nn.Sequential(nn.BatchNorm2d(3), conv(3)), r"^0 .*image.*`mean` and `std`"),
    "image clipped": (nn.Sequential(nn.ReLU(), conv(3)), r"^0 .*image"),
    "image averaged": (nn.Sequential(nn.AvgPool2d(2), conv(3)), r"^0 .*image"),
    "reflected": (nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect"), r"reflect"),
}


@pytest.mark.parametrize("case", list(REFUSED))
def test_refused_by_name(case: str) -> None:
    model, names = REFUSED[case]
    with pytest.raises(LoweringError, match=names) as caught:
        lowered(nn.Sequential(model) if isinstance(model, nn.Conv2d) else model)
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


def test_a_tensor_overwritten_in_place_is_noticed() -> None:
    """torch reads the rectified tensor twice; the graph does not say so, the comparison does."""

    def twice(x: Tensor) -> Tensor:
        y = torch.relu_(x)
        return x + y

    with pytest.raises(LoweringError, match=r"^add: .* off by \d+ codes"):
        lowered(Between(twice))


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

    with pytest.raises(LoweringError, match=r"^Branching .*torch\.fx"):
        lowered(Branching())
