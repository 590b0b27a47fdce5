"""PACT: activations whose clip is learned. It has no rule for weights: use `fixed`.

Choi et al. 2018, "PACT: Parameterized Clipping Activation for Quantized Neural Networks". After a
ReLU, with k bits,

    y = clip(x, 0, alpha),    q(x) = s round(y / s),    s = alpha / (2^k - 1)

    dq/dalpha = 1 where x >= alpha, else 0
    dq/dx     = 1 where 0 <= x < alpha, else 0        (straight through the rounding)

alpha starts at a large value, 6 here, and an L2 penalty brings it down. We do not add one to the loss:
it is the optimizer's weight decay, which `decays` asks for; other parameters of quantizers get none.

Where we differ: signed tensors, which the publication does not have, are clipped at -alpha and alpha,
with dq/dalpha = sign(x) where |x| >= alpha and s = alpha / (2^(k-1) - 1). An alpha that training
pushed to zero or below counts by its size, at least 1e-6.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from dbq.plans.precision import Precision
from dbq.quantizers.inputs import SMALLEST_CLIP, Clip, ClippedInput
from dbq.quantizers.tensors import positive

INITIAL_CLIP = 6.0


class LearnedClip(Clip):
    """c = |alpha|, a parameter with its gradient."""

    rule = "pact"

    def __init__(self) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.tensor(INITIAL_CLIP))

    def value(self) -> Tensor:
        return positive(self.alpha, SMALLEST_CLIP)

    @torch.no_grad()
    def reset(self) -> None:
        self.alpha.fill_(INITIAL_CLIP)

    def extra_repr(self) -> str:
        return f"{float(self.value().detach()):g}"


class PactInputQuantizer(ClippedInput):
    """Fixed-point activations with a learned clip.

    >>> quantizer = PactInputQuantizer(Precision("fixed", 2), signed=False)
    >>> quantizer(torch.tensor([-1.0, 0.9, 3.5, 9.0])).detach()
    tensor([0., 0., 4., 6.])
    """

    clip: LearnedClip
    decays = True  # the publication's regularisation of alpha
    is_learned = True

    def __init__(self, precision: Precision, signed: bool) -> None:
        super().__init__(precision, signed, LearnedClip())

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = _Pact.apply(x, self.clip.value(), *self.code_range)  # type: ignore[no-untyped-call]
        return result


class _Pact(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, alpha: Tensor, low: int, high: int) -> Tensor:
        ctx.save_for_backward(x, alpha)
        ctx.signed = low < 0
        step = alpha / high
        codes = (x.float() / step).clamp_(low, high).round_()
        return codes.mul_(step).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, alpha = ctx.saved_tensors
        (G,) = gradients
        size = (x.abs() if ctx.signed else x).float()
        clipped = size >= alpha
        d_alpha = (G * clipped * x.sign()).sum(dtype=alpha.dtype)
        return G * ((size >= 0) & ~clipped), d_alpha, None, None
