"""Quantizing a network by the command line: float weights and a folder of images in, a deployed
file out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from dbq.data.views import MEAN, STD, resize_length
from dbq.deploy.program import Program
from dbq.experiments.photographs import read_images
from dbq.lowering.lower import lower
from dbq.networks.table import create_model, input_size
from dbq.posttraining.quantize import DEFAULT_MEMORY, EFFORTS, Budget, quantize
from dbq.posttraining.summary import Quantization
from dbq.support.progress import Progress, silent


@dataclass(frozen=True)
class Request:
    """What to quantize, and with what."""

    network: str
    weights: Path
    images: Path
    plan: str
    width: float = 1.0
    classes: int | None = None
    options: Mapping[str, Any] | None = None
    size: int | None = None
    mean: Sequence[float] = MEAN
    std: Sequence[float] = STD
    budget: Budget = "default"
    memory: int = DEFAULT_MEMORY
    seed: int = 0


def quantized_program(
    request: Request, progress: Progress = silent
) -> tuple[nn.Module, Quantization, Program]:
    """The quantized network, what was done, and the program that runs without torch."""
    model = create_model(
        request.network, num_classes=request.classes, width=request.width, weights=request.weights,
        **(request.options or {}),
    ).eval()  # fmt: skip
    side = request.size or input_size(model)
    images = read_images(
        request.images, side, request.mean, request.std, most=EFFORTS[request.budget].images,
        seed=request.seed, progress=progress,
    )  # fmt: skip
    done = quantize(
        model, request.plan, images, budget=request.budget, seed=request.seed,
        memory=request.memory, progress=progress,
    )  # fmt: skip
    name = f"{request.network} {done.plan}"
    program = lower(model, images, mean=request.mean, std=request.std, name=name, report=None)
    return model, done, program.with_facts(plan=done.plan, resize_length=resize_length(side))
