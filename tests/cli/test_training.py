"""dbq train, eval and recipes, as a user types them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

import dbq
from dbq.cli.main import app
from dbq.cli.options import complete_recipe
from dbq.data.options import DataOptions
from dbq.data.table import load_data
from dbq.training.evaluation import evaluate
from dbq.training.processes.world import World
from dbq.training.recipe import recipe_names
from tests.runs import single_thread

pytestmark = pytest.mark.process

RUN = CliRunner()


def run(*arguments: str) -> str:
    with single_thread():
        result = RUN.invoke(app, list(arguments))
    assert result.exit_code == 0, result.output
    return result.stdout


def fail(*arguments: str) -> str:
    result = RUN.invoke(app, list(arguments))
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


@pytest.fixture
def trained(tiny: Path, tmp_path: Path) -> Path:
    out = tmp_path / "run"
    text = run("train", str(tiny), "--out", str(out), "--set", "train.epochs=1")
    assert f"network: {out / 'model.safetensors'}" in text
    assert "hard network, 360 images (digits, every fifth image)" in text
    return out


def test_what_a_run_leaves(trained: Path) -> None:
    names = {path.name for path in trained.iterdir()}
    assert names == {"recipe.toml", "run.json", "metrics.jsonl", "result.json", "lock",
                     "last.safetensors", "best.safetensors", "model.safetensors"}  # fmt: skip
    result = json.loads((trained / "result.json").read_text())
    (row,) = [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]
    assert result["top1"] == row["top1"]
    assert result["machine"]["torch"]
    assert row["temperature"] == pytest.approx(20 + 20 * 2 / 3), "of the third and last step"
    assert len(row["sparsity"]) == 18, "every convolution but the first"
    assert all(0 < zeros < 1 for layer in row["sparsity"].values() for zeros in layer)


def test_eval_says_what_training_said(trained: Path, tmp_path: Path) -> None:
    result = json.loads((trained / "result.json").read_text())
    for network in (trained, trained / "model.safetensors", trained / "best.safetensors"):
        found = json.loads(run("eval", str(network), "--json"))
        assert found["top1"] == result["top1"]
        assert (found["images"], found["split"]) == (360, "every fifth image")
    alone = tmp_path / "alone.safetensors"
    alone.write_bytes((trained / "model.safetensors").read_bytes())
    assert f"top-1 {result['top1']:.2f} %" in run("eval", str(alone))


def test_eval_of_weights_from_elsewhere(tiny: Path, float_run: Path, tmp_path: Path) -> None:
    """Float weights: as they are, and quantized without training."""
    weights = tmp_path / "plain.safetensors"
    save_file(load_file(float_run / "model.safetensors"), weights)
    said = json.loads((float_run / "result.json").read_text())
    assert str(weights) in fail("eval", str(weights))
    text = run("eval", str(weights), "--recipe", str(tiny), "--set", "quantize.plan=fp", "--json")
    assert json.loads(text)["top1"] == said["top1"]
    text = run("eval", str(weights), "--recipe", str(tiny), "--json")
    assert json.loads(text)["plan"] == "resnet-2t"
    model = dbq.create_model("resnet20", num_classes=10, weights=weights)
    dbq.prepare(model, "resnet-2t", torch.zeros(1, 3, 8, 8))
    _, test = load_data(DataOptions("digits"))
    with single_thread():
        score = evaluate(model, test, World(0, 1, torch.device("cpu")))
    assert json.loads(text)["top1"] == score.top1
    assert "--recipe" in fail("eval", str(float_run), "--set", "train.epochs=1")


def test_a_quantized_network_can_be_the_start(trained: Path, tiny: Path, tmp_path: Path) -> None:
    """With 8-bit activations on top; one small step must not lose what was learned."""
    before = json.loads((trained / "result.json").read_text())["top1"]
    text = run("train", str(tiny), "--out", str(tmp_path / "more"), "--json",
               "--set", "train.epochs=1", "--set", "train.rate=1e-6",
               "--set", f"model.weights={trained}", "--set", "quantize.plan=resnet-2t-a8",
               "--set", "quantize.calibrate=360")  # fmt: skip
    assert json.loads(text)["top1"] > before - 10


def test_errors_in_one_line(tiny: Path, tmp_path: Path, trained: Path) -> None:
    out = ("--out", str(tmp_path / "new"))
    assert "closest: resnet20-2t" in fail("train", "resnet20-2", *out)
    assert "closest: epochs" in fail("train", str(tiny), *out, "--set", "train.epoch=1")
    assert str(trained) in fail("train", str(tiny), "--out", str(trained))
    assert "dbq train resnet20-fp" in fail(
        "train", "resnet20-2t", *out, "--set", "data.name=digits"
    )
    assert "train.batch" in fail("train", str(tiny), *out, "--set", "train.batch=2000")
    assert "train.batch" in fail("train", "digits-fp", *out, "--set", "train.batch=1")
    absent = "data.directory=/absent"
    assert "/absent" in fail("train", "resnet20-fp", *out, "--set", absent)
    assert "nothing" in fail("eval", str(tmp_path / "nothing"))
    assert "model.options.width" in fail("train", str(tiny), *out, "--set", "model.options.width=2")
    assert "tiny" in fail("train", "digits-fp", "--out", str(trained), "--resume")
    (trained / "model.safetensors").unlink()
    assert "best.safetensors" in fail("eval", str(trained))
    (trained / "result.json").write_text("{")
    again = fail("train", str(tiny), "--out", str(trained), "--resume")
    assert "result.json" in again
    save_file({"weight": torch.zeros(1)}, tmp_path / "other.safetensors")
    assert "other.safetensors" in fail("eval", str(tmp_path / "other.safetensors"))
    (tmp_path / "bad.safetensors").write_bytes(b"\xff\x00\x00\x00\x00\x00\x00\x00{")
    assert "bad.safetensors" in fail("eval", str(tmp_path / "bad.safetensors"))


def test_a_loss_that_is_not_finite_stops_with_the_layers_name(
    tiny: Path, float_run: Path, tmp_path: Path
) -> None:
    state = load_file(float_run / "model.safetensors")
    state["layer2.0.conv1.weight"][3] = torch.nan
    save_file(state, tmp_path / "broken.safetensors")
    settings = ("quantize.plan=fp", f"model.weights={tmp_path / 'broken.safetensors'}")
    message = fail("train", str(tiny), "--out", str(tmp_path / "run"),
                   *(word for setting in settings for word in ("--set", setting)))  # fmt: skip
    assert "layer2.0.conv1.weight" in message
    assert not (tmp_path / "run" / "last.safetensors").exists(), "no broken checkpoint"


def test_tensorboard_gets_the_numbers_of_the_metrics(tiny: Path, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    out = tmp_path / "run"
    run("train", str(tiny), "--out", str(out), "--tensorboard")
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    events = EventAccumulator(str(out / "tensorboard")).Reload()
    for key in ("loss", "soft_top1", "top1", "rate", "temperature"):
        found = [event.value for event in events.Scalars(key)]
        assert found == pytest.approx([row[key] for row in rows], rel=1e-6)  # float32 there
    zeros = [event.value for event in events.Scalars("sparsity/layer1.0.conv1/branch2")]
    assert zeros == pytest.approx([row["sparsity"]["layer1.0.conv1"][1] for row in rows], rel=1e-6)


def test_recipes(tmp_path: Path) -> None:
    text = run("recipes", "list")
    assert "91.93" in text
    rows = json.loads(run("recipes", "list", "--json"))
    assert [row["name"] for row in rows] == recipe_names()
    path = tmp_path / "mine.toml"
    path.write_text(run("recipes", "show", "resnet20-2t", "--set", "train.epochs=10"))
    assert "epochs = 10" in run("recipes", "show", str(path))
    assert json.loads(run("recipes", "show", "resnet20-2t", "--json"))["train"]["epochs"] == 50
    one_branch = [name for name in recipe_names() if name.startswith("resnet20-1")]
    assert len(one_branch) > 1
    assert complete_recipe("resnet20-1") == one_branch


def test_help_needs_no_torch() -> None:
    """Help and completion stay quick."""
    code = "import sys, dbq.cli.main; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("more", [(), ("--resume",), ("--tensorboard",)])
def test_a_directory_whose_name_is_too_long(tiny: Path, more: tuple[str, ...]) -> None:
    assert "x" * 300 in fail("train", str(tiny), "--out", "x" * 300, *more)


def test_tensorboard_writes_nothing_into_a_locked_directory(tiny: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    holder = "import sys, time\nfrom pathlib import Path\nfrom dbq.support.lock import only_one\n"
    holder += (
        "with only_one(Path(sys.argv[1])):\n    print('held', flush=True)\n    time.sleep(600)"
    )
    command = [sys.executable, "-c", holder, str(out / "lock")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            assert process.stdout.readline() == "held\n"
            assert str(process.pid) in fail("train", str(tiny), "--out", str(out), "--tensorboard")
        finally:
            process.kill()
    assert [path.name for path in out.iterdir()] == ["lock"]
