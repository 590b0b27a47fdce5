"""The command blocks of the pages run in order, from a directory that has only what a user brings.

A block that needs hours, a download or somebody's own files says so in its first line, `# needs ...`.
Such a block is only parsed: commands, options, recipes, targets and presets exist.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import typer

import dbq
from dbq.cli.main import app
from dbq.training.recipe import load_recipe
from tests.photographs import write_photograph
from tests.runs import environment

ROOT = Path(__file__).parents[1]
# The tutorial's blocks, Python and commands in turn, run in tests/test_tutorial.py.
DOCS = [page for page in sorted((ROOT / "docs").glob("*.md")) if page.name != "tutorial.md"]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.M | re.S)
COMMANDS = {"dbq", "make", "pip", "cmake", "torchrun", "python", "mkdir", "build/fuzz/fuzz_load"}
SHORT = ("--set", "train.epochs=1")  # each `dbq train` that runs is cut to one epoch


def blocks(page: Path, language: str) -> list[str]:
    return [body for tag, body in BLOCK.findall(page.read_text()) if tag == language]


def commands(block: str) -> list[list[str]]:
    """The words of each command, without comments."""
    text = block.replace("\\\n", " ").replace("&&", "\n")
    return [words for line in text.splitlines() if (words := shlex.split(line, comments=True))]


def needs(block: str) -> bool:
    return block.startswith("# needs ")


WITH_COMMANDS = [page for page in PAGES if blocks(page, "sh")]
RUNNING = [page for page in WITH_COMMANDS if not all(map(needs, blocks(page, "sh")))]


def test_no_block_of_commands_escapes() -> None:
    for page in PAGES:
        for block in blocks(page, ""):
            assert block.split()[0] not in COMMANDS, f"{page.name}: mark it as ```sh"
    assert {page.name for page in RUNNING} >= {"README.md", "deploy.md", "training.md"}


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=lambda page: page.name)
def test_every_command_exists(page: Path) -> None:
    for block in blocks(page, "sh"):
        for words in commands(block):
            assert words[0] in COMMANDS, words
            if words[0] in ("dbq", "torchrun"):
                parse(words[words.index("dbq") + 1 :])
            elif words[0] == "make":
                assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.M)
            elif "--preset" in words:
                presets = json.loads((ROOT / "CMakePresets.json").read_text())
                names = {preset["name"] for preset in presets["configurePresets"]}
                assert words[words.index("--preset") + 1] in names


def parse(arguments: list[str]) -> None:
    """An unknown command, option, recipe or key raises."""
    arguments = arguments[: arguments.index(">")] if ">" in arguments else arguments
    group: Any = typer.main.get_command(app)
    name, *rest = arguments
    command = group.commands[name]
    while hasattr(command, "commands"):
        name, *rest = rest
        command = command.commands[name]
    context = command.make_context(name, rest)
    recipe = context.params.get("recipe")
    if recipe and recipe != "mine.toml":
        load_recipe(recipe, context.params.get("overrides") or ())


def test_what_is_wrong_is_found() -> None:
    for wrong in ("dbq trian x --out y", "dbq bench net.dbq --second 3", "dbq train digits-9t --out y",
                  "dbq train digits-2t --out y --set train.epoch=3"):  # fmt: skip
        with pytest.raises(Exception):  # noqa: B017, PT011  # KeyError, NoSuchOption, RecipeError
            parse(wrong.split()[1:])


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a user has: the `dbq` command, and photographs."""
    write_photograph(tmp_path / "cat.png")
    write_photograph(tmp_path / "photographs" / "a.png")
    program = tmp_path / "bin" / "dbq"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m dbq "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join([str(program.parent), os.environ["PATH"]]))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("page", RUNNING, ids=lambda page: page.name)
def test_the_commands_run_in_order(page: Path, place: Path) -> None:
    for block in blocks(page, "sh"):
        for line in [] if needs(block) else block.replace("\\\n", " ").splitlines():
            short = " ".join(SHORT) if line.startswith("dbq train") else ""
            command = re.sub(r"\s+#.*", "", line)
            done = subprocess.run(
                f"{command} {short}", shell=True, env=environment(), capture_output=True, text=True,
                check=False,
            )  # fmt: skip
            assert done.returncode == 0, (line, done.stderr[-2000:])
    names = {"dbq": dbq, "np": np}
    for block in blocks(page, "python") if page.parent.name == "docs" else []:
        exec(block, names)  # README's own are run by test_public_names.py


@pytest.mark.parametrize("name", ["index.md", "onnx.md", "plans.md", "elsewhere.md"])
def test_python_on_other_pages(name: str, place: Path) -> None:
    names = {"dbq": dbq, **some_network()}
    for block in blocks(ROOT / "docs" / name, "python"):
        exec(block, names)


def some_network() -> dict[str, Any]:
    """What the pages take for granted: a network that was prepared, and its images."""
    images = torch.rand(2, 3, 32, 32)
    model = dbq.create_model("mobilenet_v1", num_classes=10, width=0.25, small_input=True)
    dbq.prepare(model, "dbq-2t-4", images)
    dbq.calibrate(model, [images])
    return {"model": model, "example_input": images, "mean": (0.0,) * 3, "std": (1.0,) * 3}


@pytest.mark.parametrize("name", ["plans.md"])
def test_plans_are_plans(name: str, place: Path) -> None:
    for number, block in enumerate(blocks(ROOT / "docs" / name, "toml")):
        (place / f"{number}.toml").write_text(block)
        dbq.load_plan(place / f"{number}.toml")
