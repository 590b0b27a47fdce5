"""Image files as the uint8 arrays a network reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from dbq.errors import DataError


def read_image(path: Path, shape: tuple[int, int, int]) -> npt.NDArray[np.uint8]:
    """The image at `path` as uint8 [H, W, C], scaled to cover `shape` and cropped at the centre."""
    try:
        from PIL import Image, ImageOps
    except ImportError:
        raise DataError("image files need Pillow: pip install 'dbq[images]'") from None
    height, width, channels = shape
    if channels not in (1, 3):
        raise DataError(f"the network reads {channels} channels; image files have 1 or 3")
    try:
        with Image.open(path) as image:
            wanted = image.convert("RGB" if channels == 3 else "L")
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        raise DataError(f"{path}: not a readable image ({error})") from None
    if wanted.size != (width, height):
        wanted = ImageOps.fit(wanted, (width, height), Image.Resampling.BILINEAR)
    return np.asarray(wanted, np.uint8).reshape(shape)
