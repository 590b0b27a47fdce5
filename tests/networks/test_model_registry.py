"""What holds for every network in the table, and create_model's errors."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import fx, nn

from dbq.errors import DbqError, UnknownModelError
from dbq.networks.table import MODELS, create_model, input_size

SIDES = {"resnet20": 32, "mobilenet_v1": 224, "mobilenet_v2": 224, "shufflenet_v2": 224}


def small(name: str) -> nn.Module:
    torch.manual_seed(0)
    return create_model(name, num_classes=5, width=0.5)


def test_the_table_and_its_defaults() -> None:
    assert {name: input_size(name) for name in MODELS} == SIDES
    with torch.device("meta"):
        classes = {
            name: create_model(name)(torch.empty(2, 3, side, side)).shape[1]
            for name, side in SIDES.items()
        }
    assert classes == {name: 10 if name == "resnet20" else 1000 for name in SIDES}


@pytest.mark.parametrize("name", MODELS)
def test_traces_to_the_same_function(name: str) -> None:
    model = small(name).eval()
    traced = fx.symbolic_trace(model)
    images = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        assert torch.equal(traced(images), model(images))


@pytest.mark.parametrize("name", MODELS)
def test_every_parameter_gets_a_gradient(name: str) -> None:
    model = small(name).train()
    model(torch.randn(4, 3, 64, 64)).square().sum().backward()
    silent = [key for key, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert silent == []


@pytest.mark.parametrize("name", MODELS)
def test_no_operation_overwrites_its_input(name: str) -> None:
    """Hooks of other parts keep tensors; an in-place ReLU would change them afterwards."""
    model = small(name).eval()
    kept: list[tuple[torch.Tensor, torch.Tensor]] = []
    for layer in model.modules():
        layer.register_forward_hook(lambda _m, _i, out: kept.append((out, out.clone())))
    with torch.no_grad():
        model(torch.randn(1, 3, 64, 64))
    assert kept
    assert all(torch.equal(now, then) for now, then in kept)


@pytest.mark.parametrize("name", MODELS)
def test_copies_are_independent_and_equal(name: str) -> None:
    model = small(name).eval()
    twin = copy.deepcopy(model)
    images = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        assert torch.equal(twin(images), model(images))


@pytest.mark.parametrize("name", MODELS)
def test_activations_neither_vanish_nor_explode_at_the_start(name: str) -> None:
    model = small(name).train()
    spreads: list[float] = []
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            layer.register_forward_hook(lambda _m, _i, out: spreads.append(float(out.std())))
    with torch.no_grad():
        model(torch.randn(4, 3, 64, 64))
    assert min(spreads) > 0.1
    assert max(spreads) < 20


def test_weights_are_loaded(tmp_path: Any) -> None:
    model = small("resnet20")
    save_file(model.state_dict(), tmp_path / "net.safetensors")
    again = create_model("resnet20", num_classes=5, width=0.5, weights=tmp_path / "net.safetensors")
    assert all(
        torch.equal(value, model.state_dict()[key]) for key, value in again.state_dict().items()
    )


def test_unknown_network_names_the_closest() -> None:
    for call in (create_model, input_size):
        with pytest.raises(UnknownModelError, match=r"'mobilenetv2'; closest: mobilenet_v2"):
            call("mobilenetv2")


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("resnet20", {"small_input": True}, "resnet20 has no option 'small_input'; known: num_"),
        ("mobilenet_v1", {"small_inputs": True}, "no option 'small_inputs'; closest: small_input"),
        ("resnet20", {"num_classes": 0}, "num_classes 0; expected a positive integer"),
        ("resnet20", {"num_classes": 2.5}, r"num_classes 2\.5; expected a positive integer"),
        ("resnet20", {"width": 0}, "width 0; expected a positive number"),
        ("resnet20", {"width": float("nan")}, "width nan; expected a positive number"),
        ("resnet20", {"width": float("inf")}, "width inf; expected a positive number"),
        ("resnet20", {"width": "wide"}, "width 'wide'; expected a positive number"),
        ("resnet20", {"width": 100_000.0}, "width 100000"),
        ("resnet20", {"num_classes": 10**13}, "num_classes 10000000000000"),
        ("mobilenet_v1", {"small_input": 5}, "small_input = 5; expected a bool"),
        ("mobilenet_v1", {"quantization_friendly": "no"}, "quantization_friendly = 'no'"),
        ("shufflenet_v2", {"width": 0.75}, r"width 0\.75: expected one of \[0\.5, 1\.0, 1\.5"),
    ],
)
def test_bad_options(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(DbqError, match=message):
        create_model(name, **options)


def test_shufflenet_for_small_images() -> None:
    net = create_model("shufflenet_v2", num_classes=10, width=0.5, small_input=True).eval()
    usual = create_model("shufflenet_v2", num_classes=10, width=0.5).eval()
    assert {k: v.shape for k, v in net.state_dict().items()} == {
        k: v.shape for k, v in usual.state_dict().items()
    }
    assert net.input_size == 32
    assert usual.input_size == 224
    image = torch.zeros(1, 3, 32, 32)
    assert net.maxpool(net.conv1(image)).shape[-1] == 32
    assert usual.maxpool(usual.conv1(image)).shape[-1] == 8
    assert net(image).shape == (1, 10)
