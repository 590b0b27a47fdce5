"""Fixed-point inputs of layers, and the rules that say where they are clipped.

    q(x) = s * round(clip(x, 0, c) / s),   s = c / (2^b - 1)          unsigned, after a ReLU
    q(x) = s * round(clip(x, -c, c) / s),  s = c / (2^(b-1) - 1)      signed, otherwise

The gradient passes where nothing is clipped. All channels share one c: only then is the dot product
that follows a fixed-point one. Three rules give c: batch norm (eq. 13), a constant (ReLU6), or a
running range.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from dbq.deploy.tensors import Grid
from dbq.plans.precision import Precision
from dbq.quantizers.contract import BatchNorm, InputQuantizer
from dbq.quantizers.rounding import CodeGrid, keep_unrounded, round_and_clip
from dbq.quantizers.tensors import over_processes

SMALLEST_CLIP = 1e-6  # keeps the step positive if a batch norm has died (all beta, gamma <= 0)


class Clip(nn.Module, ABC):
    """A rule for c. Those that depend on the batches observe them; the others keep the defaults."""

    rule: str  # the word for it in a plan and in summaries

    @abstractmethod
    def value(self) -> Tensor:
        """c as it is known so far, a scalar."""

    def forward(self, x: Tensor) -> Tensor:
        """The c to clip `x` with; a rule that has seen nothing yet may fit it to `x`."""
        return self.value()

    def observe(self, x: Tensor, momentum: float) -> None:
        """Take a batch into account."""

    @property
    def has_seen(self) -> bool:
        """Whether everything it needs to observe has been."""
        return True

    def scale(self, factor: float) -> bool:
        """Multiply the c that was observed; False if a rule gives it."""
        return False

    def reset(self) -> None:
        """Return to the initial state."""


class BatchNormClip(Clip):
    """c = max over channels of beta + k|gamma| (unsigned) or |beta| + k|gamma| (signed).

    gamma may be negative, hence the modulus. If y ~ N(beta, gamma^2) in each channel, k = 6 clips
    at most one value in a billion. Read from the live batch norm at every call, never trained
    through; `cap` is the 6 of a ReLU6 between the two.
    """

    rule = "bn"

    def __init__(self, batch_norm: BatchNorm, k: float, signed: bool, cap: float | None) -> None:
        super().__init__()
        # In a tuple the batch norm is not a submodule: it is trained and saved elsewhere.
        self._batch_norm = (batch_norm,)
        self.k, self.signed, self.cap = k, signed, cap

    @property
    def batch_norm(self) -> BatchNorm:
        return self._batch_norm[0]

    @torch.no_grad()
    def value(self) -> Tensor:
        if not self.batch_norm.affine:
            return torch.tensor(self.k).clamp(SMALLEST_CLIP, self.cap)
        beta, gamma = self.batch_norm.bias, self.batch_norm.weight
        clip = ((beta.abs() if self.signed else beta) + self.k * gamma.abs()).max().float()
        return clip.clamp(SMALLEST_CLIP, self.cap)

    def extra_repr(self) -> str:
        return f"k={self.k:g}"


class ConstantClip(Clip):
    """c is a constant, as in ReLU6."""

    rule = "relu6"
    clip: Tensor

    def __init__(self, clip: float) -> None:
        super().__init__()
        self.register_buffer("clip", torch.tensor(clip), persistent=False)

    def value(self) -> Tensor:
        return self.clip

    def extra_repr(self) -> str:
        return f"{float(self.clip):g}"


class RunningClip(Clip):
    """c is a moving average of the largest |x| of each batch.

    Until a batch has been seen, each tensor is clipped at its own largest value.
    """

    rule = "range"
    limit: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("limit", torch.zeros(()))

    def value(self) -> Tensor:
        return self.limit.clamp(min=SMALLEST_CLIP)

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        if not x.numel():
            return self.value()
        # Without a condition on the host, which would make a GPU wait.
        return torch.where(self.limit > 0, self.limit, self._peak(x)).clamp(min=SMALLEST_CLIP)

    @torch.no_grad()
    def observe(self, x: Tensor, momentum: float) -> None:
        if not x.numel():
            return
        peak = over_processes(self._peak(x), largest=True)
        moved = torch.lerp(self.limit, peak, momentum)
        # At SMALLEST_CLIP only zeros have been seen: the first other batch sets the range.
        self.limit.copy_(torch.where(self.limit > SMALLEST_CLIP, moved, peak))
        self.limit.clamp_(min=SMALLEST_CLIP)

    def _peak(self, x: Tensor) -> Tensor:
        low, high = x.detach().aminmax()
        return torch.maximum(-low, high).to(self.limit.dtype)

    @property
    def has_seen(self) -> bool:
        return bool(self.limit > 0)

    @torch.no_grad()
    def scale(self, factor: float) -> bool:
        self.limit.mul_(factor)
        return self.has_seen

    def reset(self) -> None:
        self.limit.zero_()


class FixedPointInput(InputQuantizer):
    """Inputs on a grid of 2^b codes, 2^b - 1 if they are signed."""

    @property
    def code_range(self) -> tuple[int, int]:
        """Smallest and largest integer code."""
        largest = self.precision.largest_code
        return (-largest, largest) if self.signed else (0, 2 * largest + 1)

    @abstractmethod
    def scale(self) -> Tensor:
        """The step s between neighbouring codes as it is known so far, a scalar."""

    @torch.no_grad()
    def grid(self) -> Grid:
        return Grid("i8" if self.signed else "u8", float(self.scale()), *self.code_range)


class ClippedInput(FixedPointInput):
    """Fixed-point inputs whose step follows from a clip.

    >>> quantizer = ClippedInput(Precision("fixed", 2), signed=False, clip=ConstantClip(6.0))
    >>> quantizer(torch.tensor([-1.0, 0.9, 3.5, 9.0]))
    tensor([0., 0., 4., 6.])
    """

    clip: Clip

    def __init__(self, precision: Precision, signed: bool, clip: Clip) -> None:
        super().__init__(precision, signed)
        self.clip = clip

    @property
    def rule(self) -> str:
        return self.clip.rule

    def scale(self) -> Tensor:
        return self.clip.value() / self.code_range[1]

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.observe(x)
        clip = self.clip.value() if self.training else self.clip(x)
        return round_and_clip(x, self._grid(clip))

    def keeping(self, x: Tensor, result: Tensor) -> AbstractContextManager[Any]:
        # In eval() gradients are rare, and a range that has seen nothing would be looked for again.
        if not self.training:
            return nullcontext()
        return keep_unrounded(x, result, self._grid(self.clip.value()))

    def _grid(self, clip: Tensor) -> CodeGrid:
        return CodeGrid(clip / self.code_range[1], *self.code_range)

    def observe(self, x: Tensor) -> None:
        self.clip.observe(x, self.momentum)

    @property
    def has_seen(self) -> bool:
        return self.clip.has_seen

    def scale_range(self, factor: float) -> bool:
        return self.clip.scale(factor)

    def reset(self) -> None:
        self.clip.reset()
