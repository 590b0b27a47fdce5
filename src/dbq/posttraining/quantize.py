"""quantize: a float network, a plan and some images become a quantized network, without labels.

All work is done on copies. The user's model changes at the end, in one step, so that an error or Ctrl-C
leaves it as it was.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from dbq.errors import DbqError
from dbq.model.calibration import calibrate
from dbq.model.layers import QuantLayer
from dbq.model.preparation import Summary, prepare
from dbq.plans.plan import Plan
from dbq.posttraining.agreement import BATCH, Agreement, agreement, run
from dbq.posttraining.changes import changed_copies
from dbq.posttraining.distillation import distill
from dbq.posttraining.fitting.importance import Importance
from dbq.posttraining.fitting.layerwise import (
    EVERYTHING,
    Choices,
    FittedLayer,
    fit_layers,
    layer_importance,
)
from dbq.posttraining.images import gather_images
from dbq.posttraining.normalisation import check_normalised
from dbq.posttraining.summary import Quantization, QuantizedLayer, Stage
from dbq.support.interrupt import uninterrupted
from dbq.support.progress import Progress, silent

Budget = Literal["fast", "default", "best"]
HELD_OUT = 0.2  # of the images, to judge by
DEFAULT_MEMORY = 2 << 30
RANGE_IMAGES = 64  # for the ranges of the network as it is prepared


@dataclass(frozen=True)
class Effort:
    """How many images are used, how many steps distilled, and whether two fits are compared."""

    images: int
    steps: int
    both_fits: bool


EFFORTS: dict[str, Effort] = {
    "fast": Effort(images=160, steps=0, both_fits=False),
    "default": Effort(images=640, steps=0, both_fits=True),
    "best": Effort(images=1280, steps=600, both_fits=True),
}


def quantize(
    model: nn.Module,
    plan: Plan | str | Path,
    images: Any,
    *,
    budget: Budget = "default",
    steps: int | None = None,
    choices: Choices = EVERYTHING,
    seed: int = 0,
    memory: int = DEFAULT_MEMORY,
    progress: Progress = silent,
) -> Quantization:
    """Quantize a trained float `model` in place by `plan`, so that its outputs stay what they were.

    `images` are what the network sees in use, normalised: a tensor [N, C, H, W], batches (a
    DataLoader; labels are ignored), or what `dbq.read_images` makes of a folder. A fifth of them is
    held out: a stage that does not bring the network nearer to the float one on mirrored and shifted
    copies of them is undone. `steps` of distillation replace the budget's number; `memory` bounds the
    activations kept at a time, in bytes. The same seed gives the same network.

    >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(),
    ...                     nn.Conv2d(8, 8, 1), nn.Flatten(), nn.Linear(8 * 36, 10))
    >>> found = quantize(net, "dbq-2t-4", torch.randn(40, 3, 8, 8))
    >>> [(row.name, row.weight) for row in found.layers]
    [('0', '8b'), ('3', '2T'), ('5', '8b')]
    """
    if budget not in get_args(Budget):
        raise DbqError(f"no budget {budget!r}: expected {', '.join(get_args(Budget))}")
    effort = EFFORTS[budget]
    gathered = _shuffled(gather_images(images, effort.images), seed)
    held_out = max(4, round(HELD_OUT * len(gathered)))
    job = _Job(model, plan, gathered[:-held_out], gathered[-held_out:], seed)
    start = job.state()
    counts = job.importance(memory) if choices.importance and choices.codes else {}
    found: dict[Choices, list[FittedLayer]] = {}
    fitted: list[FittedLayer] = []

    def layers(chosen: Choices) -> None:
        job.student.load_state_dict(start)
        rows = fit_layers(job.teacher, job.student, job.images, chosen, memory, progress, counts)
        found[chosen] = rows

    def distillation() -> None:
        distill(job.teacher, job.student, job.images, count, seed=seed, progress=progress)

    for name, chosen in _fits(choices, effort).items():
        if job.stage(name, partial(layers, chosen)):
            fitted = found[chosen]
    count = effort.steps if steps is None else steps
    if count:
        job.stage("distillation", distillation)
    return job.finish(fitted)


def _fits(choices: Choices, effort: Effort) -> dict[str, Choices]:
    """The fits to compare on held-out images.

    Behind a fitted layer, variance is missing because some of the output could not be predicted.
    To scale it up restores the strength of what is left, and amplifies errors: networks differ in
    which is better.
    """
    fits = {"layers": choices}
    if effort.both_fits and choices.norms and choices.codes and choices.variances:
        fits["layers, means only"] = replace(choices, variances=False)
    return fits


def _shuffled(images: Tensor, seed: int) -> Tensor:
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
    return images[order.to(images.device)]


class _Job:
    """The copies, and the stages that change one of them."""

    def __init__(
        self,
        model: nn.Module,
        plan: Plan | str | Path,
        images: Tensor,
        held_out: Tensor,
        seed: int,
    ) -> None:
        self.model, self.plan, self.images, self.seed = model, plan, images, seed
        self.judged = changed_copies(held_out, BATCH, seed)
        self.teacher = copy.deepcopy(model).eval()
        self.student = copy.deepcopy(model).eval()
        self.prepared: Summary = prepare(self.student, plan, images[:1])
        # Complete before any stage: a network whose ranges nobody has seen has no outputs to judge by.
        calibrate(self.student, torch.split(images[:RANGE_IMAGES], BATCH), statistics="keep")
        self.wanted = run(self.teacher, self.judged)
        if not all(bool(torch.isfinite(x).all()) for x in self.wanted):
            raise DbqError("the float network's outputs are not finite on these images: check both")
        self.notes = (*self.prepared.notes, *check_normalised(self.teacher, images))
        self.agreement = self.measure()
        self.stages: list[Stage] = []

    def measure(self) -> Agreement:
        return agreement(self.wanted, run(self.student, self.judged))

    def importance(self, memory: int) -> dict[str, Importance]:
        """What errors of each layer do to the outputs; a network without gradients gets a note."""
        try:
            return layer_importance(self.teacher, self.student, self.images, memory, self.seed)
        except RuntimeError as error:
            reason = str(error).partition("\n")[0]
            self.notes += (f"all pixels count alike: no gradients in this network ({reason})",)
            return {}

    def state(self) -> dict[str, Tensor]:
        return {name: value.clone() for name, value in self.student.state_dict().items()}

    def stage(self, name: str, work: Callable[[], None]) -> bool:
        """Do the work; undo it if the network is no nearer to the float one on held-out images.

        True if it was kept.
        """
        start, before, state = time.monotonic(), self.agreement, self.state()
        work()
        after = self.measure()
        kept = after.distance < before.distance
        if kept:
            self.agreement = after
        else:
            self.student.load_state_dict(state)
        self.stages.append(Stage(name, before, after, kept, time.monotonic() - start))
        return kept

    def finish(self, fitted: list[FittedLayer]) -> Quantization:
        """Put the result into the user's model, wholly: Ctrl-C has to wait for it."""
        rows = self._rows({row.name: row for row in fitted})
        with uninterrupted():
            prepare(self.model, self.plan, self.images[:1], fit=False)
            self.model.load_state_dict(self.student.state_dict())
        return Quantization(
            self.prepared.plan, len(self.images), len(self.judged), tuple(rows),
            tuple(self.stages), self.notes,
        )  # fmt: skip

    @torch.no_grad()
    def _rows(self, fitted: dict[str, FittedLayer]) -> list[QuantizedLayer]:
        rows = []
        for row in self.prepared.layers:
            layer, fit = self.student.get_submodule(row.name), fitted.get(row.name)
            weight = self.teacher.get_submodule(row.name).get_parameter("weight")
            error = limit = None
            if isinstance(layer, QuantLayer) and layer.weight_quantizer is not None:
                difference = layer.quantized_weight() - weight
                error = float(difference.norm() / weight.norm().clamp(min=1e-30))
            if isinstance(layer, QuantLayer) and layer.input_quantizer is not None:
                grid = layer.input_quantizer.grid()
                limit = None if grid is None else grid.clip
            rows.append(
                QuantizedLayer(
                    row.name,
                    row.role,
                    row.shape,
                    row.weight,
                    row.input,
                    error,
                    fit.error_before if fit else None,
                    fit.error if fit else None,
                    limit,
                    fit.images if fit else 0,
                    fit.seconds if fit else 0.0,
                )
            )
        return rows
