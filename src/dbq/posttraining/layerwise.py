"""Layer by layer: weights fitted to the float network's outputs, batch norms corrected by pairs.

Both networks run on the same images and wait in front of every layer. The input that the quantized
layers so far give, with all their errors, is then known, and the layer is asked for the output
that the float network has. Every choice is kept only if it lowers the layer's output error.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from dbq.model.layers import QuantConv2d, QuantLinear
from dbq.posttraining.moments import (
    DAMPINGS,
    Moments,
    Problem,
    best_damping,
    outputs,
    patches,
    thinning,
)
from dbq.posttraining.pairs import Pairs, correct_norm, execution_order
from dbq.posttraining.residuals import find_residuals, repair
from dbq.quantizers.contract import BatchNorm, InputQuantizer
from dbq.support.progress import Progress, silent

BATCH = 8  # images of a pass
FEWEST = 16  # images that even the first layers see
LIVE = 8  # tensors of the size of a layer's input that are alive for an image, in both networks
SHARES = (1.0, 0.85, 0.7, 0.55, 0.4)  # of the largest input seen: where to clip
RANGE_BATCHES = 4  # batches on which clips are compared


# Other classes of layers, which do more than a convolution of their input, stay as `prepare` left them.
Fitted = QuantConv2d | QuantLinear


@dataclass(frozen=True)
class Choices:
    """Which parts of the fit are made; what is not made stays as `prepare` left it."""

    ranges: bool = True  # where inputs without a batch norm are clipped
    codes: bool = True  # codes and scales by output error
    target: bool = True  # ask for the float output, and not for that of the float weight
    shortcuts: bool = True  # let the last layer of a residual block repair its shortcut
    variances: bool = True  # of batch norms behind fitted layers, as well as their means
    norms: bool = True  # batch norms by pairs, biases where there is none


EVERYTHING = Choices()


@dataclass(frozen=True)
class FittedLayer:
    """What fitting did to a layer. Output errors are mean squares relative to the float output's."""

    name: str
    images: int
    error_before: float
    error: float
    seconds: float


@torch.no_grad()
def fit_layers(
    teacher: nn.Module,
    student: nn.Module,
    images: Tensor,
    choices: Choices = EVERYTHING,
    memory: int = 2 << 30,
    progress: Progress = silent,
) -> list[FittedLayer]:
    """Fit the quantized layers of `student` in the order they run; `teacher` is the float network.

    `memory` bounds the activations that are alive at the same time, in bytes.
    """
    modules = dict(student.named_modules())
    wanted = {name for name, m in modules.items() if isinstance(m, Fitted | BatchNorm)}
    order = execution_order(teacher, images[:1], wanted)
    norm_of = {stop.corrects: stop.name for stop in order if stop.corrects}
    use_shortcuts = choices.shortcuts and choices.target and choices.norms
    residuals = find_residuals(teacher, images[:1], norm_of) if use_shortcuts else {}
    block_of = {name: r.block for r in residuals.values() for name in (r.layer, r.norm)}
    pairs = Pairs(teacher, student, images, order, BATCH, sorted(set(block_of.values())))
    rows, fitted = [], set()
    try:
        for index, stop in enumerate(order):
            progress("layers", index, len(order))
            start = time.monotonic()
            largest = max(later.bytes_per_image for later in order[index:])
            pairs.move_to(index, max(FEWEST, memory // (LIVE * largest)))
            module, block = modules[stop.name], block_of.get(stop.name)
            if isinstance(module, BatchNorm):
                if choices.norms and module.track_running_stats:
                    is_fitted = choices.codes and stop.corrects in fitted
                    correct_norm(module, pairs, choices.variances or not is_fitted, block)
                continue
            assert isinstance(module, Fitted)
            norm = teacher.get_submodule(norm_of[stop.name]) if stop.name in norm_of else None
            float_layer = teacher.get_submodule(stop.name)
            fit = _LayerFit(module, float_layer, pairs, choices, norm, block)
            before, after = fit.run()
            if module.weight_quantizer is not None:
                fitted.add(stop.name)
            seconds = time.monotonic() - start
            rows.append(FittedLayer(stop.name, pairs.count, before, after, seconds))
        progress("layers", len(order), len(order))
    finally:
        pairs.close()
    return rows


class _LayerFit:
    """The fit of one layer, which all passes wait at."""

    def __init__(
        self, layer: Fitted, float_layer: nn.Module, pairs: Pairs, choices: Choices,
        norm: nn.Module | None, block: str | None,
    ) -> None:  # fmt: skip
        self.layer, self.float_layer = layer, float_layer
        self.pairs, self.choices = pairs, choices
        self.norm, self.block = norm, block

    def run(self) -> tuple[float, float]:
        """Fit it; the output errors before and after."""
        layer, choices = self.layer, self.choices
        if layer.input_quantizer is not None:
            self._fit_range(layer.input_quantizer)
        halves = self._moments()
        total = halves[0] + halves[1]
        has_shift = choices.norms and (self.norm is not None or layer.bias is not None)
        weight = self.float_layer.get_parameter("weight")
        damping = best_damping(halves, weight, has_shift) if choices.target else DAMPINGS[0]
        target = total.problem(weight, has_shift, damping).target() if choices.target else weight
        undamped = total.problem(weight, has_shift, 0.0)
        before = undamped.relative_error(layer.quantized_weight())
        if layer.weight_quantizer is not None and choices.codes:
            self._fit_weight(target, total.problem(weight, has_shift, total.uncertainty), undamped)
        if layer.bias is not None and choices.norms:
            layer.bias += total.shift(layer.quantized_weight()).to(layer.bias)
        return before, undamped.relative_error(layer.quantized_weight())

    def _moments(self) -> tuple[Moments, Moments]:
        """The sums over every other batch, and over the rest."""
        layer, halves = self.layer, [Moments.nothing(), Moments.nothing()]
        kernel = layer.weight[0].numel()
        for number, (x, y) in enumerate(self._samples()):
            every = thinning(kernel, y[0, 0].numel(), self.pairs.count)
            x = patches(layer, layer.quantized_input(x), every)
            halves[number % 2] += Moments.of(x, outputs(self.float_layer, y, every))
        return halves[0], halves[1]

    def _samples(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Inputs, and the outputs that are wanted for them, batch by batch."""
        if self.block is None:
            for x_float, x in self.pairs.inputs():
                yield x, self.float_layer(x_float)
            return
        assert isinstance(self.norm, BatchNorm)
        kept = self.pairs.kept(self.block)
        for (x_float, x), shortcut in zip(self.pairs.inputs(), kept, strict=True):
            yield x, self.float_layer(x_float) + repair(self.norm, *shortcut)

    def _fit_weight(self, target: Tensor, problem: Problem, undamped: Problem) -> None:
        layer, quantizer = self.layer, self.layer.weight_quantizer
        assert quantizer is not None
        before = {name: value.clone() for name, value in quantizer.state_dict().items()}
        weight = layer.weight.detach().clone()
        least = undamped.error(layer.quantized_weight()).sum()
        layer.weight.copy_(quantizer.fit(target, problem.H))
        if not undamped.error(layer.quantized_weight()).sum() < least:
            quantizer.load_state_dict(before)
            layer.weight.copy_(weight)

    def _fit_range(self, quantizer: InputQuantizer) -> None:
        """Observe all batches; then try narrower ranges, if the range is an observed one."""
        if not quantizer.is_learned:
            quantizer.reset()
        momentum = quantizer.momentum
        try:
            for count, (_, x) in enumerate(self.pairs.inputs(), start=1):
                quantizer.momentum = 1 / count
                quantizer.observe(x)
        finally:
            quantizer.momentum = momentum
        if not self.choices.ranges or not quantizer.scale_range(1.0):
            return
        errors, before = [], 1.0
        for share in SHARES:
            quantizer.scale_range(share / before)
            errors.append(self._range_error())
            before = share
        best = SHARES[errors.index(min(errors))]
        quantizer.scale_range(best / before)

    def _range_error(self) -> float:
        """What rounding and clipping the inputs do to the outputs of the float weight."""
        error = 0.0
        for batch, (_, x) in enumerate(self.pairs.inputs()):
            if batch == RANGE_BATCHES:
                break
            rounded = self.layer.quantized_input(x)
            error += float((self.float_layer(rounded) - self.float_layer(x)).square().sum())
        return error
