"""Functions of the user's: found where `python -m` finds them, and every failure in one line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from dbq.errors import UserCodeError
from dbq.support import imports
from dbq.support.imports import announce_code, call, import_function, is_function_name

CODE = """
not_a_function = 3

def made(depth=1, *, wide):
    return depth, wide

def anything(**options):
    return options

def fails(**options):
    raise ValueError("no such depth\\nand more")

def leaves():
    raise SystemExit(0)

def fails_without_words():
    assert False
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A current directory with modules that no other test knows, and the path and modules put back."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    before = set(sys.modules)
    (tmp_path / "imports_mine.py").write_text(CODE)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith("imports_"):
            del sys.modules[name]


def test_a_module_in_the_current_directory(folder: Path) -> None:
    assert import_function("imports_mine:made")(wide=2) == (1, 2)
    assert sys.path[0] == str(folder)


def test_the_current_directory_is_not_searched_in_safe_mode(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    safe = SimpleNamespace(safe_path=True)
    known = sys.stdlib_module_names
    monkeypatch.setattr(
        imports, "sys", SimpleNamespace(flags=safe, path=sys.path, stdlib_module_names=known)
    )
    with pytest.raises(UserCodeError, match="there is no module imports_mine"):
        import_function("imports_mine:made")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("imports_other:made", "imports_other:made: there is no module imports_other"),
        ("imports_mine.inner:made", "there is no module imports_mine.inner"),
        ("imports_mine:mad", "imports_mine has no mad; closest: made"),
        ("imports_mine:not_a_function", "not_a_function is a int; expected a function"),
        ("os:system", "os belongs to Python"),
        ("subprocess:run", "subprocess belongs to Python"),
    ],
)
def test_what_is_not_there(folder: Path, name: str, message: str) -> None:
    with pytest.raises(UserCodeError) as caught:
        import_function(name)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import imports_absent", "imports imports_absent, which is not there"),
        ("x = 1\n1 / 0", "failed: ZeroDivisionError: division by zero"),
        ("def f(:", "failed: SyntaxError"),
        ("raise SystemExit(3)", "failed: SystemExit: 3"),
    ],
)
def test_a_module_that_cannot_be_imported(folder: Path, code: str, message: str) -> None:
    (folder / "imports_broken.py").write_text(code)
    with pytest.raises(UserCodeError) as caught:
        import_function("imports_broken:f")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_place_of_a_failure(folder: Path) -> None:
    file = folder / "imports_mine.py"
    line = 1 + CODE.splitlines().index('    raise ValueError("no such depth\\nand more")')
    with pytest.raises(UserCodeError) as caught:
        call(import_function("imports_mine:fails"), {"depth": 9}, "mine:fails", "model.options")
    assert str(caught.value) == (
        f"mine:fails raised ValueError: no such depth ({file}, line {line})"
    )
    assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        ("made", {"wide": 1, "deph": 2}, "mine takes no deph (model.options); closest: depth"),
        ("made", {"depth": 2}, "'wide'"),
        ("leaves", {}, "raised SystemExit"),
        ("fails_without_words", {}, "raised AssertionError"),
    ],
)
def test_calls_that_fail(
    folder: Path, function: str, arguments: dict[str, int], message: str
) -> None:
    with pytest.raises(UserCodeError) as caught:
        call(import_function(f"imports_mine:{function}"), arguments, "mine", "model.options")
    assert message in str(caught.value)


def test_options_of_any_name(folder: Path) -> None:
    assert call(import_function("imports_mine:anything"), {"a": 1}, "mine", "x") == {"a": 1}


@pytest.mark.parametrize(
    "name", ["a", "a:", ":b", "a:b:c", "a b:c", "a.:b", "a..b:c", "1a:b", "a/b:c"]
)
def test_what_is_no_name_of_a_function(name: str) -> None:
    assert not is_function_name(name)


def test_what_is_announced_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    announce_code("runs/\x1b[2Ja", "imports_hostile:f\nerror: lie")
    text = capsys.readouterr().err
    assert text.count("\n") == 1
    assert "\x1b" not in text


def test_code_is_announced_once(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        announce_code("runs/a", "imports_announced:f", "imports_announced:g")
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "runs/a imports code: imports_announced:f",
        "runs/a imports code: imports_announced:g",
    ]
