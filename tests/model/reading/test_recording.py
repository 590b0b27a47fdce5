"""A recorded run: what it says of calls, names, constants and writing in place."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dbq.model.reading.recording import Constant, Overwritten, Recorded, Unseen, record

IMAGE = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(2))


class Forward(nn.Module):
    def __init__(self, forward: Any) -> None:
        super().__init__()
        self.conv, self.act = nn.Conv2d(3, 4, 1), nn.ReLU(inplace=True)
        self.scale = nn.Parameter(torch.ones(4, 1, 1))
        self.forward = lambda x: forward(self, x)


def kinds(net: nn.Module, op: str) -> list[type]:
    """What the last call of `op` was given."""
    (*_, call) = (call for call in record(net, IMAGE).calls if call.op == op)
    return [type(tensor) for tensor in call.tensors()]


def test_every_way_to_write_an_addition_has_one_name() -> None:
    def forward(net: Forward, x: Tensor) -> Tensor:
        y = torch.add(x, 1) + x
        y = 1 + y.add(x)
        y += x
        return y.add_(1)

    assert {call.op for call in record(Forward(forward), IMAGE).calls} == {"add"}


def test_names_are_unique_and_those_of_layers_are_their_paths() -> None:
    def forward(net: Forward, x: Tensor) -> Tensor:
        return net.act(net.act(net.conv(x)) + 1) + 2

    names = [call.name for call in record(Forward(forward), IMAGE).calls]
    assert names == ["conv", "act", "add", "act_1", "add_1"]


def test_a_call_knows_the_line_it_stands_on() -> None:
    net = Forward(lambda net, x: F.relu(net.conv(x)))
    (_, call) = record(net, IMAGE).calls
    assert call.line.startswith("test_recording.py:")
    assert "relu" in call.place


def test_what_does_not_depend_on_the_image_is_constant() -> None:
    def forward(net: Forward, x: Tensor) -> Tensor:
        doubled = net.scale * 2 + torch.zeros_like(x[:, :1]).mean()
        return net.conv(x) * doubled

    assert kinds(Forward(forward), "mul") == [Recorded, Constant]
    assert kinds(Forward(lambda net, x: net.conv(x)), "conv2d") == [Recorded, Constant, Constant]


def test_a_tensor_changed_through_a_view_is_noticed() -> None:
    def forward(net: Forward, x: Tensor) -> Tensor:
        y = net.conv(x)
        y[:, :2].mul_(3)
        return y + 1

    assert kinds(Forward(forward), "add") == [Overwritten]


def test_a_tensor_changed_under_its_own_name_is_followed() -> None:
    def forward(net: Forward, x: Tensor) -> Tensor:
        y = net.conv(x)
        net.act(y)
        return y + 1

    calls = {call.op: call for call in record(Forward(forward), IMAGE).calls}
    assert list(calls["add"].tensors()) == [calls["relu"].output]


def test_what_torch_functions_did_not_make_is_unseen() -> None:
    one = torch.ones(())
    assert kinds(Forward(lambda net, x: x + one), "add") == [Recorded, Unseen]
    assert kinds(Forward(lambda net, x: x + torch.from_numpy(x.numpy())), "add") == [
        Recorded,
        Unseen,
    ]


def test_functions_with_a_backward_of_their_own() -> None:
    class Swish(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * torch.sigmoid(x)

    recording = record(Forward(lambda net, x: Swish.apply(net.conv(x)) + 1), IMAGE)
    assert [call.op for call in recording.calls] == ["conv2d", "sigmoid", "mul", "add"]


def test_any_output_and_any_python() -> None:
    def forward(net: Forward, x: Tensor) -> dict[str, Any]:
        parts = {}
        for i, part in enumerate(net.conv(x).chunk(2, 1)):
            assert part.shape[1] == 2
            parts[f"part {i}"] = part
        return {"parts": parts, "size": x.shape[0]}

    output = record(Forward(forward), IMAGE).output
    assert output["size"] == 2
    assert [type(part) for part in output["parts"].values()] == [Recorded, Recorded]


def test_kept_tensors_are_those_of_the_moment() -> None:
    def forward(net: Forward, x: Tensor) -> Tensor:
        return net.act(x - 0.5)

    net = Forward(forward)
    _, shifted, rectified = record(net, IMAGE, keep=True).values()
    assert shifted.tensor is not None
    assert rectified.tensor is not None
    assert torch.equal(shifted.tensor, IMAGE - 0.5)
    assert torch.equal(rectified.tensor, (IMAGE - 0.5).relu())
    assert shifted.peak == float((IMAGE - 0.5).abs().max())


def test_the_model_is_left_as_it_was() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.Dropout(0.5))
    state = {key: value.clone() for key, value in net.state_dict().items()}
    record(net, IMAGE)
    assert net.training
    assert all(torch.equal(value, state[key]) for key, value in net.state_dict().items())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in net.modules())
