"""Every kind of image file as pixels worked out by hand, and files that must be refused at once."""

from __future__ import annotations

import os
import struct
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from dbq.data.files.file_split import FileSplit
from dbq.data.options import DataOptions
from dbq.data.views import centre_view, random_view
from dbq.deploy.pictures import images
from dbq.deploy.pictures.images import fit_pixels, images_in, read_image
from dbq.errors import DataError
from tests.photographs import write_photograph


def seen(path: Path, height: int, width: int, channels: int = 3) -> list[object]:
    """The pixels that the reader gives for a file of that size."""
    return read_image(path, (height, width, channels)).squeeze(0).tolist()


def image(mode: str, *pixels: object) -> Image.Image:
    """One row."""
    made = Image.new(mode, (len(pixels), 1))
    for x, pixel in enumerate(pixels):
        made.putpixel((x, 0), pixel)  # type: ignore[arg-type]
    return made


def grey(*values: int) -> list[list[int]]:
    return [[value] * 3 for value in values]


@pytest.mark.parametrize(
    ("mode", "pixels", "suffix", "expected"),
    [
        ("1", (0, 255), "png", grey(0, 255)),
        ("L", (0, 7, 255), "png", grey(0, 7, 255)),
        # A fifth of 100 and four fifths of white: 20 + 204. Nothing of a colour without opacity.
        ("LA", ((100, 255), (100, 51), (0, 0)), "png", grey(100, 224, 255)),
        ("RGB", ((1, 2, 3), (255, 0, 9)), "png", [[1, 2, 3], [255, 0, 9]]),
        (
            "RGBA",
            ((1, 2, 3, 255), (100, 0, 255, 51), (9, 9, 9, 0)),
            "png",
            [[1, 2, 3], [224, 204, 255], [255, 255, 255]],
        ),
        # (255 - cyan) (255 - black) / 255, and so on: 204 * 204 / 255 = 163.2
        (
            "CMYK",
            ((0, 0, 0, 0), (0, 0, 0, 255), (255, 0, 0, 0), (51, 0, 102, 51)),
            "tif",
            [[255, 255, 255], [0, 0, 0], [0, 255, 255], [163, 204, 122]],
        ),
        ("I;16", (0, 255, 256, 0x8000, 0xFFFF), "png", grey(0, 0, 1, 128, 255)),
        ("I;16", (0, 0x1234, 0xFFFF), "tif", grey(0, 0x12, 255)),
        ("I", (0, 255, 0x1234, 0xFFFF), "tif", grey(0, 0, 0x12, 255)),
        # 0.25 * 255 = 63.75, 0.1 * 255 = 25.5 less a little
        ("F", (0.0, 0.25, 0.0999, 1.0), "tif", grey(0, 64, 25, 255)),
    ],
)
def test_modes(
    tmp_path: Path, mode: str, pixels: tuple[object, ...], suffix: str, expected: list[object]
) -> None:
    path = tmp_path / f"a.{suffix}"
    image(mode, *pixels).save(path)
    with Image.open(path) as written:
        assert written.mode == mode
    assert seen(path, 1, len(pixels)) == expected
    if mode in ("1", "L", "LA", "I;16", "I", "F"):
        alone = [[value[0]] for value in expected]  # type: ignore[index]
        assert seen(path, 1, len(pixels), channels=1) == alone


@pytest.mark.parametrize(
    ("transparency", "expected"),
    [
        (None, [[10, 20, 30], [40, 50, 60], [0, 0, 0]]),
        (1, [[10, 20, 30], [255, 255, 255], [0, 0, 0]]),  # one entry that is not there
        (bytes([255, 0, 51]), [[10, 20, 30], [255, 255, 255], [204, 204, 204]]),
    ],
)
def test_palettes(tmp_path: Path, transparency: int | bytes | None, expected: list[object]) -> None:
    made = image("P", 0, 1, 2)
    made.putpalette([10, 20, 30, 40, 50, 60, 0, 0, 0])
    options: dict[str, Any] = {} if transparency is None else {"transparency": transparency}
    made.save(tmp_path / "a.png", **options)
    with Image.open(tmp_path / "a.png") as written:
        assert written.mode == "P"
    assert seen(tmp_path / "a.png", 1, 3) == expected


def test_a_transparent_colour_without_an_alpha_channel(tmp_path: Path) -> None:
    image("RGB", (1, 2, 3), (4, 5, 6)).save(tmp_path / "a.png", transparency=(4, 5, 6))
    assert seen(tmp_path / "a.png", 1, 2) == [[1, 2, 3], [255, 255, 255]]
    image("L", 9, 8).save(tmp_path / "b.png", transparency=8)
    assert seen(tmp_path / "b.png", 1, 2) == grey(9, 255)


def test_sixteen_bit_colour_and_grey_agree(tmp_path: Path) -> None:
    """Pillow cannot write 16-bit colour: this file is made byte by byte."""
    values = (0x00FF, 0x1234, 0xFFFF)
    row = b"\0" + struct.pack(">3H", *values)
    (tmp_path / "a.png").write_bytes(png(1, 1, row, depth=16, colour=2))
    assert seen(tmp_path / "a.png", 1, 1) == [[0, 0x12, 0xFF]]


@pytest.mark.parametrize("suffix", ["gif", "png", "webp"])
def test_the_first_frame_of_an_animation(tmp_path: Path, suffix: str) -> None:
    colours = [(255, 0, 0), (0, 0, 255)]
    first, second = (Image.new("RGB", (2, 1), colour) for colour in colours)
    options: dict[str, Any] = {"lossless": True} if suffix == "webp" else {}
    first.save(tmp_path / f"a.{suffix}", save_all=True, append_images=[second], **options)
    with Image.open(tmp_path / f"a.{suffix}") as written:
        assert getattr(written, "n_frames", 1) == 2
    assert seen(tmp_path / f"a.{suffix}", 1, 2) == [[255, 0, 0]] * 2


# Where the stored first row and first column are seen, in the words of the EXIF standard.
SIDES = {
    1: ("top", "left"), 2: ("top", "right"), 3: ("bottom", "right"), 4: ("bottom", "left"),
    5: ("left", "top"), 6: ("right", "top"), 7: ("right", "bottom"), 8: ("left", "bottom"),
}  # fmt: skip


@pytest.mark.parametrize("suffix", ["png", "tif", "webp"])
@pytest.mark.parametrize("orientation", SIDES)
def test_orientation(tmp_path: Path, orientation: int, suffix: str) -> None:
    height, width = 3, 4
    stored = np.arange(36, dtype=np.uint8).reshape(height, width, 3)
    tags = Image.Exif()
    tags[0x0112] = orientation
    options: dict[str, Any] = {"lossless": True} if suffix == "webp" else {}
    Image.fromarray(stored).save(tmp_path / f"a.{suffix}", exif=tags, **options)
    upright = SIDES[orientation][0] in ("top", "bottom")
    expected = np.zeros((height, width, 3) if upright else (width, height, 3), np.uint8)
    for i in range(height):
        for j in range(width):
            at = {SIDES[orientation][0]: i, SIDES[orientation][1]: j}
            y = at["top"] if "top" in at else len(expected) - 1 - at["bottom"]
            x = at["left"] if "left" in at else expected.shape[1] - 1 - at["right"]
            expected[y, x] = stored[i, j]
    found = read_image(tmp_path / f"a.{suffix}", (*expected.shape[:2], 3))
    assert np.array_equal(found, expected)


def test_training_and_test_see_a_photograph_upright(tmp_path: Path) -> None:
    """Orientation 6: the stored left half is seen at the top."""
    stored = np.zeros((32, 64, 3), np.uint8)
    stored[:, :32] = 200
    tags = Image.Exif()
    tags[0x0112] = 6
    Image.fromarray(stored).save(tmp_path / "a.jpg", exif=tags, quality=95)
    rng = np.random.default_rng(0)
    views = [random_view(str(tmp_path / "a.jpg"), 16, rng) for _ in range(20)]
    for view in (centre_view(str(tmp_path / "a.jpg"), 16), *views):
        rows = view.mean(axis=(1, 2))
        assert rows[0] >= rows[-1]
        assert view.std(axis=1).max() < 5, "columns differ"


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
def test_damaged_tags_leave_a_sound_image(tmp_path: Path) -> None:
    sound = write_photograph(tmp_path / "a.jpg", 40, 30)
    tags = b"Exif\0\0II*\0\xff\xff\xff\xff"
    segment = b"\xff\xe1" + struct.pack(">H", len(tags) + 2) + tags
    content = sound.read_bytes()
    (tmp_path / "b.jpg").write_bytes(content[:2] + segment + content[2:])
    shape = (30, 40, 3)
    assert np.array_equal(read_image(tmp_path / "b.jpg", shape), read_image(sound, shape))


def test_plain_photographs_are_what_pillow_decodes(tmp_path: Path) -> None:
    path = write_photograph(tmp_path / "a.jpg", 300, 200)
    with Image.open(path) as plain:
        assert np.array_equal(read_image(path, (200, 300, 3)), np.asarray(plain))
        assert np.array_equal(
            read_image(path, (200, 300, 1))[..., 0], np.asarray(plain.convert("L"))
        )


@pytest.mark.parametrize(
    "made",
    [image("I", 0, 65536), image("I", -1), image("F", 0.5, 1.5), image("F", float("nan"))],
    ids=["over 16 bits", "negative", "over 1", "nan"],
)
def test_numbers_without_a_known_white_are_refused(tmp_path: Path, made: Image.Image) -> None:
    made.save(tmp_path / "odd.tif")
    with pytest.raises(DataError, match=r"odd\.tif"):
        read_image(tmp_path / "odd.tif", (1, made.width, 3))


def png(width: int, height: int, rows: bytes, depth: int = 8, colour: int = 0) -> bytes:
    def chunk(name: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        )

    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


@pytest.mark.parametrize("size", [(100_000, 1), (1, 100_000), (2**31 - 1, 1), (20_000, 20_000)])
def test_a_small_file_cannot_ask_for_gigabytes(tmp_path: Path, size: tuple[int, int]) -> None:
    (tmp_path / "long.png").write_bytes(png(*size, b"\0" * 100))
    tracemalloc.start()
    try:
        for length in (0, 256):
            with pytest.raises(DataError, match=r"long\.png"):
                read_image(tmp_path / "long.png", (224, 224, 3), length)
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()


def test_a_large_network_cannot_ask_for_gigabytes_either(tmp_path: Path) -> None:
    (tmp_path / "long.png").write_bytes(png(90, 1, b"\0" * 91))
    with pytest.raises(DataError, match=r"long\.png"):
        read_image(tmp_path / "long.png", (4096, 4096, 3), 4 * 4096)


def test_the_number_of_pixels_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "MOST_PIXELS", 40 * 30)
    assert read_image(write_photograph(tmp_path / "a.png", 40, 30), (8, 8, 3)).shape == (8, 8, 3)
    with pytest.raises(DataError, match=r"b\.png"):
        read_image(write_photograph(tmp_path / "b.png", 41, 30), (8, 8, 3))


@pytest.mark.parametrize("draw", [None, 3])
def test_training_goes_on_without_unreadable_files(tmp_path: Path, draw: int | None) -> None:
    write_photograph(tmp_path / "good.png")
    (tmp_path / "long.png").write_bytes(png(100_000, 1, b"\0" * 100_001))
    os.mkfifo(tmp_path / "fifo.png")
    (tmp_path / "folder.png").mkdir()
    names = ["good.png", "long.png", "fifo.png", "folder.png"]

    def split(skip: bool) -> FileSplit:
        options = DataOptions("x", workers=0, skip_unreadable=skip)
        return FileSplit(
            tmp_path, names, [0] * 4, name="train", classes=("a",), side=16, options=options
        )

    (batch,) = split(skip=True).batches([torch.arange(4)], draw)
    assert len(batch.images) == 1
    assert [Path(path).name for path in batch.skipped] == names[1:]
    with pytest.raises(DataError, match=r"long\.png"):
        next(split(skip=False).batches([torch.arange(4)], draw))


def test_what_is_no_file_is_refused_by_name(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.png")
    for path in (tmp_path / "fifo.png", tmp_path, Path("/dev/zero"), tmp_path / "none.png"):
        with pytest.raises(DataError, match=path.name):
            read_image(path, (8, 8, 3))


def test_images_in_a_folder(tmp_path: Path) -> None:
    for name in ("b.PNG", "a.jpg", "notes.txt"):
        write_photograph(tmp_path / "x.png").rename(tmp_path / name)
    assert [path.name for path in images_in(tmp_path)] == ["a.jpg", "b.PNG"]
    assert images_in(tmp_path / "a.jpg") == [tmp_path / "a.jpg"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="empty"):
        images_in(tmp_path / "empty")


def test_an_image_of_the_right_size_is_resized_as_the_test_of_the_data_set_does(
    tmp_path: Path,
) -> None:
    """Or `dbq run` would not see what `dbq eval` sees."""
    photograph = write_photograph(tmp_path / "a.png", 16, 16)
    assert np.array_equal(read_image(photograph, (16, 16, 3), 18), centre_view(str(photograph), 16))
    plain = np.asarray(Image.open(photograph))
    assert np.array_equal(read_image(photograph, (16, 16, 3)), plain)
    assert np.array_equal(fit_pixels(plain, (16, 16, 3), 18), plain)
