"""The native kernel of the soft staircase: its library, and one call forward and one backward.

The library is built when the package is installed. Where it is missing (a platform without a suitable
compiler) torch calls do the same, more slowly; `dbq doctor` says which is used.
"""

from __future__ import annotations

import ctypes
from ctypes import c_float, c_int, c_int64, c_void_p
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

LIBRARY = Path(__file__).parents[2] / "libdbq_train.so"

_POINTERS: list[Any] = [c_void_p] * 6
_LAYER = [*_POINTERS, c_float, c_int64, c_int64, c_int, c_int, c_int]


def _load() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL(str(LIBRARY))
    except OSError:
        return None
    library.dbq_staircase_forward.argtypes = [*_LAYER, c_void_p]
    library.dbq_staircase_backward.argtypes = [*_LAYER, *_POINTERS]
    for function in (library.dbq_staircase_forward, library.dbq_staircase_backward):
        function.restype = None
    return library


STAIRCASE = _load()


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
        assert STAIRCASE is not None
        STAIRCASE.dbq_staircase_forward(*_arguments(inputs, ctx.temperature), z.data_ptr())
        return z

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        inputs = ctx.saved_tensors
        G = gradients[0].contiguous()
        d_w, d_alpha, d_gamma_1, d_gamma_2, d_t = (torch.empty_like(x) for x in inputs[:5])
        assert STAIRCASE is not None
        STAIRCASE.dbq_staircase_backward(
            *_arguments(inputs, ctx.temperature),
            *(x.data_ptr() for x in (G, d_w, d_alpha, d_gamma_1, d_gamma_2, d_t)),
        )
        return d_w, d_alpha, d_gamma_1, d_gamma_2, d_t, None, None


def _arguments(inputs: list[Tensor], temperature: float) -> list[int | float]:
    w, alpha, _, _, t, _ = inputs
    pointers = [x.data_ptr() for x in inputs]
    sizes = [w.shape[0], w.shape[1], alpha.shape[1], t.shape[1] + 1]
    return [*pointers, temperature, *sizes, torch.get_num_threads()]
