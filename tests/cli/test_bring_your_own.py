"""A network and a data set of a temporary package go all the way by the command line alone."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.own_package import write_digits, write_package
from tests.runs import environment, torchrun, wait_for_checkpoint

pytestmark = pytest.mark.process
DBQ = [sys.executable, "-m", "dbq"]
CODE = ["bring.networks:tiny", "bring.data:digits"]


def dbq(folder: Path, *arguments: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    """Run in `folder`, which is how the package is found."""
    return run(folder, [*DBQ, *arguments], status)


def run(folder: Path, command: list[str], status: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=200, check=False
    )  # fmt: skip
    assert done.returncode == status, done.stderr[-3000:]
    assert "Traceback" not in done.stderr
    return done


def test_train_eval_export_run_report(tmp_path: Path) -> None:
    write_package(tmp_path)
    image = write_digits(tmp_path / "pictures", each=1) / "two" / "000.png"
    trained = dbq(tmp_path, "train", "recipe.toml", "--out", "run", "--json")
    top1 = json.loads(trained.stdout)["top1"]
    evaluated = dbq(tmp_path, "eval", "run", "--json")
    assert json.loads(evaluated.stdout)["top1"] == top1
    assert evaluated.stderr.splitlines() == [f"run imports code: {name}" for name in CODE]
    exported = json.loads(dbq(tmp_path, "export", "run", "--json").stdout)
    assert exported["facts"]["classes"] == ["nought", "one", "two", "three"]
    shown = json.loads(dbq(tmp_path, "run", "run/net.dbq", str(image), "--json").stdout)
    assert {guess["class"] for guess in shown[0]["top"]} == {"nought", "one", "two", "three"}
    page = dbq(tmp_path, "report", "run", "-o", "page.html")
    assert f"run imports code: {CODE[0]}" in page.stderr
    assert "bring.networks:tiny" in (tmp_path / "page.html").read_text()
    # The device needs neither the package nor torch, and a file imports nothing.
    assert "bring.data:digits" in dbq(tmp_path, "eval", "run/net.dbq", status=2).stderr
    (tmp_path / "bring").rename(tmp_path / "elsewhere")
    dbq(tmp_path, "run", "run/net.dbq", str(image))
    lost = dbq(tmp_path, "eval", "run", status=2).stderr
    assert "error: bring.networks:tiny: there is no module bring" in lost


def test_cost_compare_search_and_check(tmp_path: Path) -> None:
    write_package(tmp_path)
    options = ["--option", "channels=4", "--classes", "4", "--plan", "dbq-2t-4", "--json"]
    cost = json.loads(dbq(tmp_path, "cost", CODE[0], "--size", "16", *options).stdout)
    assert cost["model"] == CODE[0]
    assert "--size" in dbq(tmp_path, "cost", CODE[0], "--classes", "4", status=2).stderr
    found = dbq(tmp_path, "compare", "recipe.toml", "--methods", "float,twn", "--out", "runs",
                "--set", "train.epochs=1")  # fmt: skip
    assert CODE[0] in found.stdout
    float_only = ["--set", "quantize.plan=fp", "--set", "quantize.calibrate=0"]
    dbq(tmp_path, "search", "recipe.toml", "--budget", "0.9", "-o", "plan.toml", *float_only)
    assert (tmp_path / "plan.toml").exists()
    checked = dbq(tmp_path, "data", "check", CODE[1], "--workers", "0", "--set", "image_size=16")
    assert "576 images of 4 classes" in checked.stdout
    assert "normalise = [[0." in checked.stdout


def test_a_folder_under_torchrun_and_resumed(tmp_path: Path) -> None:
    """Killed after a step and resumed by two processes: as far as one goes without a break."""
    recipe = write_package(tmp_path)
    write_digits(tmp_path / "pictures")
    text = (
        recipe.read_text()
        .replace("bring.data:digits", "folder")
        .replace("batch = 96", "batch = 24")
    )
    text = text.replace("workers = 0", 'workers = 1\ndirectory = "pictures"\nsplit = 0.2')
    recipe.write_text(text.replace("epochs = 2", "epochs = 3"))
    often = ["--set", "machine.checkpoint_minutes=0"]
    command = [*DBQ, "train", "recipe.toml", "--out", "run", *often]
    dbq(tmp_path, "train", "recipe.toml", "--out", "undisturbed", *often)
    process = subprocess.Popen(command, cwd=tmp_path, env=environment(), stderr=subprocess.DEVNULL)
    wait_for_checkpoint(tmp_path / "run", process, epoch=1, step=1)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "run" / "result.json").exists(), "killed too late to show anything"
    resumed = run(tmp_path, [*command, "--resume"])
    assert f"run imports code: {CODE[0]}" in resumed.stderr
    for name in ("model.safetensors", "best.safetensors"):
        files = [(tmp_path / out / name).read_bytes() for out in ("undisturbed", "run")]
        assert files[0] == files[1], name
    two = [*DBQ, "train", "recipe.toml", "--out", "two", "--set", "machine.sync_bn=true", "--json"]
    result = json.loads(run(tmp_path, torchrun(2, two)).stdout)
    assert result["processes"] == 2
    assert result["test"] == {"data": "folder", "split": "0.2 of each class, seed 0", "images": 24}
    exported = json.loads(dbq(tmp_path, "export", "run", "--json").stdout)
    assert exported["facts"]["classes"] == ["nought", "one", "three", "two"]
    deployed = dbq(tmp_path, "eval", "run/net.dbq", "--data", "pictures", "--json")
    assert json.loads(deployed.stdout)["images"] == 24


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("model.name=bring.networks:tyni", "has no tyni; closest: tiny"),
        ("model.name=bring.networks:fails", "raised ValueError: no such network"),
        ("model.name=absent.module:f", "there is no module absent"),
        ("model.name=torchvision:none", "torchvision"),
        ("model.options.chanels=3", "takes no chanels"),
        ("data.name=bring.data:digit", "has no digit; closest: digits"),
        ("data.name=bring.data:Digits", "'test'"),
        ("data.name=folder", "folder: no directory given"),
        ("data.normalise=imagnet", "closest: imagenet"),
        ("data.augment=strong", "data.augment = 'strong'"),
    ],
)
def test_mistakes_are_one_line(tmp_path: Path, change: str, words: str) -> None:
    write_package(tmp_path)
    done = dbq(tmp_path, "train", "recipe.toml", "--out", "run", "--set", change, status=2)
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert words in line
    assert not (tmp_path / "run" / "recipe.toml").exists()
