"""The soft staircase by its native kernel: one call forward and one backward."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dbq.quantizers.native import NATIVE


class NativeStaircase(torch.autograd.Function):
    """One call forward, one backward; keeps w and the parameters."""

    @staticmethod
    def forward(
        ctx: Any, w: Tensor, alpha: Tensor, gamma_1: Tensor, gamma_2: Tensor, t: Tensor,
        temperature: Tensor, level_codes: Tensor,
    ) -> Tensor:  # fmt: skip
        inputs = [x.contiguous() for x in (w, alpha, gamma_1, gamma_2, t, level_codes)]
        ctx.save_for_backward(*inputs)
        # By value: the schedule may change the buffer before the backward pass.
        ctx.temperature = float(temperature)
        z = torch.empty_like(inputs[0])
        assert NATIVE is not None
        NATIVE.dbq_staircase_forward(*_arguments(inputs, ctx.temperature), z.data_ptr())
        return z

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        inputs = ctx.saved_tensors
        G = gradients[0].contiguous()
        d_w, d_alpha, d_gamma_1, d_gamma_2, d_t = (torch.empty_like(x) for x in inputs[:5])
        assert NATIVE is not None
        NATIVE.dbq_staircase_backward(
            *_arguments(inputs, ctx.temperature),
            *(x.data_ptr() for x in (G, d_w, d_alpha, d_gamma_1, d_gamma_2, d_t)),
        )
        return d_w, d_alpha, d_gamma_1, d_gamma_2, d_t, None, None


def _arguments(inputs: list[Tensor], temperature: float) -> list[int | float]:
    w, alpha, _, _, t, _ = inputs
    pointers = [x.data_ptr() for x in inputs]
    sizes = [w.shape[0], w.shape[1], alpha.shape[1], t.shape[1] + 1]
    return [*pointers, temperature, *sizes, torch.get_num_threads()]
