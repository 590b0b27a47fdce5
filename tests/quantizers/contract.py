"""The contract of every weight quantizer; `make(kernels)` gives a new one.

`test_every_method.py` holds each entry of the table to it; tests of single methods use the helpers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest
import torch
from torch import Tensor

from dbq.errors import WeightsError
from dbq.quantizers.contract import WeightQuantizer
from dbq.quantizers.frozen import Branches, FixedPoint, Frozen, Levels

Quantizer = TypeVar("Quantizer", bound=WeightQuantizer)
Make = Callable[[int], WeightQuantizer]

SHAPES = [(6, 4, 3, 3), (6, 10), (3, 1)]


def fitted(make: Callable[[int], Quantizer], weight: Tensor) -> Quantizer:
    quantizer = make(len(weight))
    quantizer.initialise(weight)
    return quantizer


def gradients(quantizer: WeightQuantizer, weight: Tensor, G: Tensor) -> tuple[Tensor, list[Tensor]]:
    """dL/dw, and dL/d(each parameter), for L = sum of G times the quantized weight, in train()."""
    torch.manual_seed(7)
    leaf = weight.detach().clone().requires_grad_()
    quantizer.zero_grad()
    (quantizer.train()(leaf) * G).sum().backward()
    assert leaf.grad is not None
    return leaf.grad, [p.grad for p in quantizer.parameters() if p.grad is not None]


def assert_finite(quantizer: WeightQuantizer, weight: Tensor) -> None:
    """Training steps and eval give numbers, whatever state the quantizer is in."""
    for _ in range(2):
        d_weight, others = gradients(quantizer, weight, torch.randn(weight.shape))
        assert torch.isfinite(quantizer(weight)).all()
        for tensor in (d_weight, *others, *quantizer.state_dict().values()):
            assert torch.isfinite(tensor).all()
    assert torch.isfinite(quantizer.eval()(weight)).all()


def assert_exact(quantizer: WeightQuantizer, weight: Tensor) -> Tensor:
    """eval() is the frozen form, bit for bit, and changes nothing; returns it."""
    before = {name: tensor.clone() for name, tensor in quantizer.state_dict().items()}
    hard = quantizer.eval()(weight).detach()
    frozen = quantizer.freeze(weight)
    assert_well_formed(frozen, quantizer, weight)
    assert hard.dtype == weight.dtype
    assert torch.equal(frozen.weight.detach().to(weight.dtype), hard), "frozen bits differ"
    assert torch.equal(quantizer(weight), hard)
    for name, tensor in quantizer.state_dict().items():
        assert torch.equal(tensor, before[name]), name
    return hard


def assert_well_formed(frozen: Frozen, quantizer: WeightQuantizer, weight: Tensor) -> None:
    precision, kernels = quantizer.precision, len(weight)
    branches = precision.size if precision.is_branched else 1
    assert frozen.used.shape == (branches, *weight.shape)
    if isinstance(frozen, Levels):
        assert frozen.codes.shape == weight.shape
        assert frozen.codes.dtype == torch.uint8
        assert len(frozen.levels) == kernels
        assert int(frozen.codes.max()) < frozen.levels.shape[1] <= 2**precision.size
        assert (frozen.levels.diff(dim=1) >= 0).all()
        return
    assert frozen.codes.dtype == torch.int8
    assert (frozen.scales >= 0).all()
    if isinstance(frozen, FixedPoint):
        assert precision.kind == "fixed"
        assert frozen.codes.shape == weight.shape
        assert frozen.scales.shape == (kernels,)
        assert frozen.zeros is None or frozen.zeros.shape == (kernels,)
        assert -(2 ** (precision.size - 1)) <= int(frozen.codes.min())
        assert int(frozen.codes.max()) <= 2 ** (precision.size - 1) - 1
        return
    assert isinstance(frozen, Branches)
    planes = branches * frozen.planes
    assert frozen.codes.shape == (planes, *weight.shape)
    assert frozen.scales.shape == (kernels, planes)
    assert set(frozen.codes.unique().tolist()) <= (
        {-1, 1} if precision.kind == "binary" else {-1, 0, 1}
    )


def odd_weights() -> list[Tensor]:
    """Kernels of zeros, of one value, of two, with one tiny weight or one large; tiny layers."""
    odd = torch.zeros(7, 12)
    odd[1] = 0.3
    odd[2] = -0.3
    odd[3, ::2], odd[3, 1::2] = 0.5, -0.5
    odd[4, 5] = 1e-20
    odd[5, 0] = 7.0
    odd[6] = 1e-41
    some = torch.randn(4, 3, 2, 2)
    some[1] = 0
    zeros, tiny = torch.zeros(2, 3, 1, 1), torch.full((2, 5), 1e-38)
    return [odd, some, zeros, tiny, torch.full((3, 5), 0.3), torch.randn(1, 1)]


def check_exact_for_all_shapes_and_types(make: Make) -> None:
    for shape in SHAPES:
        for dtype in (torch.float32, torch.float64, torch.bfloat16):
            weight = torch.randn(shape).to(dtype)
            assert_exact(fitted(make, weight), weight)


def check_exact_while_training(make: Make) -> None:
    weight = torch.nn.Parameter(torch.randn(6, 4, 3, 3))
    quantizer, target = fitted(make, weight.detach()), torch.randn(weight.shape)
    optimizer = torch.optim.SGD([weight, *quantizer.parameters()], lr=0.01, momentum=0.9)
    before = weight.detach().clone()
    for _ in range(10):
        optimizer.zero_grad()
        (quantizer.train()(weight) - target).square().mean().backward()
        optimizer.step()
        assert_exact(quantizer, weight.detach())
    assert not torch.equal(weight.detach(), before), "no gradient reached the weight"


def check_odd_kernels(make: Make) -> None:
    for weight in odd_weights():
        quantizer = fitted(make, weight)
        assert_exact(quantizer, weight)
        assert_finite(quantizer, weight)


def check_resumes(make: Make) -> None:
    """Saved and loaded: the same eval, and the same next steps."""
    weight, G = torch.randn(6, 20), torch.randn(6, 20)
    first = fitted(make, weight)
    gradients(first, weight + 0.3, G)
    second = fitted(make, 2 * weight)
    second.load_state_dict(first.state_dict())
    for _ in range(2):
        assert torch.equal(first.eval()(weight), second.eval()(weight))
        ours, theirs = gradients(first, weight, G), gradients(second, weight, G)
        for a, b in zip((ours[0], *ours[1]), (theirs[0], *theirs[1]), strict=True):
            assert torch.equal(a, b)


def check_initialises_again(make: Make) -> None:
    """`initialise` with new weights leaves nothing of the old ones."""
    old, new = torch.randn(6, 20) * 5, torch.randn(6, 20)
    quantizer = fitted(make, old)
    gradients(quantizer, old, old)
    quantizer.initialise(new)
    for name, tensor in fitted(make, new).state_dict().items():
        assert torch.equal(quantizer.state_dict()[name], tensor)


def check_nan(make: Make) -> None:
    """Refused at the start, visible later: a NaN never comes out as an ordinary level."""
    weight = torch.randn(4, 9)
    quantizer = fitted(make, weight)
    for bad in (torch.nan, torch.inf, -torch.inf):
        weight[2, 3] = bad
        with pytest.raises(WeightsError, match="kernel 2"):
            make(4).initialise(weight)
    weight[2, 3] = torch.nan
    assert quantizer.eval()(weight)[2, 3].isnan()


def check_fit_to_outputs(make: Make) -> None:
    """The weight that `fit` returns is quantized as exactly as any, and odd kernels do no harm."""
    for weight in (torch.randn(6, 5, 2, 2), *odd_weights()):
        rows = weight.flatten(1)
        inputs = torch.randn(3 * rows.shape[1], rows.shape[1]).double()
        moments = (inputs.T @ inputs / len(inputs)).unsqueeze(0) + 0.01 * torch.eye(rows.shape[1])
        quantizer = make(len(weight))
        found = quantizer.fit(weight, moments)
        assert found.shape == weight.shape
        assert_exact(quantizer, found)
        assert_finite(quantizer, found)


CHECKS = [
    check_exact_for_all_shapes_and_types,
    check_exact_while_training,
    check_odd_kernels,
    check_resumes,
    check_initialises_again,
    check_nan,
    check_fit_to_outputs,
]
