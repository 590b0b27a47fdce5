"""Layers with weights, and batch norm, which folds into them."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NoReturn

import numpy as np
import torch
from torch import nn

from dbq.deploy.operations.convolution import Convolution
from dbq.deploy.operations.packing import Codes as IntegerCodes
from dbq.deploy.operations.requantize import Requantize
from dbq.deploy.tensors import Doubles, Grid, Shape
from dbq.deploy.window import Window
from dbq.errors import LoweringError
from dbq.lowering.handlers.pooling import pair
from dbq.lowering.operands import Moved, Operand, Padded, Site
from dbq.lowering.values import Affine, Reading, Sums, Value
from dbq.model.graph import Op
from dbq.model.layers import QuantConv2d, QuantLinear
from dbq.plans.precision import MAX_BITS
from dbq.quantizers.contract import BatchNorm
from dbq.quantizers.frozen import Branches, FixedPoint, Frozen

# A batch norm's output is taken to stay within beta +- 64 gamma: for any distribution at most one value
# in 4096 lies outside (Chebyshev), for a normal one none. Only 32-bit codes use it, with steps to spare.
DEVIATIONS = 64.0
DEPLOYABLE = "such as dbq-2t-4, dbq-1t-a8, fx8-3 or resnet-2t-a8"


def convolution(site: Site, layer: QuantConv2d, operand: Operand) -> Affine:
    if layer.padding_mode != "zeros":
        raise LoweringError(f"{site.name} pads by {layer.padding_mode}, expected zeros")
    left, right, top, bottom = layer._reversed_padding_repeated_twice
    if isinstance(operand, Padded):
        left, right = left + operand.left, right + operand.right
        top, bottom = top + operand.top, bottom + operand.bottom
        operand = operand.value
    value = site.resolve(operand)
    window = Window(pair(layer.kernel_size), pair(layer.stride), (top, left), pair(layer.dilation))
    return _weighted(site, layer, value, window, (bottom, right), layer.groups)


def linear(site: Site, layer: QuantLinear, operand: Operand) -> Affine:
    """A convolution whose kernel is the whole of its input."""
    if isinstance(operand, Moved) and operand.is_flattened:
        operand = operand.base
    value = site.resolve(operand)
    if math.prod(value.shape) != layer.in_features:
        raise LoweringError(
            f"{site.name} reads {layer.in_features} features of {list(value.shape)}: "
            "flatten the tensor before it"
        )
    window = Window((value.shape.height, value.shape.width))
    return _weighted(site, layer, value, window, (0, 0), 1)


def refuse_float(site: Site, *_: Any) -> NoReturn:
    raise LoweringError(
        f"{site.name} has float weights: prepare the network with a plan that gives every layer a "
        f"precision, {DEPLOYABLE}"
    )


def _weighted(
    site: Site, layer: QuantConv2d | QuantLinear, value: Value, window: Window,
    spare: tuple[int, int], groups: int,
) -> Affine:  # fmt: skip
    read = Reading(value, _input_codes(site.name, layer))
    quantizer = layer.weight_quantizer
    if quantizer is None:
        refuse_float(site)
    kernels = layer.weight.shape[0]
    planes, scales = _planes(site.name, quantizer.freeze(layer.weight))
    codes = planes.reshape(len(planes), kernels, -1, *window.kernel)
    offsets = np.zeros(kernels) if layer.bias is None else _numbers(layer.bias)
    bits = None
    if not quantizer.precision.is_branched:
        bits = max(quantizer.precision.size, _code_bits(site.name, codes))
    assert isinstance(read.representation, Grid)
    shape = Shape(kernels, *window.output(value.shape, spare))
    sizes = np.abs(codes).reshape(len(codes), kernels, -1).sum(2).T  # [K, B]
    bound = float(((sizes * scales).sum(1) * read.representation.clip + np.abs(offsets)).max())
    make = partial(Convolution, window=window, groups=groups, codes=codes, bits=bits)
    sums = Sums(site.name, site.now(), shape, [read], make, factors=[(0,)] * len(codes))
    return Affine(sums, scales, offsets, bound)


def _planes(name: str, frozen: Frozen) -> tuple[IntegerCodes, Doubles]:
    """Planes of codes [J, *weight.shape] and their scales [K, J]."""
    if isinstance(frozen, Branches):
        return frozen.codes.cpu().numpy(), _numbers(frozen.scales)
    if not isinstance(frozen, FixedPoint):
        raise LoweringError(
            f"{name} has weights that are levels of a table, not sums of scaled codes: they can be "
            "trained, tested and counted, but not deployed"
        )
    if frozen.zeros is not None:
        raise LoweringError(
            f"{name} has weights with a zero point, which the engine does not support: prepare the "
            "network with the method's option symmetric=true"
        )
    return frozen.codes.cpu().numpy()[None], _numbers(frozen.scales)[:, None]


def _code_bits(name: str, codes: IntegerCodes) -> int:
    """The bits that hold fixed-point codes symmetrically: the code -2^(b-1) takes one more."""
    needed = int(np.abs(codes.astype(np.int16)).max(initial=0)).bit_length() + 1
    if needed > MAX_BITS:
        raise LoweringError(f"{name} has the weight code -128; the engine's are -127 to 127")
    return needed


def _input_codes(name: str, layer: QuantConv2d | QuantLinear) -> Grid:
    quantizer = layer.input_quantizer
    if quantizer is None:
        raise LoweringError(
            f"{name} reads float activations: prepare the network with a plan that quantizes them, "
            f"{DEPLOYABLE}"
        )
    if not quantizer.has_seen:
        raise LoweringError(
            f"{name} has seen no data, so the range of its input is unknown: train the network, "
            "or call dbq.calibrate(model, batches)"
        )
    grid = quantizer.grid()
    if grid is None:
        raise LoweringError(
            f"{name} reads activations that are levels of a table: prepare the network with a plan "
            "that makes them fixed point (clip = bn, relu6, range, pact or lsq)"
        )
    return grid


def batch_norm(site: Site, module: BatchNorm, operand: Operand) -> Affine:
    if module.running_mean is None or module.running_var is None:
        raise LoweringError(
            f"{site.name} keeps no running statistics, so eval() is not a fixed network"
        )
    deviation = np.sqrt(_numbers(module.running_var) + module.eps)
    gamma = _numbers(module.weight) if module.affine else np.ones_like(deviation)
    beta = _numbers(module.bias) if module.affine else np.zeros_like(deviation)
    slope = gamma / deviation
    shift = beta - slope * _numbers(module.running_mean)
    usual = float((np.abs(beta) + DEVIATIONS * np.abs(gamma)).max())
    return scale_and_shift(site, site.resolve(operand), slope, shift, usual)


def scale_and_shift(
    site: Site, value: Value, slope: Doubles, shift: Doubles, usual: float
) -> Affine:
    """slope * value + shift for each channel: folded into the operation, or one of its own."""
    if isinstance(value, Affine) and not value.is_clamped:
        scales, offsets = value.scales * slope[:, None], value.offsets * slope + shift
        exact = float((value.bound * np.abs(slope) + np.abs(shift)).max())
        return Affine(value.sums, scales, offsets, min(usual, exact))
    sums = Sums(site.name, site.now(), value.shape, [value.wide(site.name)], Requantize)
    return Affine(sums, slope[:, None].copy(), shift, usual)


def _numbers(tensor: torch.Tensor) -> Doubles:
    return tensor.detach().double().cpu().numpy()


HANDLERS: dict[Op, Any] = {
    QuantConv2d: convolution,
    QuantLinear: linear,
    **dict.fromkeys((nn.Conv2d, nn.Linear), refuse_float),
}
