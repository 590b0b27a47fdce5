"""The float network inside a quantized one: every layer keeps its float weight."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from dbq.model.layers import QuantLayer


@contextmanager
def floating(model: nn.Module) -> Iterator[None]:
    """Inside the block, the layers of `model` compute with float weights and inputs."""
    parts = ("weight_quantizer", "input_quantizer")
    kept = [(m, {part: m._modules[part] for part in parts}) for m in model.modules()
            if isinstance(m, QuantLayer)]  # fmt: skip
    try:
        for layer, _ in kept:
            layer._modules.update(dict.fromkeys(parts))
        yield
    finally:
        for layer, quantizers in kept:
            layer._modules.update(quantizers)
