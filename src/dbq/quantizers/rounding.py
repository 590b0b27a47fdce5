"""Activations rounded to a grid, and rounded once more in the backward pass.

`round_and_clip` is the arithmetic. Two implementations of it: torch calls, for any device and data type
and for torch.compile, and native kernels for float32 on a CPU, which make one pass over memory.

A layer keeps its input for the backward pass. The rounded input would be one more tensor: the float one
is alive anyway, because a ReLU or the layer's float version would have kept it. So `keep_unrounded`
keeps that one, and it is rounded again when the backward pass asks for it, to the same bits.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from dbq.quantizers.native import NATIVE, serves


class CodeGrid(NamedTuple):
    """Values step * code, low <= code <= high; the step is a scalar."""

    step: Tensor
    low: int
    high: int


def round_and_clip(x: Tensor, grid: CodeGrid) -> Tensor:
    """The nearest value of the grid; its gradient is 1 where nothing is clipped, else 0."""
    result: Tensor = _RoundAndClip.apply(x, *grid)  # type: ignore[no-untyped-call]
    return result


class _RoundAndClip(torch.autograd.Function):
    """Keeps x itself for the backward pass: after a ReLU it is alive anyway, a mask would not be.

    The native kernel says whether anything was clipped. Most often nothing was, and then nothing is kept
    and the gradient is handed on.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, step: Tensor, low: int, high: int) -> Tensor:
        grid = CodeGrid(step, low, high)
        ctx.code_range, ctx.clipped = (low, high), True
        if serves(x) and _is_dense(x):
            result = torch.empty_like(x)
            ctx.clipped = bool(_call("dbq_round_forward", x, grid, result))
        else:
            codes = (x.float() / step).clamp_(low, high).round_()
            result = codes.mul_(step).to(x.dtype)
        if ctx.clipped:
            ctx.save_for_backward(x, step)
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = gradients
        if not ctx.clipped:
            return gradient, None, None, None
        x, step = ctx.saved_tensors
        low, high = ctx.code_range
        # Unsigned: x < 0 does not occur after a ReLU, whose own gradient is zero there.
        if serves(x) and _is_dense(x) and gradient.dtype == x.dtype:
            same = (
                gradient if gradient.stride() == x.stride() else torch.empty_like(x).copy_(gradient)
            )
            inside = torch.empty_like(x)
            _call("dbq_round_backward", x, CodeGrid(step, low, high), same, inside)
            return inside, None, None, None
        # One new tensor, written three times: page faults, not arithmetic, dominate here.
        inside = torch.empty_like(gradient)
        torch.le(torch.abs(x) if low < 0 else x, high * step, out=inside)
        return inside.mul_(gradient), None, None, None


class _Unrounded(NamedTuple):
    x: Tensor
    version: int
    grid: CodeGrid


def keep_unrounded(x: Tensor, rounded: Tensor, grid: CodeGrid) -> AbstractContextManager[Any]:
    """While it is open, whoever keeps `rounded` for a backward pass keeps `x` instead.

    `rounded` is `round_and_clip(x, grid)`. As with everything that is kept, changing x in place before
    the backward pass is an error.
    """
    if not torch.is_grad_enabled() or torch.compiler.is_compiling():
        return nullcontext()
    # Known by its place, not by holding it: the hooks live as long as the graph.
    marks = rounded.data_ptr(), rounded.shape, rounded.stride(), rounded.dtype
    grid = grid._replace(step=grid.step.clone())  # a later batch may move the range in place
    kept_instead = _Unrounded(x.detach(), x._version, grid)

    def pack(kept: Tensor) -> Tensor | _Unrounded:
        same = (kept.data_ptr(), kept.shape, kept.stride(), kept.dtype) == marks
        return kept_instead if same else kept

    def unpack(kept: Tensor | _Unrounded) -> Tensor:
        return kept if isinstance(kept, Tensor) else _rounded_again(kept)

    return saved_tensors_hooks(pack, unpack)


def _rounded_again(kept: _Unrounded) -> Tensor:
    if kept.x._version != kept.version:
        raise RuntimeError(
            "the input of a quantized layer was changed in place after the layer had read it: "
            "its gradient cannot be computed (use the operation that is not in place)"
        )
    with torch.no_grad():
        return round_and_clip(kept.x, kept.grid)


def _is_dense(x: Tensor) -> bool:
    """Whether its elements fill a stretch of memory, in either usual order."""
    return x.is_contiguous() or (
        x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)
    )


def _call(name: str, x: Tensor, grid: CodeGrid, *others: Tensor) -> int | None:
    """Run a native kernel on `x` and others laid out like it; the last of them takes the result."""
    pointers = [other.data_ptr() for other in others]
    step, threads = float(grid.step), torch.get_num_threads()
    found: int | None = getattr(NATIVE, name)(
        x.data_ptr(), x.numel(), step, grid.low, grid.high, threads, *pointers
    )
    return found
