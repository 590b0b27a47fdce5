"""The order of the rooms: a package imports only itself and packages before it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "dbq"
ARCHITECTURE = Path(__file__).parents[1] / "ARCHITECTURE.md"
ORDER = [
    "support",
    "plans",
    "deploy",
    "quantizers",
    "model",
    "costs",
    "posttraining",
    "networks",
    "data",
    "training",
    "lowering",
    "experiments",
    "cli",
]
EVERYWHERE = {"errors", "version"}  # modules that import nothing of ours
WITHOUT_TORCH = ("support", "plans", "deploy")
LARGEST_MODULE, LARGEST_PACKAGE = 350, 14


def imported(tree: ast.Module) -> Iterator[str]:
    """The modules an import statement names, wherever it stands in the file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            if node.module == "dbq":
                yield from (f"dbq.{alias.name}" for alias in node.names)
            else:
                yield node.module


def violations(room: str, text: str) -> list[str]:
    """What a module of `room` with this source must not import."""
    allowed = {*ORDER[: ORDER.index(room) + 1], *EVERYWHERE}
    names = [name for name in imported(ast.parse(text)) if name.startswith("dbq.")]
    found = [name for name in names if name.split(".")[1] not in allowed]
    if room in WITHOUT_TORCH:
        found += [name for name in imported(ast.parse(text)) if name.split(".")[0] == "torch"]
    return found


def modules() -> list[Path]:
    return sorted(path for path in SOURCE.rglob("*.py") if path.parent != SOURCE)


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_go_down(path: Path) -> None:
    assert not violations(path.relative_to(SOURCE).parts[0], path.read_text())


@pytest.mark.parametrize(
    ("room", "line"),
    [
        ("quantizers", "from dbq.model.layers import QuantConv2d"),
        ("training", "def f():\n    from dbq.cli import main"),
        ("deploy", "import torch.nn"),
        ("support", "from dbq import plans"),
    ],
)
def test_an_import_that_goes_up_is_seen(room: str, line: str) -> None:
    assert violations(room, line)


def test_the_order_is_the_one_that_is_documented() -> None:
    assert " < ".join(ORDER) in ARCHITECTURE.read_text()
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert packages == set(ORDER)


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("__init__.py")), ids=lambda p: p.parent.name)
def test_packages_are_only_rooms(path: Path) -> None:
    """An `__init__` that imports drags its whole room into whoever wants one file of it."""
    if path.parent != SOURCE:
        (docstring,) = ast.parse(path.read_text()).body
        assert isinstance(docstring, ast.Expr)
    entries = [e for e in path.parent.iterdir() if e.name != "__pycache__" and e.suffix != ".so"]
    rooms = len(ORDER) if path.parent == SOURCE else 0
    assert len(entries) - rooms <= LARGEST_PACKAGE


def test_no_module_is_too_long_to_hold_in_mind() -> None:
    lines = {path: len(path.read_text().splitlines()) for path in SOURCE.rglob("*.py")}
    assert [path for path, count in lines.items() if count > LARGEST_MODULE] == []
