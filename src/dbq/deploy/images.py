"""Image files as the uint8 arrays a network reads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dbq.errors import DataError

if TYPE_CHECKING:
    from PIL.Image import Image as PillowImage

Pixels = npt.NDArray[np.uint8]  # [height, width, channels]
BILINEAR = 2  # PIL.Image.Resampling.BILINEAR, without importing pillow


def read_image(path: Path, shape: tuple[int, int, int], resize_length: int = 0) -> Pixels:
    """The image at `path` as uint8 [H, W, C], scaled and cropped at the centre.

    `resize_length` is what the shorter side became before the crop when the network was tested; if it is
    not given, the image is scaled to just cover `shape`. An image of the right size stays as it is.
    """
    require_pillow()
    from PIL import Image, ImageOps

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
    if wanted.size == (width, height):
        return np.asarray(wanted, np.uint8).reshape(shape)
    if resize_length and width == height:
        return centre_of_resized(wanted, resize_length, width).reshape(shape)
    return np.asarray(ImageOps.fit(wanted, (width, height), BILINEAR), np.uint8).reshape(shape)


def require_pillow() -> None:
    """Raise an error that says what to install where Pillow is missing."""
    try:
        import PIL.Image  # noqa: F401
    except ImportError:
        raise DataError("image files need Pillow: pip install 'dbq[images]'") from None


def centre_of_resized(image: PillowImage, length: int, side: int) -> Pixels:
    """The square in the middle of an image whose shorter side becomes `length`."""
    width, height = resized(image.size, length)
    left, top = round((width - side) / 2), round((height - side) / 2)
    whole = image.resize((width, height), BILINEAR)
    return np.asarray(whole.crop((left, top, left + side, top + side)), np.uint8)


def resized(size: tuple[int, int], length: int) -> tuple[int, int]:
    """Width and height after the shorter one has become `length`.

    >>> resized((500, 375), 256), resized((375, 500), 256)
    ((341, 256), (256, 341))
    """
    shorter = min(size)
    return int(size[0] * length / shorter), int(size[1] * length / shorter)
