"""Quantizers, the layers whose weights and inputs they make, and batch norm, which folds into them."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt
import torch

from dbq.deploy.file.packing import Codes as IntegerCodes
from dbq.deploy.operations.convolution import Convolution, joined
from dbq.deploy.operations.pixels import NOTHING
from dbq.deploy.tensors import Doubles, Grid, Shape
from dbq.deploy.window import Pair, Window
from dbq.errors import LoweringError
from dbq.lowering.handlers.pooling import pair
from dbq.lowering.operands import Moved, Operand, Padded, Quantized, Site
from dbq.lowering.values import Affine, Reading, Sums, Value, pick_pixels, same
from dbq.model.reading.recording import QUANTIZE, Constant
from dbq.plans.precision import MAX_BITS
from dbq.quantizers.contract import InputQuantizer, WeightQuantizer
from dbq.quantizers.frozen import Branches, FixedPoint, Frozen
from dbq.quantizers.ratios import can_be_whole, whole_ratios

# A batch norm's output is taken to stay within beta +- 64 gamma: for any distribution at most one value
# in 4096 lies outside (Chebyshev), for a normal one none. Only 32-bit codes use it, with steps to spare.
# Where the recorded run came nearer to that than a quarter, its statistics are not those of the data:
# then the bound that holds for any input is used instead.
DEVIATIONS, USUAL_PEAK = 64.0, 0.25
DEPLOYABLE = "such as dbq-2t-4, dbq-1t-a8, fx8-3 or resnet-2t-a8"


class Weights(NamedTuple):
    """Planes of codes [J, K, ...] and what makes weights of them.

    With `factors` [K, J], a kernel has one sum, of whole multiples of its planes, and one scale; else
    one of each for every plane.
    """

    codes: IntegerCodes
    scales: Doubles  # [K, J] or [K, 1]
    bits: int | None = None  # of fixed-point codes
    factors: npt.NDArray[np.uint8] | None = None


def quantize(site: Site, operand: Operand) -> Quantized:
    """The input quantizer of a layer; those of weights are constants, read by the layer itself."""
    quantizer = site.call.module
    assert isinstance(quantizer, InputQuantizer)
    layer = site.call.path.rpartition(".")[0]
    if not quantizer.has_seen:
        raise LoweringError(
            f"{layer} has seen no data, so the range of its input is unknown: train the network, "
            "or call dbq.calibrate(model, batches)"
        )
    grid = quantizer.grid()
    if grid is None:
        raise LoweringError(
            f"{layer} reads activations that are levels of a table: prepare the network with a plan "
            "that makes them fixed point (clip = bn, relu6, range, pact or lsq)"
        )
    if isinstance(operand, Quantized):
        site.refuse("reads the quantized input of another layer")
    return Quantized(operand, grid)


def convolution(
    site: Site, operand: Any, weight: Any, bias: Constant | None = None, stride: Any = 1,
    padding: Any = 0, dilation: Any = 1, groups: int = 1,
) -> Affine:  # fmt: skip
    weights = _weights(site, weight)
    inner, grid = _codes(site, operand)
    window = Window(weights.codes.shape[3:], pair(stride), (0, 0), pair(dilation))
    top, left, bottom, right = _pads(padding, window)
    if isinstance(inner, Padded):
        top, left = top + inner.top, left + inner.left
        bottom, right = bottom + inner.bottom, right + inner.right
        inner = inner.value
    if (
        top >= window.extent[0] or left >= window.extent[1]
    ):  # the file format pads by less than a window
        inner, top, left = site.resolve(Padded(site.resolve(inner), top, left, 0, 0)), 0, 0
    window = window._replace(padding=(top, left))
    value = site.resolve(inner)
    size = window.output(value.shape, (bottom, right))
    return _weighted(site, Reading(value, grid), weights, bias, window, size, groups)


def transposed_convolution(
    site: Site, operand: Any, weight: Any, bias: Constant | None = None, stride: Any = 1,
    padding: Any = 0, output_padding: Any = 0, groups: int = 1, dilation: Any = 1,
) -> Affine:  # fmt: skip
    """A convolution with the kernels turned round, of an image with zeros between its pixels."""
    weights = _weights(site, weight)
    inner, grid = _codes(site, operand)
    value = site.resolve(inner)
    window = Window(weights.codes.shape[3:], dilation=pair(dilation))
    places = []
    for axis, size in enumerate(value.shape[1:]):
        before = window.extent[axis] - 1 - pair(padding)[axis]
        after = before + pair(output_padding)[axis]
        apart = [NOTHING] * (pair(stride)[axis] - 1)
        inside = [place for pixel in range(size) for place in (pixel, *apart)][
            : -len(apart) or None
        ]
        spread = [NOTHING] * before + inside + [NOTHING] * after
        places.append(spread[max(-before, 0) : len(spread) - max(-after, 0)])
    rows, columns = places
    stuffed = pick_pixels(value, rows, columns, site.name, site.now())
    turned = weights._replace(codes=weights.codes[..., ::-1, ::-1].copy())
    made = window.output(stuffed.shape, (0, 0))
    return _weighted(site, Reading(stuffed, grid), turned, bias, window, made, groups)


def linear(site: Site, operand: Any, weight: Any, bias: Constant | None = None) -> Affine:
    """A convolution whose kernel is the whole of its input."""
    weights = _weights(site, weight)
    inner, grid = _codes(site, operand)
    if isinstance(inner, Moved) and inner.is_flattened:
        inner = inner.base
    value = site.resolve(inner)
    features = weights.codes.shape[2]
    if math.prod(value.shape) != features or len(site.call.output.shape) != 2:
        site.refuse(
            f"reads {features} features of {list(value.shape)}: flatten the tensor before the layer; "
            "one that is applied to every pixel must be a 1x1 convolution"
        )
    window = Window((value.shape.height, value.shape.width))
    codes = weights.codes.reshape(*weights.codes.shape[:2], -1, *window.kernel)
    whole = weights._replace(codes=codes)
    return _weighted(site, Reading(value, grid), whole, bias, window, (1, 1), 1)


def _weighted(
    site: Site, read: Reading, weights: Weights, bias: Constant | None, window: Window, size: Pair,
    groups: int,
) -> Affine:  # fmt: skip
    assert isinstance(read.representation, Grid)
    codes, scales, bits, factors = weights
    kernels = codes.shape[1]
    offsets = np.zeros(kernels) if bias is None else numbers(bias.tensor)
    integers = codes if factors is None else joined(codes, factors)
    sizes = np.abs(integers.astype(np.int16)).reshape(len(integers), kernels, -1).sum(2).T  # [K, J]
    bound = float(((sizes * scales).sum(1) * read.representation.clip + np.abs(offsets)).max())
    make = partial(
        Convolution, window=window, groups=groups, codes=codes, bits=bits, factors=factors
    )
    each = [(0,)] * len(integers)
    sums = Sums(site.name, site.now(), Shape(kernels, *size), [read], make, factors=each)
    return Affine(sums, scales, offsets, bound)


def _pads(padding: Any, window: Window) -> tuple[int, int, int, int]:
    """Top, left, bottom, right; "same" puts the odd one at the end, as torch does."""
    if padding == "valid":
        return 0, 0, 0, 0
    if padding == "same":
        down, across = (extent - 1 for extent in window.extent)
        return down // 2, across // 2, down - down // 2, across - across // 2
    top, left = pair(padding)
    return top, left, top, left


def _codes(site: Site, operand: Any) -> tuple[Value | Padded | Moved, Grid]:
    if not isinstance(operand, Quantized):
        raise LoweringError(
            f"{site.name} reads float activations: prepare the network with a plan that quantizes them, "
            f"{DEPLOYABLE}"
        )
    return operand.operand, operand.grid


def _weights(site: Site, weight: Any) -> Weights:
    if not isinstance(weight, Constant):
        site.refuse("applies a weight that depends on the image, which cannot be lowered")
    if weight.quantized is None:
        raise LoweringError(
            f"{site.name} has float weights: prepare the network with a plan that gives every layer a "
            f"precision, {DEPLOYABLE}; the notes of its summary say if the layer cannot be quantized"
        )
    quantizer, (source,) = weight.quantized.module, weight.quantized.tensors()
    assert isinstance(quantizer, WeightQuantizer)
    assert isinstance(source, Constant)
    frozen = quantizer.freeze(source.tensor)
    if site.whole_ratios and can_be_whole(frozen):
        assert isinstance(frozen, Branches)
        factors, steps = whole_ratios(frozen)
        codes = frozen.codes.cpu().numpy()
        return Weights(codes, numbers(steps)[:, None], factors=factors.numpy())
    planes, scales = _planes(site.name, frozen)
    if quantizer.precision.is_branched:
        return Weights(planes, scales)
    return Weights(planes, scales, max(quantizer.precision.size, _code_bits(site.name, planes)))


def _planes(name: str, frozen: Frozen) -> tuple[IntegerCodes, Doubles]:
    if isinstance(frozen, Branches):
        return frozen.codes.cpu().numpy(), numbers(frozen.scales)
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
    return frozen.codes.cpu().numpy()[None], numbers(frozen.scales)[:, None]


def _code_bits(name: str, codes: IntegerCodes) -> int:
    """The bits that hold fixed-point codes symmetrically: the code -2^(b-1) takes one more."""
    needed = int(np.abs(codes.astype(np.int16)).max(initial=0)).bit_length() + 1
    if needed > MAX_BITS:
        raise LoweringError(f"{name} has the weight code -128; the engine's are -127 to 127")
    return needed


def batch_norm(
    site: Site, operand: Operand, running_mean: Constant | None, running_var: Constant | None,
    weight: Constant | None = None, bias: Constant | None = None, training: bool = False,
    momentum: float = 0.1, eps: float = 1e-5,
) -> Affine:  # fmt: skip
    if training or running_mean is None or running_var is None:
        site.refuse("keeps no running statistics, so eval() is not a fixed network")
    deviation = np.sqrt(numbers(running_var.tensor) + eps)
    gamma = np.ones_like(deviation) if weight is None else numbers(weight.tensor)
    beta = np.zeros_like(deviation) if bias is None else numbers(bias.tensor)
    slope = gamma / deviation
    shift = beta - slope * numbers(running_mean.tensor)
    usual = float((np.abs(beta) + DEVIATIONS * np.abs(gamma)).max())
    if site.call.output.peak > USUAL_PEAK * usual:
        usual = math.inf
    return scale_and_shift(site, site.resolve(operand), slope, shift, usual)


def scale_and_shift(
    site: Site, value: Value, slope: Doubles, shift: Doubles, usual: float = math.inf
) -> Affine:
    """slope * value + shift for each channel: folded into the operation, or one of its own."""
    if not isinstance(value, Affine) or value.is_clamped:
        value = same(value, site.name, site.now())
    scales, offsets = value.scales * slope[:, None], value.offsets * slope + shift
    exact = float((value.bound * np.abs(slope) + np.abs(shift)).max())
    return Affine(value.sums, scales, offsets, min(usual, exact))


def numbers(tensor: torch.Tensor) -> Doubles:
    return tensor.detach().double().cpu().numpy()


def statistics_of_the_image(site: Site, *_: Any, **__: Any) -> NoReturn:
    site.refuse(
        f"{site.call.op} normalises by statistics of each image, which the integer engine does not "
        "compute: use a network with batch norm (what this one costs is still counted by dbq.cost)"
    )


def attention(site: Site, *_: Any, **__: Any) -> NoReturn:
    site.refuse(
        f"{site.call.op} multiplies activations by activations, as attention does, which the integer "
        "engine does not: use a convolutional network (what this one costs is still counted by dbq.cost)"
    )


HANDLERS: dict[str, Any] = {
    QUANTIZE: quantize,
    "conv2d": convolution,
    "conv_transpose2d": transposed_convolution,
    "linear": linear,
    "batch_norm": batch_norm,
    **dict.fromkeys(("layer_norm", "group_norm", "instance_norm", "local_response_norm", "normalize",
                     "rms_norm"), statistics_of_the_image),
    **dict.fromkeys(("scaled_dot_product_attention", "matmul", "bmm", "einsum", "softmax",
                     "multi_head_attention_forward"), attention),
}  # fmt: skip
