"""What every quantizer is: the two contracts that layers, costs, training and deployment rely on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from dbq.deploy.tensors import Grid
from dbq.errors import PlanError, WeightsError
from dbq.plans.precision import Precision
from dbq.quantizers.frozen import Branches, Frozen
from dbq.quantizers.tensors import (
    keep_nan,
    per_kernel,
    signs,
    straight_through,
    sum_branches,
    working_rows,
)

BatchNorm = nn.modules.batchnorm._BatchNorm

# -- weights ---------------------------------------------------------------------------------------


class WeightQuantizer(nn.Module, ABC):
    """Maps a float weight, kernels first, to its quantized value.

    In eval() the result is `freeze(weight).weight`, bit for bit, in the type of the weight. In train()
    it is whatever the method trains with. Constructed with a precision and a number of kernels, then
    initialised.
    """

    skips_gradients = False  # True: there are steps in which a weight gets no gradient at all
    temperature: Tensor | None  # of soft steps, a buffer that schedules set; None if there are none

    def __init__(self, precision: Precision, kernels: int) -> None:
        super().__init__()
        self.precision, self.kernels = precision, kernels
        self.register_buffer("temperature", None)

    def initialise(self, weight: Tensor) -> None:
        """Fit the quantizer's own parameters to `weight`.

        Raises WeightsError if a weight is NaN or infinite; callers add the layer's name.
        """
        bad = (~torch.isfinite(per_kernel(weight))).sum(1)
        if bad.any():
            raise WeightsError(
                f"{int(bad.sum())} of {weight.numel()} weights are NaN or infinite "
                f"(first in kernel {int(bad.nonzero()[0])}): repair or retrain them before quantizing"
            )

    @abstractmethod
    def forward(self, weight: Tensor) -> Tensor: ...

    @abstractmethod
    def freeze(self, weight: Tensor) -> Frozen:
        """What the layer is in eval(): codes and what they stand for."""

    def fit(self, target: Tensor, moments: Tensor, together: Tensor | None = None) -> Tensor:
        """Fit parameters and codes so that the output is that of `target`; returns the new weight.

        `moments` are the second moments of the inputs, [groups, D, D], positive definite: a kernel's
        error is (q - t)' H (q - t). `together`, K x K and positive definite too, says what errors of
        different kernels do at the same place: that of all is tr(G (Q - T) H (Q - T)'). The weight
        returned has the codes that were chosen, and training can go on from it. Methods that know no
        better are fitted to the target as to any weight.
        """
        self.initialise(target)
        return target.clone()

    def borders(self) -> Tensor | None:
        """The weights at which the level changes, K x (N-1), ascending; None if nobody learns them."""
        return None

    def learned_bits(self) -> Tensor | None:
        """Bits of a weight, with a gradient, if the method learns its precision; else None."""
        return None

    def follow(self, batch_norm: nn.Module | None) -> None:
        """Called once, before `initialise`, with the batch norm that reads the layer's output."""

    def advance(self, progress: float, index: int, count: int) -> None:
        """Called during training with its progress, 0 to 1; this is quantizer `index` of the `count`
        of its class, in the order of the network."""

    def extra_repr(self) -> str:
        return str(self.precision)


class HardQuantizer(WeightQuantizer):
    """Weights are sums of scaled codes in train() as well: only the gradient is soft.

        forward     q(w) = sum_j scale_j * code_j, the same value in train() and in eval()
        gradient    dL/dw = dL/dq * slope, elementwise; slope 1 is the plain straight-through estimator

    A method defines the decomposition of a weight and the slope. Half-precision weights are decomposed
    in float32.
    """

    planes = 1  # of each branch, see `Branches`

    @abstractmethod
    def decompose(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Codes [J, K, D] and scales [K, J] of `rows` [K, D], in its data type.

        If all kernels share their scales, they may be one row: [J, 1, K D], [1, J]. Scales may be
        negative here.
        """

    def slope(self, rows: Tensor, scales: Tensor) -> Tensor:
        """Factor of the gradient on its way to the weight, broadcast against K x D."""
        return rows.new_ones(1, 1)

    def forward(self, weight: Tensor) -> Tensor:
        with torch.no_grad():
            rows = working_rows(weight)
            codes, scales = self.decompose(rows)
            hard = compose(codes, scales, weight)
            slope = self.slope(rows, scales).to(weight.dtype)
        return straight_through((per_kernel(weight) * slope).reshape(weight.shape), hard)

    @torch.no_grad()
    def freeze(self, weight: Tensor) -> Branches:
        """A negative scale becomes positive by negating its codes: the same sums, to the bit."""
        codes, scales = self.decompose(working_rows(weight))
        codes = (codes * signs(scales).T.unsqueeze(2)).to(torch.int8)
        scales = scales.abs().expand(len(weight), -1)
        return Branches(codes.reshape(-1, *weight.shape), scales, self.planes)


def compose(codes: Tensor, scales: Tensor, weight: Tensor) -> Tensor:
    """The value of a decomposition of `weight`, in its shape and type."""
    return keep_nan(weight, sum_branches(codes.unbind(0), scales).reshape(weight.shape))


def require_size(method: str, precision: Precision, *sizes: int) -> None:
    """Raise PlanError unless the method exists in this size."""
    if precision.size not in sizes:
        known = ", ".join(str(Precision(precision.kind, size)) for size in sizes)
        raise PlanError(f"method {method!r} makes {known}, the plan asks for {precision}")


def require_within(method: str, option: str, value: float, low: float, high: float) -> None:
    """Raise PlanError unless low <= value <= high."""
    if not low <= value <= high:
        raise PlanError(f"option {option} = {value:g} of {method!r}: expected {low:g} to {high:g}")


# -- inputs ----------------------------------------------------------------------------------------


class InputQuantizer(nn.Module, ABC):
    """Quantizes the tensor a layer reads, the same way in train() and in eval().

    What it knows of that tensor it may observe in the batches that pass in train(). Until it has seen
    one, it fits itself to each tensor and keeps nothing. Observed state is 0 until then; a batch of
    zeros leaves the smallest positive value instead, so that it counts as seen (and survives in a state
    dict), and the next batch that holds anything else replaces it.
    """

    decays = False  # True: weight decay acts on its parameters
    is_learned = False  # True: gradients own its state, so calibration does not reset it
    momentum = 0.1  # weight of the newest batch in what is observed

    def __init__(self, precision: Precision, signed: bool) -> None:
        super().__init__()
        self.precision, self.signed = precision, signed

    @property
    @abstractmethod
    def rule(self) -> str:
        """The word for it in a plan and in summaries."""

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor: ...

    def keeping(self, x: Tensor, result: Tensor) -> AbstractContextManager[Any]:
        """Open while a layer runs on `result`, which `forward` made of `x`.

        May let the layer keep less for its backward pass.
        """
        return nullcontext()

    @abstractmethod
    def grid(self) -> Grid | None:
        """The grid of its output; None if its levels are not multiples of a step."""

    def observe(self, x: Tensor) -> None:
        """Take a batch into account; `forward` calls it in train()."""

    @property
    def has_seen(self) -> bool:
        """Whether everything it needs to observe has been."""
        return True

    def scale_range(self, factor: float) -> bool:
        """Multiply the range that was observed; False if there is none, because a rule gives it."""
        return False

    def reset(self) -> None:
        """Return to the initial state, because the weights in front are new or ranges are stale."""

    def extra_repr(self) -> str:
        return f"{self.precision} {'signed' if self.signed else 'unsigned'}"
