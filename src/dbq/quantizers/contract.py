"""What every weight quantizer is: the contract that layers, costs and deployment rely on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from dbq.errors import PlanError, WeightsError
from dbq.plans.precision import Precision


class WeightQuantizer(nn.Module, ABC):
    """Maps a float weight, kernels first, to its quantized value.

    In eval() the result is exactly sum_j scales[:, j] * codes[j]. In train() it is whatever the
    method trains with. Constructed with a precision and a number of kernels, then initialised.
    """

    freezes = False  # True: there are steps in which a weight gets no gradient at all

    def __init__(self, precision: Precision) -> None:
        super().__init__()
        self.precision = precision

    @abstractmethod
    def initialise(self, weight: Tensor) -> None:
        """Fit the quantizer's own parameters to `weight`."""

    @abstractmethod
    def forward(self, weight: Tensor) -> Tensor: ...

    @abstractmethod
    def codes(self, weight: Tensor) -> Tensor:
        """int8 codes, shape [branches, *weight.shape]; fixed point has one branch."""

    @abstractmethod
    def scales(self, weight: Tensor) -> Tensor:
        """Float scales >= 0, shape [kernels, branches]; some methods read them off the weight."""

    def follow(self, batch_norm: nn.Module | None) -> None:
        """Told once, before `initialise`: the batch norm that reads the layer's output, if any."""

    def advance(self, progress: float, index: int, count: int) -> None:
        """Told as training goes on: how far it has come (0 to 1), and that this is quantizer
        `index` of the `count` of its class, in the order of the network."""

    def extra_repr(self) -> str:
        return str(self.precision)


def require_size(method: str, precision: Precision, *sizes: int) -> None:
    """Raise PlanError unless the method exists in this size."""
    if precision.size not in sizes:
        known = ", ".join(str(Precision(precision.kind, size)) for size in sizes)
        raise PlanError(f"method {method!r} makes {known}, the plan asks for {precision}")


def straight_through(weight: Tensor, quantized: Tensor) -> Tensor:
    """`quantized` going forward; going back, its gradient is handed to `weight` as it is.

    >>> w = torch.tensor([0.3, -2.0], requires_grad=True)
    >>> (straight_through(w, w.detach().sign()) * torch.tensor([5.0, 7.0])).sum().backward()
    >>> w.grad
    tensor([5., 7.])
    """
    result: Tensor = _StraightThrough.apply(weight, quantized)  # type: ignore[no-untyped-call]
    return result


class _StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, quantized: Tensor) -> Tensor:
        return quantized.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0], None


def per_kernel(weight: Tensor) -> Tensor:
    """K x D: one row for each output kernel."""
    return weight.reshape(weight.shape[0], -1)


def working_type(x: Tensor) -> torch.dtype:
    """Half-precision tensors are quantized in float32: levels and steps need all their bits."""
    return torch.promote_types(x.dtype, torch.float32)


def columns(x: Tensor) -> tuple[Tensor, ...]:
    """The columns of a K x n tensor, as n views of K x 1."""
    return x.unsqueeze(2).unbind(1)


def check_finite(weight: Tensor) -> None:
    """Raise WeightsError if a weight is NaN or infinite; layers add their name to it."""
    bad = (~torch.isfinite(per_kernel(weight))).sum(1)
    if bad.any():
        kernel = int(bad.nonzero()[0])
        raise WeightsError(
            f"{int(bad.sum())} of {weight.numel()} weights are NaN or infinite "
            f"(first in kernel {kernel}): repair or retrain them before quantizing"
        )
