"""Rounded activations: native kernels against torch calls, and inputs rounded again instead of kept."""

from __future__ import annotations

import shutil
from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dbq.plans.precision import Precision
from dbq.quantizers import native, rounding
from dbq.quantizers.inputs import ClippedInput, ConstantClip
from dbq.quantizers.rounding import CodeGrid, keep_unrounded, round_and_clip
from tests.gradient import gradient

GRIDS = [(0, 255), (-127, 127), (0, 15), (-1, 1)]
no_compiler = native.NATIVE is None and shutil.which("c++") is None
needs_native = pytest.mark.skipif(no_compiler, reason="no C++ compiler to build the library with")


@pytest.fixture
def torch_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounding, "serves", lambda x: False)
    monkeypatch.setattr(rounding, "NATIVE", None)


@pytest.fixture(params=["native", "torch"])
def either(request: pytest.FixtureRequest) -> None:
    if request.param == "torch":
        request.getfixturevalue("torch_only")


def both_passes(x: Tensor, grid: CodeGrid, G: Tensor) -> tuple[Tensor, Tensor]:
    x = x.detach().requires_grad_()
    rounded = round_and_clip(x, grid)
    rounded.backward(G)
    return rounded.detach(), gradient(x)


@needs_native
@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize(("low", "high"), GRIDS)
@pytest.mark.parametrize("count", [1, 7, 8, 61])
def test_native_equals_torch_to_the_bit(
    low: int, high: int, count: int, order: torch.memory_format, request: pytest.FixtureRequest
) -> None:
    torch.manual_seed(count)
    grid = CodeGrid(torch.tensor(0.0173), low, high)
    reach = 1.5 * high * 0.0173
    x = (reach * torch.randn(2, 3, count, 5)).contiguous(memory_format=order)
    x[0, 0, 0] = 0.0173 * torch.tensor([0.5, 1.5, -2.5, high, 0.0])  # ties, the clip itself, zero
    G = torch.randn(2, 3, count, 5)  # in the usual order, whatever that of x
    ours = both_passes(x, grid, G)
    request.getfixturevalue("torch_only")
    for a, b in zip(ours, both_passes(x, grid, G), strict=True):
        assert torch.equal(a, b)


@needs_native
def test_threads_and_views_change_nothing() -> None:
    grid, x, G = CodeGrid(torch.tensor(0.1), 0, 255), 30 * torch.rand(1 << 18), torch.rand(1 << 18)
    results = []
    for threads in (1, 3):
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            results.append(both_passes(x, grid, G))
        finally:
            torch.set_num_threads(before)
    strided = torch.stack([x, x], 1)[:, 0]  # every other element: torch calls
    results.append(both_passes(strided, grid, G))
    for result in results[1:]:
        assert torch.equal(result[0], results[0][0])
        assert torch.equal(result[1], results[0][1])


@pytest.mark.parametrize("low", [0, -127])
def test_nan_gets_no_gradient(low: int, either: None) -> None:
    x, grid = torch.tensor([1.0, float("nan"), 2.0]), CodeGrid(torch.tensor(1.0), low, 127)
    assert both_passes(x, grid, torch.ones(3))[1].tolist() == [1, 0, 1]


def test_nan_is_not_hidden(either: None) -> None:
    x = torch.tensor([1.0, float("nan"), 2.0])
    rounded = round_and_clip(x, CodeGrid(torch.tensor(1.0), 0, 255))
    assert rounded.isnan().tolist() == [False, True, False]


@pytest.mark.parametrize(("low", "high"), GRIDS)
@pytest.mark.parametrize("step", [1e-30, 0.0173, 3.7e20])
def test_the_rounded_input_is_not_kept(low: int, high: int, step: float, either: None) -> None:
    grid = CodeGrid(torch.tensor(step), low, high)
    x = 1.5 * step * torch.arange(low, high + 1).float()
    values = round_and_clip(x, grid).requires_grad_()
    with keep_unrounded(x, values, grid):
        product = values * torch.ones_like(values).requires_grad_()
    kept = product.grad_fn._saved_self
    assert kept.data_ptr() != values.data_ptr(), "the value itself was kept"
    assert torch.equal(kept, values)


def layer_gradients(layer: nn.Module, x: Tensor, keeps: bool) -> list[Tensor]:
    """Gradients of a layer behind a quantizer: of its input and its parameters."""
    quantizer = ClippedInput(Precision("fixed", 8), False, ConstantClip(2.0)).train()
    x = x.clone().requires_grad_()
    layer.zero_grad()
    rounded = quantizer(x)
    with quantizer.keeping(x, rounded) if keeps else nullcontext():
        y = layer(rounded)
    F.mse_loss(y, torch.zeros_like(y)).backward()
    return [gradient(x), *(gradient(p).clone() for p in layer.parameters())]


@pytest.mark.parametrize("layer", [
    nn.Conv2d(6, 4, 3, padding=1), nn.Conv2d(6, 6, 3, groups=6, stride=2), nn.Linear(5, 3),
    nn.ConvTranspose2d(6, 4, 2), nn.Conv2d(6, 4, 3, padding=1, padding_mode="reflect"),
], ids=["conv", "depthwise", "linear", "transposed", "padded by itself"])  # fmt: skip
def test_gradients_are_those_of_a_kept_input(layer: nn.Module, either: None) -> None:
    x = 3 * torch.rand(2, 6, 5, 5, generator=torch.Generator().manual_seed(0))
    again, kept = layer_gradients(layer, x, keeps=True), layer_gradients(layer, x, keeps=False)
    assert all(torch.equal(a, b) for a, b in zip(again, kept, strict=True))


def test_a_range_that_moves_later_changes_nothing() -> None:
    """The input is rounded again by the step it was rounded by."""
    step = torch.tensor(0.5)
    grid = CodeGrid(step, 0, 255)
    x, w = torch.tensor([3.1, 4.4]).requires_grad_(), torch.ones(2, requires_grad=True)
    rounded = round_and_clip(x, grid)
    with keep_unrounded(x, rounded, grid):
        y = (rounded * w).sum()
    with torch.no_grad():
        step.mul_(10)
    (d_w,) = torch.autograd.grad(y, [w])
    assert d_w.tolist() == [3.0, 4.5]


def test_an_input_changed_in_place_is_an_error() -> None:
    """As it is for a float layer: autograd keeps the same tensor there."""
    quantizer = ClippedInput(Precision("fixed", 8), False, ConstantClip(2.0)).train()
    x, w = torch.rand(4), torch.ones(4, requires_grad=True)
    rounded = quantizer(x)
    with quantizer.keeping(x, rounded):
        y = (rounded * w).sum()
    x.mul_(2)
    with pytest.raises(RuntimeError, match="in place"):
        y.backward()
