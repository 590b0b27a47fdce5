"""Quantizing a network by the command line: float weights and a folder of images in, a deployed
file out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dbq.data.views import MEAN, STD, resize_length
from dbq.deploy.images import SUFFIXES, read_image
from dbq.deploy.program import Program
from dbq.errors import DataError, DbqError
from dbq.lowering.lower import lower
from dbq.model.pixels import normalise
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
    images = read_folder(request, side, progress)
    done = quantize(
        model, request.plan, images, budget=request.budget, seed=request.seed,
        memory=request.memory, progress=progress,
    )  # fmt: skip
    name = f"{request.network} {done.plan}"
    program = lower(model, images, mean=request.mean, std=request.std, name=name, report=None)
    return model, done, program.with_facts(plan=done.plan, resize_length=resize_length(side))


def read_folder(request: Request, side: int, progress: Progress = silent) -> Tensor:
    """Images of a folder and its subfolders, normalised: as many as the budget uses, chosen by seed."""
    if len(request.mean) != 3 or len(request.std) != 3 or min(request.std) <= 0:
        raise DbqError("mean and std are three numbers each, for red, green and blue; std over 0")
    paths = _files(request.images)
    most = EFFORTS[request.budget].images
    order = torch.randperm(len(paths), generator=torch.Generator().manual_seed(request.seed))
    chosen = [paths[i] for i in order[:most].tolist()]
    pixels = np.empty((len(chosen), side, side, 3), np.uint8)
    for done, path in enumerate(chosen):
        progress("images", done, len(chosen))
        pixels[done] = read_image(path, (side, side, 3), resize_length(side))
    progress("images", len(chosen), len(chosen))
    return normalise(torch.from_numpy(pixels).permute(0, 3, 1, 2), request.mean, request.std)


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder of images")
    found = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES)
    if not found:
        raise DataError(f"{folder}: no image in this folder; expected files {', '.join(SUFFIXES)}")
    return found
