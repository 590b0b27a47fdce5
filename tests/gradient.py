"""The gradient of a tensor, which torch types as perhaps None."""

from __future__ import annotations

from torch import Tensor


def gradient(tensor: Tensor) -> Tensor:
    assert tensor.grad is not None, "nothing has reached it"
    return tensor.grad
