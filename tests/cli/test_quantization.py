"""`dbq quantize`: weights and a folder in, a file out that runs; and what it says when something
is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from dbq.cli.main import app
from dbq.deploy import reference
from dbq.deploy.file.fileformat import load_program
from dbq.networks.table import create_model
from dbq.networks.weights import read_weights
from dbq.training.networks import quantized_network
from dbq.training.recipe import load_recipe


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights of a narrow network, and a folder of pictures in two subfolders."""
    folder = tmp_path_factory.mktemp("given")
    torch.manual_seed(0)
    torch.save(create_model("resnet20", width=0.25).state_dict(), folder / "float.pth")
    rng = np.random.default_rng(0)
    for number in range(12):
        path = folder / "images" / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (40, 36, 3), np.uint8)).save(path)
    return folder


def dbq(*arguments: object, fails: bool = False) -> str:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code == (2 if fails else 0), done.output or done.exception
    return done.output


def quantize(given: Path, *more: object, fails: bool = False) -> str:
    return dbq("quantize", "resnet20", "--width", 0.25, "--weights", given / "float.pth",
               "--images", given / "images", "--plan", "resnet-2t-a8", *more, fails=fails)  # fmt: skip


def test_a_file_that_runs(given: Path, tmp_path: Path) -> None:
    said = quantize(given, "-o", tmp_path / "net.dbq")
    assert "layer1.0.conv1" in said
    assert f"{(tmp_path / 'net.dbq').stat().st_size:,} bytes" in said
    program = load_program(tmp_path / "net.dbq")
    pixels = np.zeros((1, 32, 32, 3), np.uint8)
    assert reference.run(program, pixels).shape == (1, 10)


def test_json_state_and_the_same_bytes_again(given: Path, tmp_path: Path) -> None:
    first, again, state = (tmp_path / name for name in ("a.dbq", "b.dbq", "start.safetensors"))
    found = json.loads(quantize(given, "-o", first, "--state", state, "--seed", 3, "--json"))
    assert found["plan"] == "resnet-2t-a8"
    assert found["bytes"] == first.stat().st_size
    assert {row["name"] for row in found["layers"]} >= {"conv1", "layer3.2.conv2"}
    assert any(".weight_quantizer." in key for key in read_weights(state))
    quantize(given, "-o", again, "--seed", 3)
    assert again.read_bytes() == first.read_bytes()


def test_training_goes_on_from_the_state(given: Path, tmp_path: Path) -> None:
    state = tmp_path / "start.safetensors"
    quantize(given, "-o", tmp_path / "net.dbq", "--state", state)
    changes = [f"model.weights={state}", "model.width=0.25"]
    model = quantized_network(load_recipe("resnet20-2t-a8-quick", changes), classes=10)
    saved = read_weights(state)
    assert model.state_dict().keys() == saved.keys()
    assert all(torch.equal(value, saved[key]) for key, value in model.state_dict().items())


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--images", "nowhere"], "no such folder"),
        (["--mean", "a,b,c"], "--mean"),
        (["--std", "0,1,1"], "std over 0"),
        (["--option", "wide"], "key=value"),
        (["--plan", "no-such-plan"], "no-such-plan"),
        (["--weights", "nowhere.pth"], "no such file"),
    ],
)
def test_wrong_arguments(given: Path, tmp_path: Path, arguments: list[str], problem: str) -> None:
    out = tmp_path / "net.dbq"
    assert problem in quantize(given, "-o", out, *arguments, fails=True)
    assert not out.exists()
