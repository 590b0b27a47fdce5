"""Short distillation: the quantized network learns the float network's features and outputs.

The forward pass is that of the deployed network, with hard codes; only the gradient takes the soft
steps. So the first step starts from what was fitted before, and what is minimised is what will
run. Batch norms keep their statistics, ranges stay.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from dbq.model.layers import QuantLayer
from dbq.model.schedule import soft_quantizers
from dbq.posttraining.agreement import divergence, is_classifier, relative_errors, tensors_of
from dbq.posttraining.changes import changed_batches, usable_part
from dbq.posttraining.fitting.residuals import blocks
from dbq.posttraining.fitting.trust import trust
from dbq.quantizers.contract import WeightQuantizer
from dbq.quantizers.dbq.branch import BranchQuantizer
from dbq.quantizers.tensors import straight_through
from dbq.support.progress import Progress, silent

BATCH = 32
RATE, MOMENTUM = 0.005, 0.9
WARMUP = 10  # steps in which the rate rises
LARGEST_GRADIENT = 5.0
TEMPERATURE = 60.0  # of the soft steps that the gradient takes: steeper ones move few codes
SOFTENED = 2.0  # temperature of the class probabilities


class HardForward(nn.Module):
    """A weight quantizer whose value is the hard one and whose gradient is that of training."""

    def __init__(self, quantizer: WeightQuantizer) -> None:
        super().__init__()
        self.quantizer = quantizer

    def forward(self, weight: Tensor) -> Tensor:
        with torch.no_grad():
            hard = self.quantizer.eval()(weight)
        return straight_through(self.quantizer.train()(weight), hard)


@contextmanager
def hard_forward(model: nn.Module) -> Iterator[None]:
    """Inside the block all weight quantizers of the model are `HardForward`."""
    layers = [
        (module, module.weight_quantizer)
        for module in model.modules()
        if isinstance(module, QuantLayer) and module.weight_quantizer is not None
    ]
    try:
        for layer, quantizer in layers:
            layer._modules["weight_quantizer"] = HardForward(quantizer)
        yield
    finally:
        for layer, quantizer in layers:
            layer._modules["weight_quantizer"] = quantizer.train(layer.training)


@contextmanager
def features(model: nn.Module, names: list[str]) -> Iterator[dict[str, Tensor]]:
    """The outputs of these modules in the latest pass, those that are tensors."""
    found: dict[str, Tensor] = {}

    def keep(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            if isinstance(output, Tensor):
                found[name] = output

        return hook

    handles = [model.get_submodule(n).register_forward_hook(keep(n)) for n in names]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def distill(
    teacher: nn.Module,
    student: nn.Module,
    images: Tensor,
    steps: int,
    *,
    rate: float = RATE,
    seed: int = 0,
    progress: Progress = silent,
) -> None:
    """Train `student` in place for a number of steps."""
    # Ratios of branches were fitted as they are deployed; their common scale, gamma_2, is trained.
    ratios = {m.alpha for m in student.modules() if isinstance(m, BranchQuantizer)}
    trained = [p for p in student.parameters() if p.requires_grad and p not in ratios]
    optimizer = torch.optim.SGD(trained, rate, momentum=MOMENTUM)
    for quantizer in soft_quantizers(student):
        assert quantizer.temperature is not None
        quantizer.temperature.fill_(TEMPERATURE)
    names = blocks(teacher)
    batches = changed_batches(images, BATCH, seed, usable_part(teacher, images))
    student.eval()
    with features(teacher, names) as wanted, features(student, names) as got:
        for step in range(steps):
            progress("distillation", step, steps)
            share = rate / 2 * (1 + math.cos(math.pi * step / steps))
            optimizer.param_groups[0]["lr"] = share * min(1.0, (step + 1) / WARMUP)
            batch = next(batches)
            with torch.no_grad():
                outputs = tensors_of(teacher(batch))
            with hard_forward(student):
                loss = _loss(tensors_of(student(batch)), outputs, got, wanted)
                optimizer.zero_grad()
                torch.autograd.backward(loss)
            nn.utils.clip_grad_norm_(trained, LARGEST_GRADIENT)
            optimizer.step()
    progress("distillation", steps, steps)


def _loss(
    outputs: list[Tensor], targets: list[Tensor], got: dict[str, Tensor], wanted: dict[str, Tensor]
) -> Tensor:
    of_blocks = relative_errors(got, wanted, _trusted_pixels)
    loss = sum(of_blocks, torch.zeros((), device=outputs[0].device))
    if is_classifier(targets):
        return loss + divergence(outputs[0], targets[0], SOFTENED)
    ours, theirs = ({str(i): x for i, x in enumerate(each)} for each in (outputs, targets))
    return loss + sum(relative_errors(ours, theirs))


def _trusted_pixels(got: Tensor, wanted: Tensor) -> Tensor | float:
    """As in a fit: pixels that are far off count less."""
    return trust(got, wanted).unsqueeze(1) if wanted.ndim == 4 else 1.0
