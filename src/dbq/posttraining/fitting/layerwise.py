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

from dbq.model.layers import QuantLayer
from dbq.model.roles import WeightLayer, kernels_of
from dbq.posttraining.fitting.importance import Importance, importance
from dbq.posttraining.fitting.moments import (
    DAMPINGS,
    Moments,
    Problem,
    at_samples,
    best_damping,
    outputs,
    patches,
    thinning,
    trusted,
)
from dbq.posttraining.fitting.pairs import Pairs, Stop, correct_norm, execution_order
from dbq.posttraining.fitting.products import is_its_product
from dbq.posttraining.fitting.residuals import find_residuals, repair
from dbq.quantizers.contract import BatchNorm, InputQuantizer
from dbq.support.progress import Progress, silent

BATCH = 8  # images of a pass
FEWEST = 16  # images that even the first layers see
LIVE = 8  # tensors of the size of a layer's input that are alive for an image, in both networks
SHARES = (1.0, 0.85, 0.7, 0.55, 0.4)  # of the largest input seen: where to clip
RANGE_BATCHES = 4  # batches on which clips are compared


@dataclass(frozen=True)
class Choices:
    """Which parts of the fit are made; what is not made stays as `prepare` left it."""

    ranges: bool = True  # where inputs without a batch norm are clipped
    codes: bool = True  # codes and scales by output error
    target: bool = True  # ask for the float output, and not for that of the float weight
    shortcuts: bool = True  # let the last layer of a residual block repair its shortcut
    variances: bool = True  # of batch norms behind fitted layers, as well as their means
    norms: bool = True  # batch norms by pairs, biases where there is none
    importance: bool = True  # pixels count by what the network's outputs make of them
    together: bool = True  # and a layer's channels make up for each other's errors


EVERYTHING = Choices()


@dataclass(frozen=True)
class FittedLayer:
    """What fitting did to a layer.

    Output errors are mean squares relative to the float output's, of places and channels as they count.
    """

    name: str
    images: int
    error_before: float
    error: float
    seconds: float


def layer_importance(
    teacher: nn.Module, student: nn.Module, images: Tensor, memory: int, seed: int
) -> dict[str, Importance]:
    """What errors of each layer's output do, for the images that `fit_layers` will use."""
    modules, order = dict(student.named_modules()), _order(teacher, student, images)
    counts = {
        stop.name: _images_for(order, index, memory)
        for index, stop in enumerate(order)
        if isinstance(modules[stop.name], QuantLayer)
    }
    return importance(teacher, images, counts, BATCH, seed)


def _order(teacher: nn.Module, student: nn.Module, images: Tensor) -> list[Stop]:
    """Where both networks wait: quantized layers and batch norms."""
    modules = student.named_modules()
    wanted = {name for name, m in modules if isinstance(m, QuantLayer | BatchNorm)}
    return execution_order(teacher, images[:1], wanted)


def _images_for(order: list[Stop], index: int, memory: int) -> int:
    """How many images may be under way from a stop on."""
    largest = max(later.bytes_per_image for later in order[index:])
    return max(FEWEST, memory // (LIVE * largest))


@torch.no_grad()
def fit_layers(
    teacher: nn.Module,
    student: nn.Module,
    images: Tensor,
    choices: Choices = EVERYTHING,
    memory: int = 2 << 30,
    progress: Progress = silent,
    importance: dict[str, Importance] | None = None,
) -> list[FittedLayer]:
    """Fit the quantized layers of `student` in the order they run; `teacher` is the float network.

    `memory` bounds the activations that are alive at the same time, in bytes. `importance` is what
    `layer_importance` found; without it pixels of a layer count alike, and its kernels each for itself.
    """
    modules, order = dict(student.named_modules()), _order(teacher, student, images)
    counting = importance if importance is not None and choices.importance else {}
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
            pairs.move_to(index, _images_for(order, index, memory))
            module, block = modules[stop.name], block_of.get(stop.name)
            if isinstance(module, BatchNorm):
                if choices.norms and module.track_running_stats:
                    is_fitted = choices.codes and stop.corrects in fitted
                    correct_norm(module, pairs, choices.variances or not is_fitted, block)
                continue
            assert isinstance(module, QuantLayer)
            norm = teacher.get_submodule(norm_of[stop.name]) if stop.name in norm_of else None
            float_layer = teacher.get_submodule(stop.name)
            if not is_its_product(float_layer, pairs.passes[0][0].input):
                continue  # its class does something to the output: it stays as `prepare` left it
            importance_here = counting.get(stop.name)
            fit = _LayerFit(module, float_layer, pairs, choices, norm, block, importance_here)
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
        self, layer: QuantLayer, float_layer: nn.Module, pairs: Pairs, choices: Choices,
        norm: nn.Module | None, block: str | None, importance: Importance | None,
    ) -> None:  # fmt: skip
        self.layer, self.float_layer = layer, float_layer
        self.pairs, self.choices = pairs, choices
        self.norm, self.block, self.importance = norm, block, importance
        self.together: Tensor | None = None  # what errors of different kernels do together
        if importance is not None and choices.together and getattr(float_layer, "groups", 1) == 1:
            self.together = importance.channels

    def run(self) -> tuple[float, float]:
        """Fit it; the output errors before and after."""
        layer, choices = self.layer, self.choices
        if layer.input_quantizer is not None:
            self._fit_range(layer.input_quantizer)
        halves = self._moments()
        total = halves[0] + halves[1]
        has_shift = choices.norms and (self.norm is not None or layer.bias is not None)
        assert isinstance(self.float_layer, WeightLayer)
        weight = kernels_of(self.float_layer)
        damping = best_damping(halves, weight, has_shift) if choices.target else DAMPINGS[0]
        target = total.problem(weight, has_shift, damping).target() if choices.target else weight
        undamped = total.problem(weight, has_shift, 0.0)
        before = undamped.relative_error(layer.quantized_kernels(), self.together)
        if layer.weight_quantizer is not None and choices.codes:
            self._fit_weight(target, total.problem(weight, has_shift, total.uncertainty), undamped)
        if layer.bias is not None and choices.norms:
            assert isinstance(layer.bias, Tensor)
            layer.bias += total.shift(layer.quantized_kernels()).to(layer.bias)
        return before, undamped.relative_error(layer.quantized_kernels(), self.together)

    def _moments(self) -> tuple[Moments, Moments]:
        """The sums over every other batch, and over the rest."""
        layer, halves = self.layer, [Moments.nothing(), Moments.nothing()]
        kernel = layer.kernels()[0].numel()
        for number, (x, y) in enumerate(self._samples()):
            every = thinning(kernel, y[0, 0].numel(), self.pairs.count)
            x = layer.quantized_input(x)
            weight = trusted(self.float_layer, x, y, every)
            if self.importance is not None:
                counts = self.importance.places[number * BATCH : number * BATCH + len(y)]
                weight = weight * at_samples(self.float_layer, counts, every)
            x = patches(self.float_layer, x, every)
            halves[number % 2] += Moments.of(x, outputs(self.float_layer, y, every), weight)
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
        kernels = layer.kernels().detach().clone()
        least = undamped.error(layer.quantized_kernels(), self.together)
        layer.set_kernels(quantizer.fit(target, problem.H, self.together))
        if not undamped.error(layer.quantized_kernels(), self.together) < least:
            quantizer.load_state_dict(before)
            layer.set_kernels(kernels)

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
