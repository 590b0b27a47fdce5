"""Command modules share options, not each other; help texts explain their words."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

import dbq.cli
from dbq.cli.main import app

FOLDER = Path(dbq.cli.__path__[0])
SHARED = {"dbq.cli.options", "dbq.cli.terminal"}
MODULES = sorted(path for path in FOLDER.glob("*.py") if path.name != "main.py")


# A word of ours, and what explains it wherever it appears in a help text.
WORDS = {
    "hard network": "few levels",
    "C_C": "full adders",
    "C_S": "skipping zero weights",
    "C_R": "bits of weights and inputs",
    "C_M": "bits of the model",
    "clip": "cut off",
}


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


@pytest.mark.parametrize("path", [" ".join(path) for path, _ in commands(get_command(app))])
def test_words_are_explained_where_they_appear(path: str) -> None:
    text = " ".join(CliRunner().invoke(app, [*path.split(), "--help"]).stdout.split())
    for word, meaning in WORDS.items():
        assert word not in text or meaning in text, word


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_only_main_imports_commands(path: Path) -> None:
    imported = {
        node.module
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("dbq.cli")
    }
    assert imported <= SHARED
