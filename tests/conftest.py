"""Shared by the tests: short runs, and files that the repository lacks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dbq.training.recipe import load_recipe
from dbq.training.run import train
from tests.runs import TINY, single_thread

# A run that takes two seconds; reports and figures are made of two such.
SHORT = [
    "model.name=mobilenet_v1",
    "model.width=0.125",
    "model.options.small_input=true",
    "train.every=epoch",
]


def outside_file(name: str) -> Path:
    """A file that the repository does not carry, below the directory that DBQ_TEST_DATA names."""
    directory = os.environ.get("DBQ_TEST_DATA")
    if not directory:
        pytest.skip(f"needs {name}: set DBQ_TEST_DATA to a directory that holds it")
    found = next(Path(directory).rglob(name), None)
    if found is None:
        pytest.skip(f"no {name} below {directory} (DBQ_TEST_DATA)")
    return found


@pytest.fixture(scope="session")
def resnet20_weights() -> Path:
    """Float weights of ResNet-20, trained on CIFAR-10."""
    return outside_file("resnet20-cifar10-fp.safetensors")


def _run(folder: Path, name: str, plan: str) -> Path:
    file = folder / f"{name}.toml"
    file.write_text(TINY)
    with single_thread():
        train(load_recipe(file, [*SHORT, f"quantize.plan={plan}"]), folder / name)
    return folder / name


@pytest.fixture(scope="session")
def two_branches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with two ternary branches."""
    return _run(tmp_path_factory.mktemp("runs"), "two", "dbq-2t-4")


@pytest.fixture(scope="session")
def float_baseline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same without quantization."""
    return _run(tmp_path_factory.mktemp("runs"), "float", "fp")


@pytest.fixture(scope="session")
def float_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a short float run, to start quantized ones from."""
    folder = tmp_path_factory.mktemp("float")
    (folder / "float.toml").write_text(TINY)
    recipe = load_recipe(
        folder / "float.toml",
        ["quantize.plan=fp", "train.epochs=6", "train.rate=0.1", "train.batch=120"],
    )
    with single_thread():
        train(recipe, folder / "run")
    return folder / "run"


@pytest.fixture
def tiny(tmp_path: Path, float_run: Path) -> Path:
    """The path of a recipe that starts from the float run."""
    path = tmp_path / "tiny.toml"
    path.write_text(TINY.replace("[data]", f'weights = "{float_run}"\n[data]'))
    return path
