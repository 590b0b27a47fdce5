"""What a network sees of an image file, against pillow resizing the whole image."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dbq.data import views
from dbq.data.views import centre_view, crop_of_resized, random_view
from dbq.deploy.pictures.images import UnreadableImageError, decode, require_pillow, resized
from dbq.errors import DataError
from tests.photographs import write_photograph

BILINEAR = Image.Resampling.BILINEAR
# Pillow resizes rows, rounds, then columns, and rounds. Positions that differ in the last bit of a
# float can turn either rounding, so 2 is possible, and rare.
ROUNDING, RARE = 2, 0.01


def square(image: Image.Image, length: int, left: int, top: int, side: int) -> np.ndarray:
    """Plainly: resize everything, then cut."""
    whole = image.resize(resized(image.size, length), BILINEAR)
    return np.asarray(whole.crop((left, top, left + side, top + side)))


def difference(a: np.ndarray, b: np.ndarray) -> int:
    assert a.shape == b.shape
    return int(np.abs(a.astype(int) - b.astype(int)).max())


@pytest.mark.parametrize("size", [(500, 375), (375, 500), (100, 90), (224, 224), (1, 7)])
def test_crop_of_resized(tmp_path: Path, size: tuple[int, int]) -> None:
    image = decode(str(write_photograph(tmp_path / "a.png", *size)))
    for length in (256, 311, 480):
        width, height = resized(size, length)
        assert min(width, height) == length
        for left, top in [(0, 0), (width - 224, height - 224), (width // 5, height // 7)]:
            if left + 224 <= width and top + 224 <= height:
                ours = crop_of_resized(image, length, (left, top), 224)
                plain = square(image, length, left, top, 224)
                assert difference(ours, plain) <= ROUNDING
                assert (ours != plain).mean() <= RARE


def test_centre(tmp_path: Path) -> None:
    path = write_photograph(tmp_path / "a.jpg", 500, 375)
    with Image.open(path) as image:
        expected = square(image, 256, 58, (256 - 224) // 2, 224)
    assert np.array_equal(centre_view(str(path), 224), expected)
    half = centre_view(str(path), 112)
    with Image.open(path) as image:
        assert np.array_equal(half, square(image, 128, (170 - 112) // 2, 8, 112))


def test_random_views_are_crops_within_the_stated_range(tmp_path: Path) -> None:
    """An image whose red is its column and green its row: a view shows where it was cut."""
    width, height, side = 250, 200, 224
    ramp = np.zeros((height, width, 3), dtype=np.uint8)
    ramp[..., 0], ramp[..., 1] = np.arange(width), np.arange(height)[:, None]
    Image.fromarray(ramp).save(tmp_path / "ramp.png")
    lengths, mirrored, corners = [], 0, set()
    for seed in range(200):
        view = random_view(str(tmp_path / "ramp.png"), side, np.random.default_rng(seed))
        assert view.shape == (side, side, 3)
        columns, rows = view[5, :, 0].astype(int), view[:, 5, 1].astype(int)
        if columns[-1] < columns[0]:
            mirrored, columns = mirrored + 1, columns[::-1]
        step = (rows[-20] - rows[20]) / (side - 40)  # original pixels a pixel: 200 / length
        lengths.append(height / step)
        corners.add((int(columns[0]), int(rows[0])))
        assert columns[-1] <= width - 1
    # the slope is of whole numbers 184 apart: off by 1 in at least 76 of them
    assert 250 < min(lengths) < 275
    assert 455 < max(lengths) < 490
    assert abs(np.mean(lengths) - 368) < 20  # the mean of 200 uniform draws has deviation 4.6
    assert 60 < mirrored < 140  # 100 ± 5.7 standard deviations
    assert len(corners) > 150


def test_both_ends_of_the_range_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, asked = str(write_photograph(tmp_path / "a.png")), set()

    def note(source: str, at_least: int) -> Image.Image:
        asked.add(at_least)
        return decode(source)

    monkeypatch.setattr(views, "decode", note)
    for seed in range(200):  # of 8 lengths: one is left out with probability 8 * 0.875**200 = 2e-11
        random_view(path, 7, np.random.default_rng(seed))
    assert asked == set(range(8, 16))  # 7/224 of [256, 480]


def test_a_large_jpeg_is_decoded_smaller_but_not_too_small(tmp_path: Path) -> None:
    path = str(write_photograph(tmp_path / "a.jpg", 1600, 1200))
    assert decode(path).size == (1600, 1200)
    assert decode(path, at_least=300).size == (400, 300)
    assert decode(path, at_least=301).size == (800, 600)
    assert decode(path, at_least=700).size == (1600, 1200)
    exact = np.asarray(decode(path).resize((400, 300), Image.Resampling.BOX)).astype(int)
    # a smooth image: averaging 4x4 pixels before or after decoding is nearly the same
    assert np.abs(np.asarray(decode(path, at_least=300)) - exact).mean() < 2


@pytest.mark.parametrize("mode", ["L", "CMYK", "P", "RGBA", "1"])
def test_every_mode_becomes_rgb(tmp_path: Path, mode: str) -> None:
    path = tmp_path / ("a.jpg" if mode == "CMYK" else "a.png")
    Image.new("RGB", (30, 20), (255, 255, 255)).convert(mode).save(path)
    view = centre_view(str(path), 8)
    assert view.shape == (8, 8, 3)
    assert view.min() == 255


def test_reasons(tmp_path: Path) -> None:
    with pytest.raises(UnreadableImageError, match=r"^No such file or directory$"):
        decode(str(tmp_path / "none.jpg"))
    (tmp_path / "text.jpg").write_text("hello")
    with pytest.raises(UnreadableImageError, match=r"^not an image$"):
        decode(str(tmp_path / "text.jpg"))
    whole = write_photograph(tmp_path / "whole.jpg", 300, 200)
    (tmp_path / "half.jpg").write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    with pytest.raises(UnreadableImageError, match="truncated"):
        decode(str(tmp_path / "half.jpg"))


def test_without_pillow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(DataError, match=r"Pillow.*dbq\[run\]"):
        require_pillow()
