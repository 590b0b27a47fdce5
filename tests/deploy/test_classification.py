"""A .dbq file on folders of images: which folder is which class, and what cannot be one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from dbq.cli.main import app
from dbq.deploy.file.fileformat import save
from dbq.deploy.operations.average_pool import AveragePool
from dbq.deploy.operations.lookup import Lookup
from dbq.deploy.pictures.classification import evaluate_folder
from dbq.deploy.program import Output, Program
from dbq.deploy.tensors import Result, Shape, Tensor
from dbq.deploy.window import Window
from dbq.errors import DataError

RED, GREEN, BLUE = (255, 0, 0), (0, 255, 0), (0, 0, 255)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return written(tmp_path / "mine.dbq", classes=["red", "green", "blue"])


def written(path: Path, **facts: Any) -> Path:
    """The means of the three colours of 2 x 2 pixels, as classes."""
    image, means = Tensor("u8", Shape(3, 2, 2), 1.0), Tensor("f32", Shape(3, 1, 1), 1.0)
    lookup = Lookup("image", 0, np.tile(np.arange(256, dtype=np.uint8), (3, 1)))
    result = Result(1, 0, 0, np.full((3, 1), 0.25, np.float32), np.zeros(3, np.float32))
    pool = AveragePool("means", (result,), 0, Window((2, 2)))
    save(Program("mine", (image, means), (lookup, pool), (Output(1),), facts), path)
    return path


def paint(folder: Path, *colours: tuple[int, int, int]) -> None:
    folder.mkdir(parents=True)
    for number, colour in enumerate(colours):
        Image.new("RGB", (2, 2), colour).save(folder / f"{number}.png")


def test_folders_go_by_the_names_of_classes(file: Path, tmp_path: Path) -> None:
    """By their order, blue would be class 0; and not every class needs a folder."""
    paint(tmp_path / "data" / "blue", BLUE, BLUE, RED)
    paint(tmp_path / "data" / "red", RED)
    (tmp_path / "data" / "notes.txt").write_text("not a class")
    found = evaluate_folder(file, tmp_path / "data")
    assert (found["top1"], found["top5"], found["images"]) == (75.0, 100.0, 4)


def test_without_names_folders_go_by_their_order(tmp_path: Path) -> None:
    file = written(tmp_path / "mine.dbq")
    for name, colour in (("a", RED), ("b", GREEN), ("c", RED)):
        paint(tmp_path / "data" / name, colour)
    assert evaluate_folder(file, tmp_path / "data")["top1"] == pytest.approx(200 / 3)
    paint(tmp_path / "data" / "d", RED)
    with pytest.raises(DataError, match="4 folders, the network 3 classes"):
        evaluate_folder(file, tmp_path / "data")


def test_what_is_no_class_is_named(file: Path, tmp_path: Path) -> None:
    paint(tmp_path / "data" / "gren", GREEN)
    with pytest.raises(DataError, match=r"gren.*closest: green"):
        evaluate_folder(file, tmp_path / "data")
    for folder in (tmp_path / "data" / "gren", tmp_path / "none"):
        with pytest.raises(DataError, match=folder.name):
            evaluate_folder(file, folder)


def test_the_command(file: Path, tmp_path: Path) -> None:
    paint(tmp_path / "data" / "green", GREEN)
    arguments = ["eval", str(file), "--data", str(tmp_path / "data")]
    found = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    assert (found["top1"], found["images"]) == (100.0, 1)
    assert "top-1 100.00 %" in CliRunner().invoke(app, arguments).stdout
    without = CliRunner().invoke(app, arguments[:2])
    assert without.exit_code == 2
    assert "--data" in without.output


def test_torch_is_not_needed(file: Path, tmp_path: Path) -> None:
    paint(tmp_path / "data" / "green", GREEN)
    code = f"""
import sys
sys.modules["torch"] = None
from dbq.cli.main import app
app(["eval", {str(file)!r}, "--data", {str(tmp_path / "data")!r}])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "top-1 100.00 %" in done.stdout
