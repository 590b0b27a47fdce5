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
from dbq.posttraining.residuals import blocks
from dbq.quantizers.contract import WeightQuantizer
from dbq.quantizers.tensors import straight_through
from dbq.support.progress import Progress, silent

BATCH = 32
RATE, MOMENTUM = 0.002, 0.9
WARMUP = 10  # steps in which the rate rises
LARGEST_GRADIENT = 5.0
TEMPERATURE = 50.0  # of the soft steps that the gradient takes
LARGEST_SHIFT = 8  # an image is shifted by at most this fraction of its sides
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
    judge: Callable[[], None] = lambda: None,
    every: int = 50,
    progress: Progress = silent,
) -> None:
    """Train `student` in place for a number of steps; `judge` is called after every so many of them."""
    trained = [p for p in student.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(trained, rate, momentum=MOMENTUM)
    for quantizer in soft_quantizers(student):
        assert quantizer.temperature is not None
        quantizer.temperature.fill_(TEMPERATURE)
    names = blocks(teacher)
    batches = _batches(images, seed)
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
            if (step + 1) % every == 0 or step + 1 == steps:
                judge()
    progress("distillation", steps, steps)


def _loss(
    outputs: list[Tensor], targets: list[Tensor], got: dict[str, Tensor], wanted: dict[str, Tensor]
) -> Tensor:
    loss = sum(relative_errors(got, wanted), torch.zeros((), device=outputs[0].device))
    if is_classifier(targets):
        return loss + divergence(outputs[0], targets[0], SOFTENED)
    by_number = [{str(i): x for i, x in enumerate(tensors)} for tensors in (outputs, targets)]
    return loss + sum(relative_errors(*by_number))


def _batches(images: Tensor, seed: int) -> Iterator[Tensor]:
    """Random batches, each image once before any comes again; half of them mirrored, all shifted.

    A float network is sure of the images it was trained on, and says more about changed ones.
    """
    generator = torch.Generator().manual_seed(seed)
    size = min(BATCH, len(images))
    while True:
        order = torch.randperm(len(images), generator=generator)
        for chosen in torch.split(order, size):
            if len(chosen) == size:
                x = images[chosen.to(images.device)]
                yield _changed(x, generator) if x.ndim == 4 else x


def _changed(x: Tensor, generator: torch.Generator) -> Tensor:
    mirrored = torch.rand(len(x), generator=generator) < 0.5
    x = torch.where(mirrored.to(x.device).reshape(-1, 1, 1, 1), x.flip(3), x)
    height, width = x.shape[2:]
    down, right = height // LARGEST_SHIFT, width // LARGEST_SHIFT
    top = int(torch.randint(2 * down + 1, (), generator=generator))
    left = int(torch.randint(2 * right + 1, (), generator=generator))
    padded = nn.functional.pad(x, (right, right, down, down), mode="replicate")
    return padded[:, :, top : top + height, left : left + width].contiguous()
