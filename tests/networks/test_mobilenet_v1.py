"""MobileNetV1 against the paper's operation table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dbq
from dbq.errors import DbqError
from dbq.networks.mobilenet_v1 import MobileNetV1
from dbq.networks.table import create_model
from tests.conftest import outside_file


def part(name: str, module: nn.Module) -> str:
    """FL, DW, PW, FC or BN, by the names of the network."""
    if isinstance(module, nn.BatchNorm2d):
        return "BN"
    parts = {"stem": "FL", "depthwise": "DW", "pointwise": "PW", "fc": "FC"}
    return next(kind for key, kind in parts.items() if key in name)


def operations() -> tuple[Counter[str], Counter[str]]:
    """Multiplications for one 224-pixel image, and parameters, of each part; on no memory."""
    mults: Counter[str] = Counter()
    params: Counter[str] = Counter()

    def counter(kind: str) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], None]:
        def count(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            weight = module.get_parameter("weight")
            mults[kind] += output.numel() * (1 if kind == "BN" else weight[0].numel())

        return count

    with torch.device("meta"):
        model = create_model("mobilenet_v1").eval()
        for name, module in model.named_modules():
            if isinstance(module, nn.Conv2d | nn.Linear | nn.BatchNorm2d):
                kind = part(name, module)
                params[kind] += sum(p.numel() for p in module.parameters())
                module.register_forward_hook(counter(kind))
        assert model(torch.empty(1, 3, 224, 224)).shape == (1, 1000)
    return mults, params


def test_operation_table_of_the_paper() -> None:
    mults, params = operations()
    assert mults.total() == 573_783_040
    assert params.total() == 4_231_976
    expected = {
        "FL": (1.89, 0.02),
        "DW": (3.03, 1.05),
        "PW": (94.02, 74.19),
        "FC": (0.18, 24.22),
        "BN": (0.88, 0.52),
    }
    for kind, shares in expected.items():
        found = 100 * mults[kind] / mults.total(), 100 * params[kind] / params.total()
        assert found == pytest.approx(shares, abs=0.006), kind


def sizes(model: nn.Module, side: int) -> list[int]:
    """The side of the feature map after the stem and after each block."""
    x = model.stem(torch.zeros(1, 3, side, side))
    found = [x.shape[-1]]
    for block in model.blocks:
        x = block(x)
        found.append(x.shape[-1])
    return found


def test_resolution_by_block() -> None:
    model = create_model("mobilenet_v1", width=0.25).eval()
    assert model.input_size == 224
    assert sizes(model, 224) == [112] * 2 + [56] * 2 + [28] * 2 + [14] * 6 + [7] * 2


def test_small_input_keeps_resolution_twice() -> None:
    model = create_model("mobilenet_v1", width=0.25, num_classes=10, small_input=True).eval()
    assert model.input_size == 32
    assert MobileNetV1.input_size == 224
    assert sizes(model, 32) == [32] * 4 + [16] * 2 + [8] * 6 + [4] * 2
    assert model(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


@pytest.mark.parametrize(
    ("width", "channels"),
    [(0.1, [8, 8, 12, 102]), (0.75, [24, 48, 96, 768]), (1.4, [44, 89, 179, 1433])],
)
def test_width_truncates_and_keeps_eight_channels(width: float, channels: list[int]) -> None:
    with torch.device("meta"):
        model = create_model("mobilenet_v1", width=width)
    state = model.state_dict()
    keys = ["stem", "blocks.0.pointwise", "blocks.1.pointwise", "blocks.12.pointwise"]
    assert [len(state[f"{key}.conv.weight"]) for key in keys] == channels


def test_every_convolution_is_followed_by_batch_norm_and_relu() -> None:
    layers = [
        layer for layer in create_model("mobilenet_v1").modules() if not list(layer.children())
    ]
    kinds = [type(layer) for layer in layers]
    assert kinds == [nn.Conv2d, nn.BatchNorm2d, nn.ReLU] * 27 + [nn.AdaptiveAvgPool2d, nn.Linear]


def test_the_quantization_friendly_form_has_bare_depthwise_layers() -> None:
    net = MobileNetV1(num_classes=10, width=0.25, small_input=True, quantization_friendly=True)
    usual = MobileNetV1(num_classes=10, width=0.25, small_input=True)
    missing = set(usual.state_dict()) - set(net.state_dict())
    # weight, bias, mean, variance and count of one batch norm in each of 13 blocks, nothing else
    assert len(missing) == 13 * 5
    assert all(".depthwise.bn." in key for key in missing)
    image = torch.randn(1, 3, 32, 32)
    summary = dbq.prepare(net, "fx8-3", image)
    reads = {row.name: row.clip for row in summary.layers if row.role == "pointwise"}
    assert set(reads.values()) == {"±range"}, "what a bare depthwise layer gives is signed"
    assert torch.isfinite(net.eval()(image)).all()


def same_convolution(x: Tensor, weight: Tensor, stride: int, groups: int) -> Tensor:
    """TensorFlow's SAME, restated: ceil(n / stride) outputs; what is padded in all is halved, and the
    odd one goes to the end."""
    sides = []
    for size, kernel in zip(x.shape[2:], weight.shape[2:], strict=True):
        total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
        sides.append((total // 2, total - total // 2))
    (top, bottom), (left, right) = sides
    padded = nn.functional.pad(x, (left, right, top, bottom))
    return nn.functional.conv2d(padded, weight, stride=stride, groups=groups)


@pytest.mark.parametrize("side", [96, 224])
def test_same_padding_is_tensorflows(side: int) -> None:
    net = create_model("mobilenet_v1", width=0.25, padding="same", activation="relu6").eval()
    x = expected = 4 * torch.randn(1, 3, side, side)
    with torch.no_grad():
        for part in (net.stem, *(half for block in net.blocks for half in block)):
            x, conv = part(x), part.conv
            expected = same_convolution(expected, conv.weight, conv.stride[0], conv.groups)
            expected = part.bn(expected).clamp(0, 6)
            # one sum of at most 1024 float32 products, in another order
            assert torch.allclose(x, expected, rtol=1e-4, atol=1e-4)
    assert x.shape[-1] == side // 32


def test_options_of_tensorflow_change_no_keys_and_are_checked() -> None:
    usual = create_model("mobilenet_v1", width=0.25)
    other = create_model("mobilenet_v1", width=0.25, padding="same", activation="relu6")
    shapes = [
        {key: value.shape for key, value in net.state_dict().items()} for net in (usual, other)
    ]
    assert shapes[0] == shapes[1]
    assert not any(isinstance(layer, nn.ReLU6 | nn.ZeroPad2d) for layer in usual.modules())
    with pytest.raises(DbqError, match="padding = 'SAME'; expected symmetric or same"):
        create_model("mobilenet_v1", padding="SAME")
    with pytest.raises(DbqError, match="activation = 'gelu'; expected relu or relu6"):
        create_model("mobilenet_v1", activation="gelu")


def test_the_padding_can_be_lowered() -> None:
    net = create_model(
        "mobilenet_v1", num_classes=2, width=0.25, padding="same", activation="relu6"
    )
    images = torch.rand(2, 3, 64, 64)
    dbq.prepare(net, "dbq-2t-4", images)
    dbq.calibrate(net, [images])
    program = dbq.lower(net, images, report=None)
    assert program.facts["agreement"]["same_top1"] == 2
    # at the top and on the left: none before the strided stem, one before the first depthwise layer
    assert [op.window.padding for op in program.convolutions[:2]] == [(0, 0), (1, 1)]


@pytest.mark.parametrize(
    ("file", "options"),
    [
        ("mobilenet_v1-imagenet.safetensors", {"padding": "same", "activation": "relu6"}),
        (
            "mobilenet_v1-0.25-vww96.safetensors",
            {"padding": "same", "num_classes": 2, "width": 0.25},
        ),
    ],
)
def test_weights_that_tensorflow_published(file: str, options: dict[str, Any]) -> None:
    net = create_model("mobilenet_v1", weights=outside_file(file), **options).eval()
    assert torch.isfinite(net(torch.zeros(1, 3, 96, 96))).all()
