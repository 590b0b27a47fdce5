"""examples/c: a photograph classified without Python."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from dbq.deploy import reference
from dbq.deploy.file.fileformat import save
from dbq.deploy.program import Output, Program
from dbq.deploy.tensors import Shape
from dbq.deploy.window import Window
from tests.native.handmade import Dice, images_for
from tests.native.programs import Programs

pytestmark = pytest.mark.native


@pytest.fixture
def program() -> Program:
    dice = Dice(0, Shape(3, 12, 10))
    dice.convolution()
    dice.add_convolution(0, Window((12, 10)), 1, Shape(20, 1, 1), ("f32",))
    return Program(
        "photo-net", tuple(dice.tensors), tuple(dice.operations), (Output(len(dice.tensors) - 1),)
    )


def classify(sanitized: Programs, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sanitized.path("classify"), *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def ppm(image: np.ndarray, comment: str = "") -> bytes:
    height, width, _ = image.shape
    return f"P6\n{comment}{width} {height}\n255\n".encode() + image.tobytes()


@pytest.mark.parametrize("threads", [[], ["2"]])
def test_the_five_best_classes(
    sanitized: Programs, program: Program, tmp_path: Path, threads: list[str]
) -> None:
    save(program, tmp_path / "net.dbq")
    image = images_for(program, 1)[0]
    (tmp_path / "photo.ppm").write_bytes(ppm(image, "# made by a test\n"))
    result = classify(sanitized, tmp_path / "net.dbq", tmp_path / "photo.ppm", *threads)
    assert result.returncode == 0, result.stderr
    logits = reference.run(program, image[None])[0]
    *lines, last = result.stdout.splitlines()
    best = np.argsort(-logits, kind="stable")[:5]
    assert [line.split() for line in lines] == [
        ["class", str(i), "score", f"{logits[i]:.4f}"] for i in best
    ]
    assert last.startswith("photo-net: ")
    assert " ms, " in last


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (ppm(np.zeros((10, 12, 3), np.uint8)), "12 x 10 pixels, photo-net expects 10 x 12"),
        (ppm(np.zeros((12, 10, 3), np.uint8))[:-1], "ends inside the image"),
        (b"P5\n10 12\n255\n", "not a binary PPM"),
        (b"P6\n10 12\n65535\n", "not 8 bits"),
        (b"P6\n99999999999999999999 12\n255\n", "not 8 bits"),
        (b"", "not a binary PPM"),
    ],
)
def test_images_that_do_not_fit(
    sanitized: Programs, program: Program, tmp_path: Path, content: bytes, words: str
) -> None:
    save(program, tmp_path / "net.dbq")
    (tmp_path / "photo.ppm").write_bytes(content)
    result = classify(sanitized, tmp_path / "net.dbq", tmp_path / "photo.ppm")
    assert result.returncode == 1
    assert words in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_network_that_is_none(sanitized: Programs, tmp_path: Path) -> None:
    (tmp_path / "net.dbq").write_bytes(b"nothing of the kind")
    result = classify(sanitized, tmp_path / "net.dbq", tmp_path / "photo.ppm")
    assert result.returncode == 1
    assert "net.dbq: this is no .dbq file" in result.stderr
