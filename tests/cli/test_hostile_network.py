"""Files that others wrote, on the command line: no hijacked terminal, no traceback."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from dbq.cli.main import app
from dbq.deploy import reference
from dbq.deploy.engine import load
from dbq.deploy.file.fileformat import load_program, save
from dbq.deploy.onnx.export import export_onnx
from dbq.deploy.operations.average_pool import AveragePool
from dbq.deploy.operations.lookup import Lookup
from dbq.deploy.program import Output, Program
from dbq.deploy.tensors import Result, Shape, Tensor
from dbq.deploy.window import Window
from dbq.errors import DbqError, FileFormatError, TrainingError, WeightsError
from dbq.networks.weights import read_weights
from dbq.training.record.checkpoint import read_checkpoint

# Clears the screen, sets the title, turns the line around, starts another line, and C1's form of ESC [
HOSTILE = "cat\x1b[2J\x1b]0;owned\x07\u202etac\nerror: lie\r\x9b2J\u2028"


def network(**facts: Any) -> Program:
    """Three channels of 2 x 2 pixels in, their means out as three classes."""
    image, means = Tensor("u8", Shape(3, 2, 2), 1.0), Tensor("f32", Shape(3, 1, 1), 1.0)
    lookup = Lookup("image", 0, np.tile(np.arange(256, dtype=np.uint8), (3, 1)))
    result = Result(1, 0, 0, np.full((3, 1), 0.25, np.float32), np.zeros(3, np.float32))
    pool = AveragePool(HOSTILE, (result,), 0, Window((2, 2)))
    return Program(f"net{HOSTILE}", (image, means), (lookup, pool), (Output(1),), facts)


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    path = tmp_path / "red.png"
    Image.new("RGB", (2, 2), (200, 100, 0)).save(path)
    return path


def dbq(*arguments: object, status: int = 0) -> str:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code == status, done.output or done.exception
    return done.output


def assert_harmless(text: str, lines: int) -> None:
    assert [c for c in text if c != "\n" and not c.isprintable()] == []
    assert text.count("\n") == lines, text


def test_names_from_a_file_cannot_steer_the_terminal(tmp_path: Path, picture: Path) -> None:
    file = tmp_path / "net.dbq"
    save(network(classes=[HOSTILE, "dog", "größe"], recipe=HOSTILE, data="digits"), file)
    said = dbq("run", file, picture)
    assert_harmless(said, 4)
    assert said.index("cat\\u001b[2J") < said.index("dog") < said.index("größe")
    for arguments, fewest in (
        (("inspect", file), 5),
        (("inspect", file, "--kernels"), 5),
        (("bench", file, "--seconds", "0.1"), 4),
    ):
        text = dbq(*arguments)
        assert_harmless(text, text.count("\n"))
        assert text.count("\n") >= fewest
        assert "\nerror: lie" not in text


def test_names_of_files_are_cleaned_too(tmp_path: Path, picture: Path) -> None:
    save(network(), tmp_path / "net.dbq")
    odd = picture.rename(tmp_path / "odd\x1b[2J\u202e.png")
    assert_harmless(dbq("run", tmp_path / "net.dbq", odd), 4)
    assert_harmless(dbq("run", tmp_path / "net.dbq", tmp_path / "none\x1b[2J.png", status=2), 1)


def test_json_keeps_every_character(tmp_path: Path, picture: Path) -> None:
    save(network(classes=[HOSTILE, "dog", "bird"]), tmp_path / "net.dbq")
    (row,) = json.loads(dbq("run", tmp_path / "net.dbq", picture, "--json"))
    assert row["top"][0]["class"] == HOSTILE


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("classes", ["only one"]),
        ("classes", [1, 2, 3]),
        ("classes", {"0": "cat"}),
        ("classes", "abc"),
        ("classes", 5),
        ("resize_length", "9"),
        ("resize_length", [9]),
    ],
)
def test_wrong_facts_are_named_by_run(tmp_path: Path, picture: Path, key: str, value: Any) -> None:
    save(network(**{key: value}), tmp_path / "net.dbq")
    said = dbq("run", tmp_path / "net.dbq", picture, status=2)
    assert_harmless(said, 1)
    assert key in said


@pytest.mark.parametrize(
    ("key", "value"),
    [("data", ["digits"]), ("data", {}), ("data", 3), ("recipe", []), ("epoch", "x")],
)
def test_wrong_facts_are_named_by_eval(
    tmp_path: Path, key: str, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dbq.experiments.export.load_data", lambda options: (None, Nothing()))
    monkeypatch.setattr("dbq.experiments.export.evaluate", lambda *_, raw: Nothing())
    save(network(**{"data": "digits", key: value}), tmp_path / "net.dbq")
    said = dbq("eval", tmp_path / "net.dbq", status=2)
    assert_harmless(said, 1)
    assert key in said


class Nothing:
    """A test set and a score: neither is reached before the facts are read."""

    name, top1, top5, images = "test", 0.0, 0.0, 0


@pytest.mark.parametrize("mean", ["abc", [1, 2], {"a": 1}, 3, ["x", "y", "z"]])
def test_wrong_facts_are_named_by_the_onnx_export(tmp_path: Path, mean: Any) -> None:
    program = network(mean=mean, std=[1, 1, 1])
    with pytest.raises(FileFormatError, match="mean"):
        export_onnx(program, tmp_path / "net.onnx")


def test_run_takes_a_folder(tmp_path: Path) -> None:
    save(network(), tmp_path / "net.dbq")
    folder = tmp_path / "photographs"
    folder.mkdir()
    for k in range(3):
        colour = [0, 0, 0]
        colour[2 - k] = 255
        Image.new("RGB", (2, 2), tuple(colour)).save(folder / f"{k}.png")
    (folder / "notes.txt").write_text("not an image")
    rows = json.loads(dbq("run", tmp_path / "net.dbq", folder, "--json"))
    assert [Path(row["image"]).name for row in rows] == ["0.png", "1.png", "2.png"]
    assert [row["top"][0]["class"] for row in rows] == ["2", "1", "0"]
    (tmp_path / "empty").mkdir()
    assert "empty" in dbq("run", tmp_path / "net.dbq", tmp_path / "empty", status=2)


def test_a_network_of_pixels_does_not_classify(tmp_path: Path, picture: Path) -> None:
    program = network()
    wide = replace(program.tensors[1], shape=Shape(3, 2, 2))
    last = program.operations[1]
    assert isinstance(last, AveragePool)
    pool = replace(last, name="pixels", window=Window((1, 1)))
    pixels = replace(program, tensors=(program.tensors[0], wide),
                     operations=(program.operations[0], pool))  # fmt: skip
    save(pixels, tmp_path / "net.dbq")
    assert reference.run(pixels, np.zeros((1, 2, 2, 3), np.uint8)).shape == (1, 3, 2, 2)
    assert "net.dbq" in dbq("run", tmp_path / "net.dbq", picture, status=2)


@pytest.mark.parametrize(
    ("read", "error"),
    [
        (load, FileFormatError),
        (load_program, FileFormatError),
        (read_weights, WeightsError),
        (read_checkpoint, TrainingError),
    ],
)
@pytest.mark.parametrize("name", ["fifo", "device", "folder", "none"])
def test_what_is_no_file_is_refused_by_name(
    tmp_path: Path, read: Any, error: type[DbqError], name: str
) -> None:
    """Reading a FIFO would block for ever, a device may never end."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    (tmp_path / "device").symlink_to("/dev/zero")
    with pytest.raises(error, match=name):
        read(tmp_path / name)
