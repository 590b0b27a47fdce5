"""Residual blocks: the last layer of a block can repair what the shortcut brings along.

A block that ends in x + norm(layer(h)) hands on the errors of its input x unchanged, and they pile
up from block to block. Asked for the float block's output instead of its own, the layer makes up
for them as far as its inputs tell:

    y  =  y_f + (x_f - x_q) * sigma / gamma

Such blocks are recognised by what they compute, on an example: an output that is the sum of the block's
input and its last norm's output, with or without a ReLU behind. No knowledge of the network is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from dbq.model.roles import WeightLayer
from dbq.quantizers.contract import BatchNorm

SMALLEST_SCALE = 0.05  # of a norm's largest: what a channel scaled less adds cannot be repaired


@dataclass(frozen=True)
class Residual:
    """A block whose output is its input plus that of `norm`, which reads `layer`."""

    block: str
    layer: str
    norm: str


def blocks(model: nn.Module) -> list[str]:
    """The smallest modules with at least two weight layers; of those with the same ones, the outermost.

    >>> block = lambda: nn.Sequential(nn.Sequential(nn.Conv2d(2, 2, 1), nn.Conv2d(2, 2, 1)))
    >>> blocks(nn.Sequential(block(), nn.ReLU(), block()))
    ['0', '2']
    """
    chosen: dict[frozenset[nn.Module], str] = {}
    for name, module in model.named_modules():  # parents come before their children
        inside = frozenset(m for m in module.modules() if isinstance(m, WeightLayer))
        if name and len(inside) >= 2:
            chosen.setdefault(inside, name)
    return [name for inside, name in chosen.items() if not any(other < inside for other in chosen)]


@torch.no_grad()
def find_residuals(
    model: nn.Module, example: Tensor, norm_of: dict[str, str]
) -> dict[str, Residual]:
    """The residual blocks of a float model, by their last layer; `norm_of` gives a layer's norm."""
    found: dict[str, Residual] = {}
    layer_of = {norm: layer for layer, norm in norm_of.items()}
    latest: dict[str, Tensor] = {}

    def keep(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            latest.pop(name, None)
            latest[name] = output.clone()  # a ReLU behind may write in place

        return hook

    def compare(block: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            inside = [norm for norm in latest if norm.startswith(f"{block}.")]
            if not (inside and args and isinstance(output, Tensor)):
                return
            x, y = started.pop(block), latest[inside[-1]]
            if x.shape == y.shape == output.shape and _is_sum(output, x + y):
                layer = layer_of[inside[-1]]
                found[layer] = Residual(block, layer, inside[-1])

        return hook

    started: dict[str, Tensor] = {}

    def start(block: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...]) -> None:
            if args and isinstance(args[0], Tensor):
                started[block] = args[0].clone()

        return hook

    handles = [model.get_submodule(n).register_forward_hook(keep(n)) for n in layer_of]
    for block in blocks(model):
        module = model.get_submodule(block)
        handles.append(module.register_forward_pre_hook(start(block)))
        handles.append(module.register_forward_hook(compare(block)))
    try:
        model(example)
    finally:
        for handle in handles:
            handle.remove()
    return found


def _is_sum(output: Tensor, total: Tensor) -> bool:
    tolerance = 1e-4 * float(total.abs().max())
    return any(
        bool(((output - wanted).abs() <= tolerance).all()) for wanted in (total, total.relu())
    )


def repair(norm: BatchNorm, x_float: Tensor, x: Tensor) -> Tensor:
    """What the norm's input has to change by, for its output to make up for x - x_float."""
    assert norm.running_var is not None
    sigma = (norm.running_var + norm.eps).sqrt()
    gamma = torch.ones_like(sigma) if norm.weight is None else norm.weight
    usable = gamma.abs() >= SMALLEST_SCALE * gamma.abs().max()
    factor = torch.where(usable, sigma / gamma, 0.0)
    return (x_float - x) * factor.reshape(-1, *[1] * (x.ndim - 2))
