"""The graph of a network to values: torch.fx runs it, with our values in place of tensors.

Every operation lowering knows is in one of the tables at the end; anything else is an error that names the
node and the operation. Sizes and other plain numbers of the graph are computed as they stand.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import fx, nn

from dbq.activations import BatchNorm, InputQuantizer, RunningClip
from dbq.errors import LoweringError
from dbq.graph import RELU, RELU6, Op, trace
from dbq.layers import QuantConv2d, QuantLinear
from dbq.lowering.moving import (
    clamped,
    concatenate,
    is_flattened,
    largest_of,
    pick,
    settle,
)
from dbq.lowering.values import (
    WIDE,
    Affine,
    Anything,
    Codes,
    Image,
    Moved,
    Padded,
    Reading,
    Sums,
    Value,
)
from dbq.program import (
    ZEROS,
    Add,
    AveragePool,
    Convolution,
    Operation,
    Requantize,
    Result,
    Shape,
    Window,
)

# A batch norm's output is taken to stay within beta +- 16 gamma: for any distribution, at most one value in
# 256 lies outside (Chebyshev), for a normal one none. Only 16-bit codes use it.
DEVIATIONS = 16.0


class Reader(fx.Interpreter):
    """Runs the graph of a model in eval(); `run` gives the value of its output."""

    def __init__(self, model: nn.Module, image: Shape) -> None:
        super().__init__(fx.GraphModule(model, trace(model)))
        self.extra_traceback = False  # our errors are one line
        self.modules = dict(model.named_modules())
        self.image = Image(image)
        self.clock = count()

    def read(self) -> Value:
        output = self.run(self.image)
        if not _is_value(output):
            raise LoweringError(
                f"the network gives a {type(output).__name__}, expected one tensor of logits"
            )
        return settle(output, "the output", self.clock)

    def run_node(self, n: fx.Node) -> Any:
        self.name = n.name
        result = super().run_node(n)
        if _is_value(result) and result.node is None:
            result.node = n.name
        return result

    def call_module(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        module = self.modules[target]
        self.name = target
        return self._apply(type(module), module, args, kwargs)

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        picks_a_part = target is operator.getitem and isinstance(args[0], tuple)
        if picks_a_part or not any(map(_is_value, _flat((*args, *kwargs.values())))):
            return super().call_function(target, args, kwargs)
        return self._apply(target, target, args, kwargs)

    def call_method(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not any(map(_is_value, _flat(args))):
            return super().call_method(target, args, kwargs)
        return self._apply(target, target, args, kwargs)

    def get_attr(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        raise LoweringError(
            f"{self.name} ({target}) is a tensor of the network itself: lowering knows weights of "
            "Conv2d, Linear and batch norm only"
        )

    def _apply(self, op: Op, what: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if op in MOVING:
            return self._move(what, args, kwargs)
        handler = HANDLERS.get(op)
        if handler is None and isinstance(what, BatchNorm):
            handler = batch_norm
        if handler is None:
            name = op if isinstance(op, str) else getattr(op, "__name__", str(op))
            raise LoweringError(
                f"{self.name}: {name} cannot be lowered; known are convolutions, linear layers, "
                "batch norm, ReLU, ReLU6, additions, concatenations, channel splits and shuffles, "
                "max and average pooling, zero padding and flattening: replace it, or leave it out "
                "of the network"
            )
        if isinstance(what, nn.Module):
            return handler(self, what, *args, **kwargs)
        return handler(self, *args, **kwargs)

    def _move(self, what: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Let torch move a tensor of indices, and remember where they went."""
        thing, *rest = args
        if isinstance(thing, Padded):
            thing = settle(thing, self.name, self.clock)
        if isinstance(thing, Moved):
            base, index = thing.base, torch.from_numpy(thing.index)
        else:
            base, index = thing, torch.arange(math.prod(thing.shape)).view(1, *thing.shape)
        function = (
            getattr(index, what) if isinstance(what, str) else lambda *a, **k: what(index, *a, **k)
        )
        moved = function(*rest, **kwargs)
        if isinstance(moved, torch.Tensor):
            return Moved(base, moved.numpy())
        if isinstance(moved, tuple | list) and all(isinstance(m, torch.Tensor) for m in moved):
            return tuple(Moved(base, m.numpy()) for m in moved)
        return moved  # a size

    def settle(self, thing: Anything) -> Value:
        return settle(thing, self.name, self.clock)

    def wide(self, thing: Anything) -> Reading:
        return Reading(self.settle(thing), WIDE)


def _is_value(thing: Any) -> bool:
    return isinstance(thing, Anything)


def _flat(things: Sequence[Any]) -> list[Any]:
    flat: list[Any] = []
    for thing in things:
        flat += thing if isinstance(thing, list | tuple) else [thing]
    return flat


def convolution(reader: Reader, layer: QuantConv2d, thing: Anything) -> Affine:
    top = left = bottom = right = 0
    if isinstance(thing, Padded):
        top, left, bottom, right = thing.top, thing.left, thing.bottom, thing.right
        thing = thing.value
    if layer.padding_mode != "zeros" or isinstance(layer.padding, str):
        raise LoweringError(
            f"{reader.name}: padding {layer.padding!r} of mode {layer.padding_mode}; expected numbers and zeros"
        )
    value = reader.settle(thing)
    rows, columns = layer.padding
    window = Window(
        _pair(layer.kernel_size),
        _pair(layer.stride),
        (rows + top, columns + left),
        _pair(layer.dilation),
    )
    spare = (rows + bottom, columns + right)
    return _weighted(reader, layer, value, window, spare, layer.groups)


def linear(reader: Reader, layer: QuantLinear, thing: Anything) -> Affine:
    """A convolution whose kernel is the whole of its input."""
    value = thing.base if isinstance(thing, Moved) and is_flattened(thing) else reader.settle(thing)
    assert isinstance(value, Value)
    if math.prod(value.shape) != layer.in_features:
        raise LoweringError(
            f"{reader.name} reads {layer.in_features} features of {list(value.shape)}: "
            "flatten the tensor before it"
        )
    window = Window((value.shape.height, value.shape.width))
    return _weighted(reader, layer, value, window, (0, 0), 1)


def _weighted(
    reader: Reader,
    layer: QuantConv2d | QuantLinear,
    value: Value,
    window: Window,
    spare: tuple[int, int],
    groups: int,
) -> Affine:
    read = Reading(value, _input_codes(reader.name, layer))
    quantizer = layer.weight_quantizer
    if quantizer is None:
        raise LoweringError(
            f"{reader.name} has float weights: prepare the network with a plan that gives every layer a "
            "precision, such as dbq-2t-4, dbq-1t-a8, fx8-3 or resnet-2t-a8"
        )
    kernels = layer.weight.shape[0]
    codes = quantizer.codes(layer.weight).cpu().numpy()
    codes = codes.reshape(len(codes), kernels, -1, *window.kernel)
    scales = quantizer.scales(layer.weight).detach().double().cpu().numpy()
    offsets = np.zeros(kernels) if layer.bias is None else _numbers(layer.bias)
    bits = None if quantizer.precision.is_branched else quantizer.precision.size
    assert isinstance(read.representation, Codes)
    shape = Shape(kernels, *_output_size(value.shape, window, spare))
    sizes = np.abs(codes).reshape(len(codes), kernels, -1).sum(2).T  # [K, B]
    bound = float(((sizes * scales).sum(1) * read.representation.clip + np.abs(offsets)).max())
    name = reader.name

    def build(results: tuple[Result, ...], reads: list[int]) -> Operation:
        return Convolution(name, results, reads[0], window, groups, codes, bits)

    return Affine(Sums(name, next(reader.clock), shape, [read], build), scales, offsets, bound)


def _input_codes(name: str, layer: QuantConv2d | QuantLinear) -> Codes:
    quantizer: InputQuantizer | None = layer.input_quantizer
    if quantizer is None:
        raise LoweringError(
            f"{name} reads float activations: prepare the network with a plan that quantizes them, such as "
            "dbq-2t-4, dbq-1t-a8, fx8-3 or resnet-2t-a8"
        )
    if isinstance(quantizer.clip, RunningClip) and not quantizer.clip.limit > 0:
        raise LoweringError(
            f"{name} has seen no data, so the range of its input is not known: train the network, or call "
            "dbq.calibrate(model, batches)"
        )
    low, high = quantizer.code_range
    scale = float(quantizer.scale(torch.zeros(1, device=layer.weight.device)))
    return Codes("i8" if quantizer.signed else "u8", scale, low, high)


def _output_size(shape: Shape, window: Window, spare: tuple[int, int]) -> tuple[int, int]:
    """`spare` is the padding at the bottom and right."""
    sizes = []
    for axis in (0, 1):
        extent = (window.kernel[axis] - 1) * window.dilation[axis] + 1
        padded = window.padding[axis] + shape[1 + axis] + spare[axis]
        sizes.append((padded - extent) // window.stride[axis] + 1)
    return sizes[0], sizes[1]


def batch_norm(reader: Reader, module: BatchNorm, thing: Anything) -> Affine:
    if module.running_mean is None or module.running_var is None:
        raise LoweringError(
            f"{reader.name} keeps no running statistics, so eval() is not a fixed network"
        )
    deviation = np.sqrt(_numbers(module.running_var) + module.eps)
    gamma = _numbers(module.weight) if module.affine else np.ones_like(deviation)
    beta = _numbers(module.bias) if module.affine else np.zeros_like(deviation)
    slope = gamma / deviation
    usual = float((np.abs(beta) + DEVIATIONS * np.abs(gamma)).max())
    return _affine(
        reader, reader.settle(thing), slope, beta - slope * _numbers(module.running_mean), usual
    )


def _affine(
    reader: Reader,
    value: Value,
    slope: np.ndarray[Any, Any],
    shift: np.ndarray[Any, Any],
    usual: float,
) -> Affine:
    """slope * value + shift for each channel: folded into the operation, or one of its own."""
    if isinstance(value, Affine) and not value.is_clamped:
        scales, offsets = value.scales * slope[:, None], value.offsets * slope + shift
        exact = float((value.bound * np.abs(slope) + np.abs(shift)).max())
        return Affine(value.sums, scales, offsets, min(usual, exact))
    if isinstance(value, Image):
        raise LoweringError(f"{reader.name} scales the image itself; give `mean` and `std` instead")
    name = reader.name
    sums = Sums(name, next(reader.clock), value.shape, [Reading(value, WIDE)],
                lambda results, reads: Requantize(name, results, reads[0]))  # fmt: skip
    return Affine(sums, slope[:, None].copy(), shift, usual)


def rectify(reader: Reader, *things: Any, **_: Any) -> Value:
    """ReLU, as a module (which comes first) or a function."""
    return clamped(reader.settle(_tensor(things)), 0.0, math.inf, reader.name)


def rectify6(reader: Reader, *things: Any, **_: Any) -> Value:
    return clamped(reader.settle(_tensor(things)), 0.0, 6.0, reader.name)


def unchanged(reader: Reader, *things: Any, **_: Any) -> Any:
    """Dropout and the like: nothing in eval()."""
    return _tensor(things)


def _tensor(things: Sequence[Any]) -> Any:
    return things[1] if isinstance(things[0], nn.Module) else things[0]


def add(reader: Reader, a: Any, b: Any, **kwargs: Any) -> Affine:
    if kwargs:
        raise LoweringError(f"{reader.name}: addition with {', '.join(kwargs)} cannot be lowered")
    for number, thing in ((a, b), (b, a)):
        if isinstance(number, int | float):
            value = reader.settle(thing)
            ones = np.ones(value.shape.channels)
            return _affine(reader, value, ones, ones * number, math.inf)
    reads = [reader.wide(a), reader.wide(b)]
    shape, other = (reading.value.shape for reading in reads)
    if shape != other or any(isinstance(reading.value, Image) for reading in reads):
        raise LoweringError(
            f"{reader.name} adds {list(shape)} and {list(other)}; expected two layers' outputs of one shape"
        )
    name, ones = reader.name, np.ones((shape.channels, 2))
    sums = Sums(
        name, next(reader.clock), shape, reads, lambda results, r: Add(name, results, r[0], r[1])
    )
    return Affine(sums, ones, np.zeros(shape.channels), sum(_bound(r.value) for r in reads))


def _bound(value: Value) -> float:
    if isinstance(value, Affine):
        return value.bound
    inputs = [] if isinstance(value, Image) else value.inputs
    return max((_bound(input) for input in inputs), default=math.inf)


def concat(reader: Reader, things: Sequence[Anything], dim: int = 0, **kwargs: int) -> Value:
    if kwargs.get("axis", dim) not in (1, -3):
        raise LoweringError(
            f"{reader.name} concatenates along dimension {dim}, expected channels (1)"
        )
    return concatenate([reader.settle(thing) for thing in things], reader.name, next(reader.clock))


def pad(
    reader: Reader,
    thing: Anything,
    pads: Sequence[int],
    mode: str = "constant",
    value: float | None = 0,
) -> Any:
    if mode != "constant" or value or min(pads) < 0:
        raise LoweringError(
            f"{reader.name}: padding of mode {mode} by {list(pads)} with {value}; expected zeros"
        )
    left, right, top, bottom, front, back = (*pads, *[0] * (6 - len(pads)))
    base = reader.settle(thing)
    if front or back:
        zeros = (ZEROS, 0)
        own = [(0, channel) for channel in range(base.shape.channels)]
        base = pick([base], [zeros] * front + own + [zeros] * back, reader.name, next(reader.clock))
    return Padded(base, top, left, bottom, right) if any((left, right, top, bottom)) else base


def zero_pad(reader: Reader, module: nn.ZeroPad2d, thing: Anything) -> Any:
    return pad(reader, thing, module.padding)


def max_pool_module(reader: Reader, module: nn.MaxPool2d, thing: Anything) -> Value:
    return max_pool(reader, thing, module.kernel_size, module.stride, module.padding,
                    module.dilation, module.ceil_mode, module.return_indices)  # fmt: skip


def max_pool(
    reader: Reader, thing: Anything, kernel_size: Any, stride: Any = None, padding: Any = 0,
    dilation: Any = 1, ceil_mode: bool = False, return_indices: bool = False,
) -> Value:  # fmt: skip
    if _pair(dilation) != (1, 1) or return_indices:
        raise LoweringError(
            f"{reader.name}: max pooling with dilation or indices cannot be lowered"
        )
    value = reader.settle(thing)
    window = Window(_pair(kernel_size), _pair(stride or kernel_size), _pair(padding))
    shape = _pooled(value.shape, window, ceil_mode)
    return largest_of(value, window, shape, reader.name, next(reader.clock))


def _pooled(shape: Shape, window: Window, ceil_mode: bool) -> Shape:
    sizes = []
    for axis in (0, 1):
        kernel, stride, padding = window.kernel[axis], window.stride[axis], window.padding[axis]
        room = shape[1 + axis] + 2 * padding - kernel
        size = (-(-room // stride) if ceil_mode else room // stride) + 1
        # torch leaves out a last window that begins in the padding
        sizes.append(size - 1 if (size - 1) * stride >= shape[1 + axis] + padding else size)
    return Shape(shape.channels, sizes[0], sizes[1])


def average_pool_module(reader: Reader, module: nn.AvgPool2d, thing: Anything) -> Affine:
    return average_pool(reader, thing, module.kernel_size, module.stride, module.padding,
                        module.ceil_mode, module.count_include_pad, module.divisor_override)  # fmt: skip


def average_pool(
    reader: Reader, thing: Anything, kernel_size: Any, stride: Any = None, padding: Any = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None,
) -> Affine:  # fmt: skip
    window = Window(_pair(kernel_size), _pair(stride or kernel_size), _pair(padding))
    if ceil_mode or (window.padding != (0, 0) and not count_include_pad):
        raise LoweringError(
            f"{reader.name}: average pooling whose divisor changes at the border cannot be lowered; "
            "use ceil_mode=False and count_include_pad=True"
        )
    read = reader.wide(thing)
    shape = _pooled(read.value.shape, window, ceil_mode)
    return _mean(reader, read, window, shape, divisor_override or math.prod(window.kernel))


def _mean(reader: Reader, read: Reading, window: Window, shape: Shape, divisor: int) -> Affine:
    if isinstance(read.value, Image):
        raise LoweringError(f"{reader.name} averages the image itself; do that before the network")
    name = reader.name
    sums = Sums(name, next(reader.clock), shape, [read],
                lambda results, reads: AveragePool(name, results, reads[0], window))  # fmt: skip
    scales = np.full((shape.channels, 1), 1.0 / divisor)
    bound = _bound(read.value) * math.prod(window.kernel) / divisor
    return Affine(sums, scales, np.zeros(shape.channels), bound)


def adaptive_pool_module(reader: Reader, module: nn.AdaptiveAvgPool2d, thing: Anything) -> Affine:
    return adaptive_pool(reader, thing, module.output_size)


def adaptive_pool(reader: Reader, thing: Anything, output_size: Any) -> Affine:
    read = reader.wide(thing)
    channels, height, width = read.value.shape
    rows, columns = (
        want or have for want, have in zip(_pair(output_size), (height, width), strict=True)
    )
    if height % rows or width % columns:
        raise LoweringError(
            f"{reader.name} pools {height} x {width} to {rows} x {columns}: windows of unlike size"
        )
    window = Window((height // rows, width // columns), (height // rows, width // columns))
    return _mean(reader, read, window, Shape(channels, rows, columns), math.prod(window.kernel))


def mean(
    reader: Reader, thing: Anything, dim: Any = None, keepdim: bool = False, **kwargs: Any
) -> Any:
    if sorted(d % 4 for d in (dim if isinstance(dim, list | tuple) else [-1])) != [2, 3] or kwargs:
        raise LoweringError(f"{reader.name}: mean over {dim}; expected height and width, (2, 3)")
    pooled = adaptive_pool(reader, thing, 1)
    if keepdim:
        return pooled
    return Moved(pooled, np.arange(pooled.shape.channels)[None])


def size(reader: Reader, thing: Any, dim: int | None = None) -> Any:
    shape = thing.index.shape if isinstance(thing, Moved) else (1, *thing.shape)
    return torch.Size(shape) if dim is None else shape[dim]


def attribute(reader: Reader, thing: Any, name: str) -> Any:
    if name != "shape":
        raise LoweringError(f"{reader.name}: attribute {name!r} of a tensor; only shape is known")
    return size(reader, thing)


def _pair(size: Any) -> tuple[int, int]:
    return (
        (int(size[0]), int(size[-1])) if isinstance(size, list | tuple) else (int(size), int(size))
    )


def _numbers(tensor: torch.Tensor) -> np.ndarray[Any, np.dtype[np.float64]]:
    return tensor.detach().double().cpu().numpy()


# Values pass, elements move: torch does these to a tensor of indices.
MOVING: frozenset[Op] = frozenset(
    {nn.Flatten, nn.ChannelShuffle, F.channel_shuffle, operator.getitem, torch.flatten, torch.reshape,
     torch.permute, torch.transpose, torch.squeeze, torch.unsqueeze, torch.chunk, torch.split,
     "view", "reshape", "flatten", "permute", "transpose", "squeeze", "unsqueeze", "chunk", "split",
     "narrow", "unbind"}
)  # fmt: skip

HANDLERS: dict[Op, Callable[..., Any]] = {
    QuantConv2d: convolution,
    QuantLinear: linear,
    **dict.fromkeys(RELU, rectify),
    **dict.fromkeys(RELU6, rectify6),
    **dict.fromkeys((nn.Identity, nn.Dropout, nn.Dropout2d, F.dropout, F.dropout2d, "contiguous", "clone",
                     "detach", torch.clone), unchanged),
    **dict.fromkeys((operator.add, operator.iadd, torch.add, "add", "add_"), add),
    **dict.fromkeys((torch.cat, torch.concat), concat),
    F.pad: pad,
    nn.ZeroPad2d: zero_pad,
    nn.MaxPool2d: max_pool_module,
    F.max_pool2d: max_pool,
    nn.AvgPool2d: average_pool_module,
    F.avg_pool2d: average_pool,
    nn.AdaptiveAvgPool2d: adaptive_pool_module,
    F.adaptive_avg_pool2d: adaptive_pool,
    **dict.fromkeys((torch.mean, "mean"), mean),
    "size": size,
    getattr: attribute,
}  # fmt: skip
