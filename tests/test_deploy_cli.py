"""Train, export, run: the three commands, on real digits, and what they say when something is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from dbq.cli import app
from dbq.data import DataOptions, load_data
from dbq.deployment import program_of_run
from dbq.fileformat import load_program
from dbq.recipe import load_recipe
from dbq.runtime import reference
from dbq.training.evaluate_file import evaluate_file
from dbq.training.run import train


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A float network after two epochs, and one epoch with two branches and 8-bit activations."""
    out = tmp_path_factory.mktemp("runs")
    short = ["train.epochs=2", "train.batch=32"]
    train(load_recipe("digits-fp", short), out / "fp")
    weights = f"model.weights={out / 'fp'}"
    train(load_recipe("digits-2t", ["train.epochs=1", weights]), out / "2t")
    return out / "2t"


def dbq(*arguments: object, fails: bool = False) -> str:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code == (2 if fails else 0), done.output or done.exception
    return done.output


def test_train_export_run(run: Path, tmp_path: Path) -> None:
    file = tmp_path / "digits.dbq"
    said = dbq("export", run, "-o", file)
    assert "integer program against torch on 16 images" in said
    assert f"{file}: {file.stat().st_size:,} bytes" in said

    _, test = load_data(DataOptions("digits"))
    pixels = test.images[0].permute(1, 2, 0).numpy()
    Image.fromarray(pixels).save(tmp_path / "digit.png")
    (row,) = json.loads(dbq("run", file, tmp_path / "digit.png", "--top", "10", "--json"))
    logits = reference.run(load_program(file), pixels[None])[0]
    found = {int(each["class"]): np.float32(each["logit"]) for each in row["top"]}
    assert [found[k] for k in range(10)] == logits.tolist()
    assert row["top"][0]["index"] == int(logits.argmax())

    by_torch = evaluate_file(run)["top1"]
    by_engine = json.loads(dbq("eval", file, "--json"))
    assert by_engine["images"] == 360
    # One image of 360 is 0.28; torch's float sums may tip one near a tie.
    assert abs(by_engine["top1"] - by_torch) < 0.3


def test_a_larger_image_is_cropped(run: Path, tmp_path: Path) -> None:
    dbq("export", run)
    Image.new("RGB", (40, 24), (255, 0, 0)).save(tmp_path / "wide.jpg")
    assert "wide.jpg\n" in dbq("run", run / "net.dbq", tmp_path / "wide.jpg")


def test_inspect_and_bench(run: Path) -> None:
    dbq("export", run)
    file = run / "net.dbq"
    found = json.loads(dbq("inspect", file, "--json"))
    pointwise = [layer for layer in found["layers"] if layer["precision"] == "2T"]
    assert len(pointwise) == 13
    assert all(len(layer["sparsity"]) == 2 and layer["macs"] > 0 for layer in pointwise)
    assert "bits each" in dbq("inspect", file)
    assert "ternary" in dbq("inspect", file, "--kernels")
    bench = json.loads(dbq("bench", file, "--seconds", "0.1", "--threads", "2", "--json"))
    assert bench["milliseconds"] >= bench["fastest_milliseconds"] > 0
    assert [layer["name"] for layer in bench["layers"]] == [x["name"] for x in found["layers"]]


def test_onnx_beside_it(run: Path, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    dbq("export", run, "-o", tmp_path / "net.dbq", "--onnx", tmp_path / "net.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "net.onnx")
    (input,) = session.get_inputs()
    _, test = load_data(DataOptions("digits"))
    images = test.images.permute(0, 2, 3, 1).numpy()
    (logits,) = session.run(None, {input.name: images})
    expected = reference.run(load_program(tmp_path / "net.dbq"), images)
    # Its branches are merged to 8 bits, and two epochs do not make a network robust: close, not equal.
    assert np.corrcoef(logits.ravel(), expected.ravel())[0, 1] > 0.9


def test_facts_travel_with_the_file(run: Path) -> None:
    facts = program_of_run(run).facts
    assert facts["recipe"] == "digits-2t"
    assert facts["classes"] == [str(digit) for digit in range(10)]
    assert facts["mean"] == [0.5, 0.5, 0.5]
    assert facts["agreement"]["different"] <= 2e-4 * facts["agreement"]["codes"]


def test_errors_are_one_line(run: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.dbq").write_bytes(b"not this")
    (tmp_path / "bad.png").write_bytes(b"nor this")
    for arguments, message in (
        (("export", run.parent / "fp"), "is a float network (digits-fp)"),
        (("export", tmp_path), "expected a checkpoint"),
        (("inspect", tmp_path / "bad.dbq"), "not a .dbq file"),
        (("run", tmp_path / "bad.dbq", "x.png"), "no .dbq file"),
        (("run", tmp_path / "missing.dbq", "x.png"), "missing.dbq"),
        (("run", run / "net.dbq", tmp_path / "bad.png"), "bad.png: not a readable image"),
        (("run", run / "net.dbq", tmp_path / "none.png"), "none.png: no such file"),
    ):
        output = dbq(*arguments, fails=True)
        assert message in output, output
        assert output.count("\n") == 1, output
