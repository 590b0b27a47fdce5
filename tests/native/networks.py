"""Five networks with random weights, small enough to be emulated, and what they must compute."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

import dbq

SIDE = 40  # odd sizes on the way down: 20, 10, 5, 3, 2
IMAGES = 3
NETWORKS: dict[str, tuple[str, dict[str, Any], str]] = {
    "mobilenet_v1-1.0": ("mobilenet_v1", {}, "dbq-2t-4"),
    "mobilenet_v1-0.25": ("mobilenet_v1", {"width": 0.25}, "dbq-1t-a8"),
    "mobilenet_v2-1.0": ("mobilenet_v2", {}, "dbq-2t-4"),
    "shufflenet_v2-1.0": ("shufflenet_v2", {}, "dbq-1t-a8"),
    "resnet20": ("resnet20", {}, "resnet-2t-a8"),
}


def write_network(name: str, directory: Path) -> Path:
    """The network as a .dbq file: random weights, calibrated on random images."""
    model_name, options, plan = NETWORKS[name]
    torch.manual_seed(0)
    model = dbq.create_model(model_name, **options)
    images = torch.rand(8, 3, SIDE, SIDE)
    dbq.prepare(model, plan, images[:1])
    dbq.calibrate(model, [images])
    program = dbq.lower(model.eval(), images, name=name)
    path = directory / f"{name}.dbq"
    dbq.save(program, path)
    return path


def noise_images(shape: tuple[int, int, int], count: int = IMAGES) -> npt.NDArray[np.uint8]:
    """The images of logits.cpp."""
    state, pixels = 1, np.empty(count * int(np.prod(shape)), np.uint8)
    for i in range(pixels.size):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        pixels[i] = state >> 56
    return pixels.reshape(count, *shape)


def hash_of(logits: npt.NDArray[np.float32]) -> str:
    """FNV-1a over the bits, as in logits.cpp."""
    value = 14695981039346656037
    for byte in logits.astype("<f4").tobytes():
        value = (value ^ byte) * 1099511628211 % 2**64
    return f"{value:016x}"
