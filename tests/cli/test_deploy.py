"""Train, export, run: the three commands, on real digits, and what they say when something is wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from dbq.cli.main import app
from dbq.data import views
from dbq.data.options import DataOptions
from dbq.data.split import TensorSplit
from dbq.data.table import load_data
from dbq.data.views import centre_view
from dbq.deploy import reference
from dbq.deploy.file.fileformat import load_program, save
from dbq.deploy.pictures.images import read_image
from dbq.experiments.export import program_of_run
from dbq.training.recipe import load_recipe
from dbq.training.record.saved import evaluate_file
from dbq.training.run import train
from tests.photographs import write_photograph

pytestmark = pytest.mark.process


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
    assert "integer program against torch on 8 images" in said
    assert f"{file}: {file.stat().st_size:,} bytes" in said

    _, test = load_data(DataOptions("digits"))
    assert isinstance(test, TensorSplit)
    pixels = test.images[0].permute(1, 2, 0).numpy()
    Image.fromarray(pixels).save(tmp_path / "digit.png")
    (row,) = json.loads(dbq("run", file, tmp_path / "digit.png", "--top", "10", "--json"))
    logits = reference.run(load_program(file), pixels[None])[0]
    found = {int(each["class"]): np.float32(each["logit"]) for each in row["top"]}
    assert [found[k] for k in range(10)] == logits.tolist()
    assert row["top"][0]["index"] == int(logits.argmax())

    by_engine = json.loads(dbq("eval", file, "--json"))
    every = reference.run(load_program(file), test.images.permute(0, 2, 3, 1).numpy())
    right = int((every.argmax(1) == test.labels.numpy()).sum())
    assert (by_engine["images"], by_engine["top1"]) == (360, 100 * right / 360)
    # Whole ratios of scales tip some images of a network that is hardly trained. If they tipped every
    # fifth at random, the difference would have a standard error of 100 sqrt(0.2 / 360) = 2.4 points.
    assert abs(by_engine["top1"] - evaluate_file(run)["top1"]) < 4 * 2.4


def test_a_name_with_a_dash_can_be_typed(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "dbq run ./-x.dbq IMAGE" in dbq("export", run, "--out", "-x.dbq")
    dbq("inspect", "./-x.dbq")


def test_a_larger_image_is_cropped(run: Path, tmp_path: Path) -> None:
    dbq("export", run)
    Image.new("RGB", (40, 24), (255, 0, 0)).save(tmp_path / "wide.jpg")
    assert "wide.jpg\n" in dbq("run", run / "net.dbq", tmp_path / "wide.jpg")


def test_photographs_are_seen_as_in_the_test(run: Path, tmp_path: Path) -> None:
    """To the pixel what the data set's own view gives; and the file says so only where it is so."""
    photograph = write_photograph(tmp_path / "wide.jpg", 300, 201)
    for side in (24, 96, 224):
        view = read_image(photograph, (side, side, 3), views.resize_length(side))
        assert np.array_equal(view, centre_view(str(photograph), side))
    plain = read_image(photograph, (96, 96, 3))
    assert not np.array_equal(plain, read_image(photograph, (96, 96, 3), views.resize_length(96)))

    program = load_program(run / "net.dbq")
    assert "resize_length" not in program.facts, "digits come in their size"
    wanted = read_image(photograph, (8, 8, 3), 9)
    said = replace(program, facts={**program.facts, "resize_length": 9})
    save(said, tmp_path / "said.dbq")
    (row,) = json.loads(dbq("run", tmp_path / "said.dbq", photograph, "--top", "1", "--json"))
    assert np.float32(row["top"][0]["logit"]) == reference.run(said, wanted[None])[0].max()
    for length in (7, 33, 10**9, -1, 9.5, "9", True):
        save(
            replace(program, facts={**program.facts, "resize_length": length}), tmp_path / "bad.dbq"
        )
        assert "resize_length is" in dbq("run", tmp_path / "bad.dbq", photograph, fails=True)


def test_inspect_and_bench(run: Path) -> None:
    dbq("export", run)
    file = run / "net.dbq"
    found = json.loads(dbq("inspect", file, "--json"))
    pointwise = [layer for layer in found["layers"] if layer["precision"] == "2T"]
    assert len(pointwise) == 13
    assert all(len(layer["sparsity"]) == 2 and layer["macs"] > 0 for layer in pointwise)
    assert "bits each" in dbq("inspect", file)
    assert "kernel" in dbq("inspect", file, "--kernels").splitlines()[0]
    bench = json.loads(dbq("bench", file, "--seconds", "0.1", "--threads", "2", "--json"))
    assert bench["milliseconds"] >= bench["fastest_milliseconds"] > 0
    assert [layer["name"] for layer in bench["layers"]] == [x["name"] for x in found["layers"]]
    for seconds in ("inf", "nan", "-1"):
        assert "seconds" in dbq("bench", file, f"--seconds={seconds}", fails=True)


def test_onnx_beside_it(run: Path, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    dbq("export", run, "-o", tmp_path / "net.dbq", "--onnx", tmp_path / "net.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "net.onnx")
    (input,) = session.get_inputs()
    _, test = load_data(DataOptions("digits"))
    assert isinstance(test, TensorSplit)
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
        (("run", run / "net.dbq", tmp_path / "bad.png"), "bad.png"),
        (("run", run / "net.dbq", tmp_path / "none.png"), "none.png"),
    ):
        output = dbq(*arguments, fails=True)
        assert message in output, output
        assert output.count("\n") == 1, output
