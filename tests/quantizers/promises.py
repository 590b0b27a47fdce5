"""What every weight quantizer promises, checked for one of them: `make(kernels)` gives a new one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from dbq.errors import WeightsError
from dbq.quantizers.contract import WeightQuantizer
from dbq.quantizers.dbq.branch import recompose

Make = Callable[[int], WeightQuantizer]

SHAPES = [(6, 4, 3, 3), (6, 10), (3, 1)]


def fitted(make: Make, weight: Tensor) -> WeightQuantizer:
    quantizer = make(len(weight))
    quantizer.initialise(weight)
    return quantizer


def gradients(quantizer: WeightQuantizer, weight: Tensor, G: Tensor) -> tuple[Tensor, list[Tensor]]:
    """dL/dw, and dL/d(each parameter), for L = sum of G times the quantized weight, in train()."""
    leaf = weight.detach().clone().requires_grad_()
    quantizer.zero_grad()
    (quantizer.train()(leaf) * G).sum().backward()
    assert leaf.grad is not None
    return leaf.grad, [p.grad for p in quantizer.parameters() if p.grad is not None]


def assert_exact(quantizer: WeightQuantizer, weight: Tensor, planes: int) -> None:
    hard = quantizer.eval()(weight).detach()
    codes, scales = quantizer.codes(weight), quantizer.scales(weight).detach()
    assert codes.dtype == torch.int8
    assert codes.shape == (planes, *weight.shape)
    allowed = {-1, 1} if quantizer.precision.kind == "binary" else {-1, 0, 1}
    assert set(codes.unique().tolist()) <= allowed
    assert scales.shape == (len(weight), planes)
    assert (scales >= 0).all()
    assert hard.dtype == weight.dtype
    assert torch.equal(recompose(codes, scales), hard), "recomposed bits differ from eval()"


def assert_exact_for_all_shapes(make: Make, planes: int) -> None:
    for shape in SHAPES:
        for dtype in (torch.float32, torch.float64):
            weight = torch.randn(shape, dtype=dtype)
            assert_exact(fitted(make, weight), weight, planes)


def assert_exact_while_training(make: Make, planes: int) -> None:
    weight = torch.nn.Parameter(torch.randn(6, 4, 3, 3))
    quantizer, target = fitted(make, weight.detach()), torch.randn(weight.shape)
    optimizer = torch.optim.SGD([weight, *quantizer.parameters()], lr=0.2, momentum=0.9)
    for _ in range(10):
        optimizer.zero_grad()
        (quantizer.train()(weight) - target).square().mean().backward()
        optimizer.step()
        assert_exact(quantizer, weight.detach(), planes)


def assert_survives_odd_kernels(make: Make, planes: int) -> None:
    weight = torch.zeros(7, 12)
    weight[1] = 0.3
    weight[2] = -0.3
    weight[3, ::2], weight[3, 1::2] = 0.5, -0.5
    weight[4, 5] = 1e-20
    weight[5, 0] = 7.0
    weight[6] = 1e-41
    for w in (weight, torch.zeros(2, 3, 1, 1), torch.full((2, 5), 0.3)):
        quantizer = fitted(make, w)
        assert_exact(quantizer, w, planes)
        for _ in range(2):
            d_weight, others = gradients(quantizer, w, torch.randn(w.shape))
            assert torch.isfinite(quantizer(w)).all()
            for tensor in (d_weight, *others, *quantizer.state_dict().values()):
                assert torch.isfinite(tensor).all()


def assert_resumes(make: Make) -> None:
    """Saved and loaded: the same eval, and the same next steps."""
    weight, G = torch.randn(6, 20), torch.randn(6, 20)
    first = fitted(make, weight)
    gradients(first, weight + 0.3, G)
    second = make(6)
    second.load_state_dict(first.state_dict())
    for _ in range(2):
        assert torch.equal(first.eval()(weight), second.eval()(weight))
        assert torch.equal(first.train()(weight), second.train()(weight))
        ours, theirs = gradients(first, weight, G), gradients(second, weight, G)
        for a, b in zip((ours[0], *ours[1]), (theirs[0], *theirs[1]), strict=True):
            assert torch.equal(a, b)


def assert_forgets(make: Make) -> None:
    """`initialise` with new weights leaves nothing of the old."""
    old, new = torch.randn(6, 20) * 5, torch.randn(6, 20)
    quantizer = fitted(make, old)
    gradients(quantizer, old, old)
    quantizer.initialise(new)
    fresh = fitted(make, new)
    for name, tensor in fresh.state_dict().items():
        assert torch.equal(quantizer.state_dict()[name], tensor)


def assert_refuses_nan(make: Make) -> None:
    weight = torch.randn(4, 9)
    weight[2, 3] = torch.nan
    with pytest.raises(WeightsError, match="kernel 2"):
        make(4).initialise(weight)
    quantizer = fitted(make, torch.randn(4, 9))
    assert quantizer.eval()(weight)[2, 3].isnan(), "a NaN came out as a level"


def assert_quantizes_half_precision_in_float32(make: Make) -> None:
    weight = torch.randn(4, 30).bfloat16()
    quantizer = fitted(make, weight)
    found = quantizer.eval()(weight)
    assert found.dtype == torch.bfloat16
    assert torch.equal(found, quantizer(weight.float()).bfloat16())


def assert_all_promises(make: Make, planes: int) -> None:
    assert_exact_for_all_shapes(make, planes)
    assert_exact_while_training(make, planes)
    assert_survives_odd_kernels(make, planes)
    assert_resumes(make)
    assert_forgets(make)
    assert_refuses_nan(make)
    assert_quantizes_half_precision_in_float32(make)
