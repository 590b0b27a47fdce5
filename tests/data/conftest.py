"""Photographs for the tests: small JPEGs that differ in every pixel's neighbourhood."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

Photograph = Callable[..., Path]


@pytest.fixture
def photograph() -> Photograph:
    """Writes a smooth random colour image to a path, in the format of its suffix."""

    def write(path: Path, width: int = 60, height: int = 45, seed: int = 0) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        coarse = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), dtype=np.uint8)
        Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC).save(path)
        return path

    return write
