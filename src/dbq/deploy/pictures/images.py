"""Image files as the uint8 arrays a network reads: one reader for training, tests and `dbq run`.

Every kind of file becomes 8-bit RGB, or 8-bit grey where the network reads one channel:

| Pillow mode           | pixels                                                                     |
|-----------------------|----------------------------------------------------------------------------|
| 1                     | 0 and 255                                                                  |
| L, P, RGB             | as they are; the palette is looked up                                      |
| LA, RGBA, transparency| laid on white, as browsers and viewers show them                           |
| CMYK                  | red = (255 - cyan) (255 - black) / 255, the others alike; no colour profile|
| I;16, I               | the high byte of 16 bits, as Pillow reads 16-bit colour; refused if outside|
| F                     | 255 times the value, rounded; refused unless all are from 0 to 1           |

The camera's orientation (EXIF) is applied. Of an animation, the first frame counts. Sizes are checked
before anything is decoded.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dbq.errors import DataError, first_line
from dbq.support.facts import fact, wrong_fact
from dbq.support.regular import why_unreadable

if TYPE_CHECKING:
    from PIL.Image import Image as PillowImage
    from PIL.Image import Transpose

Pixels = npt.NDArray[np.uint8]  # [height, width, channels]
BILINEAR = 2  # PIL.Image.Resampling.BILINEAR, without importing pillow
MOST_PIXELS = 2**27  # half a gigabyte in memory: more than the 108 million of a telephone's camera
LARGEST_RATIO = 100  # of the longer side to the shorter one
SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
ORIENTATION = 0x0112  # the EXIF tag
UPRIGHT = {
    2: 0,
    3: 3,
    4: 1,
    5: 5,
    6: 4,
    7: 6,
    8: 2,
}  # its values: PIL.Image.Transpose that undoes them


class UnreadableImageError(Exception):
    """A file that cannot be decoded; the message is the reason, without the file's name."""


def read_image(
    path: str | os.PathLike[str], shape: tuple[int, int, int], resize_length: int = 0
) -> Pixels:
    """The image at `path` as uint8 [H, W, C], scaled and cropped at the centre.

    `resize_length` is what the shorter side became before the crop when the network was tested, also of
    images that had the right size. If it is not given, the image is scaled to just cover `shape`.
    """
    require_pillow()
    try:
        return _fitted(decode(path), shape, resize_length)
    except UnreadableImageError as error:
        raise DataError(f"cannot read {path}: {error}") from None


def fit_pixels(image: npt.ArrayLike, shape: tuple[int, int, int], resize_length: int = 0) -> Pixels:
    """uint8 pixels [H, W, C] or [H, W], scaled and cropped as those of a file, but for pixels of just
    the right shape: somebody has done that before."""
    pixels = np.asarray(image)
    if pixels.dtype == np.uint8 and pixels.shape == shape:
        return pixels
    grey = pixels.ndim == 2 or pixels.shape[2:] == (1,)
    if pixels.dtype != np.uint8 or not pixels.size or not (grey or pixels.shape[2:] == (3,)):
        raise DataError(
            f"an image of {pixels.dtype} {list(pixels.shape)}; expected uint8 [H, W, 3] or [H, W]"
        )
    require_pillow()
    from PIL import Image

    picture = Image.fromarray(pixels.reshape(pixels.shape[:2]) if grey else pixels)
    try:
        _check_size(*picture.size)
        return _fitted(picture.convert("RGB"), shape, resize_length)
    except UnreadableImageError as error:
        raise DataError(f"cannot use an array as an image: {error}") from None


def resize_rule(facts: Mapping[str, Any], shape: tuple[int, int, int]) -> int:
    """The `resize_length` that a file's facts give for images of `shape`; 0 if they give none."""
    length, side = fact(facts, "resize_length", int, 0), max(shape[:2])
    if length and not side <= length <= 4 * side:
        raise wrong_fact(facts, "resize_length", f"{side} to {4 * side}")
    return length


def _fitted(image: PillowImage, shape: tuple[int, int, int], resize_length: int) -> Pixels:
    from PIL import ImageOps

    height, width, channels = shape
    if channels not in (1, 3):
        raise DataError(f"the network reads {channels} channels; image files have 1 or 3")
    if channels == 1:
        image = image.convert("L")
    if resize_length and width == height:
        return centre_of_resized(image, resize_length, width).reshape(shape)
    if image.size != (width, height):
        image = ImageOps.fit(image, (width, height), BILINEAR)
    return np.asarray(image, np.uint8).reshape(shape)


def images_in(path: Path) -> list[Path]:
    """The image files in a folder, by name; of any other path, the path itself."""
    if not path.is_dir():
        return [path]
    try:
        found = sorted(file for file in path.iterdir() if file.suffix.lower() in SUFFIXES)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from None
    if not found:
        raise DataError(f"{path}: no image in this folder; expected files {', '.join(SUFFIXES)}")
    return found


def require_pillow() -> None:
    """Raise an error that says what to install where Pillow is missing."""
    try:
        import PIL.Image  # noqa: F401
    except ImportError:
        raise DataError("image files need Pillow: pip install 'dbq[run]'") from None


def decode(source: str | os.PathLike[str] | IO[bytes], at_least: int = 0) -> PillowImage:
    """An image as upright RGB, by the conversions at the top of this file.

    With `at_least`, a JPEG may be decoded at a half, quarter or eighth of its size, which is faster, as
    long as its shorter side keeps that many pixels.
    """
    from PIL import Image, UnidentifiedImageError

    reason = why_unreadable(source) if isinstance(source, str | os.PathLike) else ""
    if reason:
        raise UnreadableImageError(reason)
    try:
        with Image.open(source) as image:
            _check_size(*image.size)
            if at_least:
                factor = at_least / min(image.size)
                image.draft(
                    None, (math.ceil(image.width * factor), math.ceil(image.height * factor))
                )
            image.load()
            return upright_rgb(image)
    except UnidentifiedImageError:
        raise UnreadableImageError("not an image") from None
    except (MemoryError, UnreadableImageError):
        raise
    except Exception as error:  # decoders raise nearly anything on a damaged file
        raise UnreadableImageError(getattr(error, "strerror", None) or first_line(error)) from None


def upright_rgb(image: PillowImage) -> PillowImage:
    """An open image by the conversions at the top of this file."""
    turn, rgb = _turn(image), _rgb(image)
    return rgb if turn is None else rgb.transpose(turn)


def _check_size(width: int, height: int) -> None:
    if width * height > MOST_PIXELS:
        raise UnreadableImageError(f"{width}x{height} pixels, over {MOST_PIXELS:,} in all")
    if max(width, height) > LARGEST_RATIO * min(width, height):
        raise UnreadableImageError(f"{width}x{height} pixels, sides over {LARGEST_RATIO} to 1")


def _turn(image: PillowImage) -> Transpose | None:
    """What makes it upright, if it is not."""
    from PIL.Image import Transpose

    try:
        return Transpose(UPRIGHT[image.getexif()[ORIENTATION]])
    except Exception:  # no tag, or damaged ones on a sound image
        return None


def _rgb(image: PillowImage) -> PillowImage:
    from PIL import Image

    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        image = Image.fromarray(_eight_bits(np.asarray(image)))
    if image.has_transparency_data:
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image.convert("RGBA"))
    return image if image.mode == "RGB" else image.convert("RGB")


def _eight_bits(values: npt.NDArray[Any]) -> Pixels:
    """Grey of more than 8 bits. Where no rule says what white is, a guess could be wrong: refuse."""
    white = 1 if values.dtype.kind == "f" else 2**16 - 1
    if not ((values >= 0) & (values <= white)).all():  # NaN is not
        raise UnreadableImageError(f"{values.dtype} pixels outside 0 to {white}")
    codes: npt.NDArray[Any] = np.rint(values * 255) if white == 1 else values >> 8
    return codes.astype(np.uint8)


def centre_of_resized(image: PillowImage, length: int, side: int) -> Pixels:
    """The square in the middle of an image whose shorter side becomes `length`.

    The whole image is resized: to cut first would round differently in a few pixels.
    """
    width, height = resized(image.size, length)
    _check_size(width, height)
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
