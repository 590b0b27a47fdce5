"""Command modules share options, not each other."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import dbq.cli

FOLDER = Path(dbq.cli.__path__[0])
SHARED = {"dbq.cli.options", "dbq.cli.terminal"}
MODULES = sorted(path for path in FOLDER.glob("*.py") if path.name != "main.py")


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_only_main_imports_commands(path: Path) -> None:
    imported = {
        node.module
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("dbq.cli")
    }
    assert imported <= SHARED
