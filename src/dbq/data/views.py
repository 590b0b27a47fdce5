"""How an image file becomes the pixels a network sees: the two views of He et al. (2016).

Training: shorter side resized to a random length in [256, 480], a random 224x224 crop, half of them
mirrored. Testing: shorter side 256, the centre crop. For other crops than 224 these lengths scale.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dbq.deploy.pictures.images import BILINEAR, Pixels, centre_of_resized, decode, resized

if TYPE_CHECKING:
    from PIL.Image import Image

CROP, TEST_LENGTH, TRAIN_LENGTHS = 224, 256, (256, 480)
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # over ImageNet's training images


def random_view(
    source: str | Image, side: int, rng: np.random.Generator, flip: bool = True
) -> Pixels:
    """A random view of a file, or of an upright RGB image; `rng` alone decides which."""
    low, high = (scaled(length, side) for length in TRAIN_LENGTHS)
    length = int(rng.integers(low, high, endpoint=True))
    image = decode(source, at_least=length) if isinstance(source, str) else source
    width, height = resized(image.size, length)
    left, top = int(rng.integers(width - side + 1)), int(rng.integers(height - side + 1))
    pixels = crop_of_resized(image, length, (left, top), side)
    return pixels[:, ::-1] if flip and rng.random() < 0.5 else pixels


def centre_view(source: str | Image, side: int) -> Pixels:
    """The centre crop of the whole image resized: bit for bit what other systems are measured on."""
    image = decode(source) if isinstance(source, str) else source
    return centre_of_resized(image, resize_length(side), side)


def resize_length(side: int) -> int:
    """Length of the shorter side before a square of `side` is cut from the centre."""
    return scaled(TEST_LENGTH, side)


def scaled(length: int, side: int) -> int:
    """Scale a length given for crops of 224 to crops of `side`.

    >>> scaled(256, 224), scaled(480, 96)
    (256, 206)
    """
    return round(length * side / CROP)


def crop_of_resized(image: Image, length: int, corner: tuple[int, int], side: int) -> Pixels:
    """The square at `corner` of the image resized to a shorter side of `length`.

    Only the square is computed, at a fraction of the cost; rounding may differ from the whole's.
    """
    (left, top), (old_width, old_height) = corner, image.size
    new_width, new_height = resized(image.size, length)
    box = (
        left * old_width / new_width,
        top * old_height / new_height,
        (left + side) * old_width / new_width,
        (top + side) * old_height / new_height,
    )
    return np.asarray(image.resize((side, side), BILINEAR, box))
