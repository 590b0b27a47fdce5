"""Roles: the part a weight layer plays in a network, determined by running it once.

Running the model on an example input, with hooks, shows in which order the layers are executed and
which shapes they see. It works for every model, traceable or not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from dbq.errors import LayerError, first_line
from dbq.model.modes import evaluating
from dbq.plans.plan import Role

WeightLayer = nn.Conv2d | nn.Linear | nn.ConvTranspose2d


def kernels_of(layer: WeightLayer) -> Tensor:
    """The weight of a layer with its output kernels first, [K, ...]."""
    if isinstance(layer, nn.ConvTranspose2d):
        return swapped(layer.weight, layer.groups)
    return layer.weight


def swapped(weight: Tensor, groups: int) -> Tensor:
    """[inputs, outputs / groups, ...] of a transposed convolution to [outputs, inputs / groups, ...].

    And back, for it is its own inverse.

    >>> swapped(torch.arange(4).view(2, 2, 1, 1), groups=1).flatten().tolist()
    [0, 2, 1, 3]
    """
    many, few, *sides = weight.shape
    parts = weight.view(groups, many // groups, few, *sides).transpose(1, 2)
    return parts.reshape(groups * few, many // groups, *sides).contiguous()


@dataclass(frozen=True)
class LayerCall:
    """One execution of one weight layer, shapes without the batch dimension."""

    name: str
    module: WeightLayer
    role: Role
    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...]


def layer_calls(model: nn.Module, example_input: Any) -> list[LayerCall]:
    """The weight layers of `model` in execution order; a layer called twice appears twice.

    The model runs once in eval mode without gradients, so nothing in it changes.

    >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3, groups=8), nn.Conv2d(8, 4, 1))
    >>> [call.role for call in layer_calls(net, torch.zeros(1, 3, 8, 8))]
    ['first', 'depthwise', 'last']
    """
    names = {module: name for name, module in model.named_modules()}
    seen: list[tuple[WeightLayer, tuple[int, ...], tuple[int, ...]]] = []

    def record(
        module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> None:
        assert isinstance(module, WeightLayer)
        given = args[0] if args else kwargs["input"]
        seen.append((module, tuple(given.shape[1:]), tuple(output.shape[1:])))

    handles = [
        module.register_forward_hook(record, with_kwargs=True)
        for module in model.modules()
        if isinstance(module, WeightLayer)
    ]
    try:
        run_once(model, example_input)
    finally:
        for handle in handles:
            handle.remove()
    if not seen:
        return []
    first, last = seen[0][0], seen[-1][0]
    return [
        LayerCall(names[module], module, role_of(module, module is first, module is last), *shapes)
        for module, *shapes in seen
    ]


def role_of(module: WeightLayer, is_first: bool, is_last: bool) -> Role:
    """The role of a layer; a linear layer inside the network is a pointwise one at 1x1 pixels."""
    if is_first:
        return "first"
    if is_last:
        return "last"
    if isinstance(module, nn.Linear):
        return "pointwise"
    if module.groups == module.in_channels > 1:
        return "depthwise"
    return "pointwise" if module.kernel_size == (1, 1) else "conv"


def run_once(model: nn.Module, example_input: Any) -> None:
    """Run the model on the example input, in eval mode and without gradients."""
    inputs = example_input if isinstance(example_input, tuple) else (example_input,)
    with evaluating(model), torch.no_grad():
        try:
            model(*inputs)
        except Exception as error:
            given = ", ".join(
                f"shape {tuple(x.shape)}" if isinstance(x, Tensor) else f"type {type(x).__name__}"
                for x in inputs
            )
            raise LayerError(
                f"the model does not run on the example input of {given}: {first_line(error)} "
                "(expected a tensor, or a tuple of the model's arguments)"
            ) from error
