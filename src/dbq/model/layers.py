"""Quantized layers: quantize own weight, quantize own input, call the float operation.

They are nn.Conv2d and nn.Linear with two more children, or any other class with a convolution in it:
nn.ConvTranspose2d, subclasses that somebody else wrote. Their own forward then runs on the quantized
input and weight. The weight stays a float parameter under
its own state-dict key, so float checkpoints, optimizers and user code keep working.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from dbq.errors import LayerError, WeightsError
from dbq.model.roles import WeightLayer, kernels_of, swapped
from dbq.quantizers.contract import InputQuantizer, WeightQuantizer


class QuantLayer(nn.Module):
    """What all quantized layers share; made by `dbq.prepare`."""

    weight: Tensor
    weight_quantizer: WeightQuantizer | None
    input_quantizer: InputQuantizer | None

    def kernels(self) -> Tensor:
        """The float weight as quantizers see it, kernels first."""
        assert isinstance(self, WeightLayer)
        return kernels_of(self)

    def set_kernels(self, kernels: Tensor) -> None:
        """Another float weight, given kernels first."""
        if isinstance(self, nn.ConvTranspose2d):
            kernels = swapped(kernels, self.groups)
        self.weight.copy_(kernels)

    def quantized_kernels(self) -> Tensor:
        """The weight the layer computes with, kernels first: soft in train(), hard in eval()."""
        kernels = self.kernels()
        result: Tensor = (
            kernels if self.weight_quantizer is None else self.weight_quantizer(kernels)
        )
        return result

    def quantized_weight(self) -> Tensor:
        """The same in the layout of the layer's own weight."""
        if self.weight_quantizer is None:
            return self.weight
        kernels = self.quantized_kernels()
        return swapped(kernels, self.groups) if isinstance(self, nn.ConvTranspose2d) else kernels

    def quantized_input(self, x: Tensor) -> Tensor:
        result: Tensor = x if self.input_quantizer is None else self.input_quantizer(x)
        return result

    def keeping(self, input: Tensor, x: Tensor) -> AbstractContextManager[Any]:
        """Open while the float operation runs on `x`, the quantized input."""
        quantizer = self.input_quantizer
        return nullcontext() if quantizer is None else quantizer.keeping(input, x)

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        """Load as usual; to a float checkpoint, which has no quantizers, ours are added.

        Its weights are new to the quantizers, so these are fitted again and ranges are reset.
        """
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
        if prefix + "weight" not in state_dict:
            return
        for name in ("weight_quantizer", "input_quantizer"):
            child, child_prefix = getattr(self, name), f"{prefix}{name}."
            if child is None or any(key.startswith(child_prefix) for key in state_dict):
                continue
            try:
                if isinstance(child, WeightQuantizer):
                    child.initialise(self.kernels())
                else:
                    child.reset()
            except WeightsError as error:
                raise WeightsError(f"layer {prefix[:-1]}: {error}") from None
            state_dict.update(child.state_dict(prefix=child_prefix))


class QuantConv2d(QuantLayer, nn.Conv2d):
    """nn.Conv2d with quantized weight and input; made by `dbq.prepare`."""

    def forward(self, input: Tensor) -> Tensor:
        x, weight = self.quantized_input(input), self.quantized_weight()
        with self.keeping(input, x):
            output: Tensor = self._conv_forward(x, weight, self.bias)
        return output


class QuantLinear(QuantLayer, nn.Linear):
    """nn.Linear with quantized weight and input; made by `dbq.prepare`."""

    def forward(self, input: Tensor) -> Tensor:
        x, weight = self.quantized_input(input), self.quantized_weight()
        with self.keeping(input, x):
            return F.linear(x, weight, self.bias)


class _QuantSubclass(QuantLayer):
    """Any other class of layer: while its own forward runs, `weight` is the quantized weight.

    That forward pads, activates or does what it likes around one convolution (`prepare` has made sure of
    that), so nothing about it needs to be known here.
    """

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        in_use = vars(self).get("_weight_in_use")
        return self._parameters["weight"] if in_use is None else in_use  # type: ignore[return-value]

    def forward(self, input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        x, weight = self.quantized_input(input), self.quantized_weight()
        vars(self)["_weight_in_use"] = weight
        try:
            with self.keeping(input, x):
                output: Tensor = super().forward(x, *args, **kwargs)
        finally:
            del vars(self)["_weight_in_use"]
        return output

    def __reduce_ex__(self, protocol: Any) -> Any:
        """The class is made at run time: copies and pickles name the class it was made for."""
        return _empty, (type(self).__bases__[1],), self.__dict__


# The quantized class of a Conv2d, a Linear, and of every other class of layer that has been met.
_CLASSES: dict[type[nn.Module], type[QuantLayer]] = {nn.Conv2d: QuantConv2d, nn.Linear: QuantLinear}


def _quantized_class(kind: type[nn.Module]) -> type[QuantLayer]:
    if kind not in _CLASSES:
        _CLASSES[kind] = type(f"Quant{kind.__name__}", (_QuantSubclass, kind), {})
    return _CLASSES[kind]


def _empty(kind: type[nn.Module]) -> nn.Module:
    quantized = _quantized_class(kind)
    return quantized.__new__(quantized)


def quantized_weights(model: nn.Module) -> dict[str, tuple[WeightQuantizer, Tensor]]:
    """Quantizer and float weight, kernels first, of every layer whose weights are quantized."""
    return {
        name: (module.weight_quantizer, module.kernels())
        for name, module in model.named_modules()
        if isinstance(module, QuantLayer) and module.weight_quantizer is not None
    }


def why_not_quantizable(module: nn.Module) -> str | None:
    """None if `module` can be quantized, else the reason."""
    kind = type(module).__name__
    if isinstance(module, QuantLayer):
        return "it is quantized already: prepare a float model once"
    if is_parametrized(module):
        return "it is parametrized: call torch.nn.utils.parametrize.remove_parametrizations first"
    if not isinstance(module, WeightLayer):
        return f"{kind} is not a Conv2d, ConvTranspose2d or Linear"
    if "forward" in vars(module):
        return "its forward was replaced on the object, so the quantized one would never run"
    if "weight" not in module._parameters:
        return "its weight is not a plain parameter (weight norm or pruning?)"
    return None


def quantize_layer(
    module: nn.Module,
    weight_quantizer: WeightQuantizer | None,
    input_quantizer: InputQuantizer | None,
) -> None:
    """Turn a weight layer into its quantized class, in place.

    The object, its parameters and its hooks stay the same, so shared layers stay shared and
    optimizers valid.
    """
    reason = why_not_quantizable(module)
    if reason:
        raise LayerError(reason)
    module.__class__ = _quantized_class(type(module))
    module.register_module("weight_quantizer", weight_quantizer)
    module.register_module("input_quantizer", input_quantizer)
    if input_quantizer is not None:
        input_quantizer.to(module.get_parameter("weight").device)
    module.train(module.training)
