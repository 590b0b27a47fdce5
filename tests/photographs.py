"""Photographs for the tests: small images that differ in every pixel's neighbourhood."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image


def write_photograph(path: Path, width: int = 60, height: int = 45, seed: int = 0) -> Path:
    """A smooth random colour image, in the format of the path's suffix."""
    path.parent.mkdir(parents=True, exist_ok=True)
    coarse = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC).save(path)
    return path
