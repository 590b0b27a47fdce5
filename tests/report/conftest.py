"""Two short runs on the digits that reports are made of."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from dbq.recipe import load_recipe
from dbq.training.run import train

RECIPE = """
about = "tests"
[model]
name = "mobilenet_v1"
width = 0.125
options = { small_input = true }
[data]
name = "digits"
[train]
epochs = 2
batch = 360
rate = 0.02
[quantize]
plan = "PLAN"
[temperature]
start = 20
increment = 20
[machine]
device = "cpu"
"""


def _run(folder: Path, name: str, plan: str) -> Path:
    file = folder / f"{name}.toml"
    file.write_text(RECIPE.replace("PLAN", plan))
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    train(load_recipe(file), folder / name)
    torch.set_num_threads(before)
    return folder / name


@pytest.fixture(scope="session")
def two_branches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _run(tmp_path_factory.mktemp("runs"), "two", "dbq-2t-4")


@pytest.fixture(scope="session")
def float_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _run(tmp_path_factory.mktemp("runs"), "float", "fp")
