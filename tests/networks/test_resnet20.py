"""ResNet-20 against its equations written out, and against published weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from dbq.networks.table import create_model
from dbq.networks.weights import load_weights, read_weights


def conv_bn(state: dict[str, Tensor], x: Tensor, conv: str, bn: str, stride: int = 1) -> Tensor:
    x = functional.conv2d(x, state[f"{conv}.weight"], stride=stride, padding=1)
    names = ("running_mean", "running_var", "weight", "bias")
    mean, variance, weight, bias = (state[f"{bn}.{name}"] for name in names)
    return functional.batch_norm(x, mean, variance, weight, bias)


def equations(state: dict[str, Tensor], x: Tensor) -> Tensor:
    """ResNet-20 as a function of its state dict, written without any module."""
    x = conv_bn(state, x, "conv1", "bn1").relu()
    for stage in (1, 2, 3):
        for block in (0, 1, 2):
            at = f"layer{stage}.{block}"
            halves = stage > 1 and block == 0
            y = conv_bn(state, x, f"{at}.conv1", f"{at}.bn1", stride=2 if halves else 1).relu()
            y = conv_bn(state, y, f"{at}.conv2", f"{at}.bn2")
            if halves:  # zeros [N, C/2, H, W] before and behind the C channels
                x = x[..., ::2, ::2]
                zeros = torch.zeros_like(x)[:, : x.shape[1] // 2]
                x = torch.cat((zeros, x, zeros), dim=1)
            x = (x + y).relu()
    return x.flatten(2).mean(2) @ state["linear.weight"].T + state["linear.bias"]


def randomize(model: torch.nn.Module) -> None:
    for key, tensor in model.state_dict().items():
        if key.endswith(("running_mean", "bias")):
            tensor.normal_(0, 0.3)
        elif key.endswith("running_var") or ("bn" in key and key.endswith("weight")):
            tensor.uniform_(0.5, 1.5)


@pytest.mark.parametrize("width", [0.5, 1.0, 2.0])
def test_matches_the_equations(width: float) -> None:
    torch.manual_seed(0)
    model = create_model("resnet20", width=width).double().eval()
    randomize(model)
    images = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(model(images), equations(model.state_dict(), images))


def test_parameter_count() -> None:
    assert sum(p.numel() for p in create_model("resnet20").parameters()) == 269_722


def test_width_scales_every_stage() -> None:
    state = create_model("resnet20", width=0.5, num_classes=7).state_dict()
    shapes = [list(state[f"layer{i}.2.conv2.weight"].shape) for i in (1, 2, 3)]
    assert shapes == [[8, 8, 3, 3], [16, 16, 3, 3], [32, 32, 3, 3]]
    assert list(state["linear.weight"].shape) == [7, 32]


@pytest.mark.parametrize("width", [0.01, 0.2])
def test_odd_channel_counts_run(width: float) -> None:
    model = create_model("resnet20", width=width).eval()
    assert model(torch.zeros(1, 3, 17, 17)).shape == (1, 10)


def test_published_weights_have_exactly_our_keys(resnet20_weights: Path) -> None:
    ours = create_model("resnet20").state_dict()
    expected = {key: value.shape for key, value in ours.items() if "num_batches" not in key}
    assert {key: value.shape for key, value in read_weights(resnet20_weights).items()} == expected


def test_published_weights_load(resnet20_weights: Path) -> None:
    model = create_model("resnet20", weights=resnet20_weights).eval()
    published = read_weights(resnet20_weights)
    assert all(torch.equal(model.state_dict()[key], value) for key, value in published.items())
    again = create_model("resnet20").eval()
    load_weights(again, str(resnet20_weights))
    images = torch.randn(1, 3, 32, 32)
    with torch.no_grad():
        expected = equations(published, images)
        torch.testing.assert_close(model(images), expected, rtol=1e-4, atol=1e-4)
        assert torch.equal(model(images), again(images))
