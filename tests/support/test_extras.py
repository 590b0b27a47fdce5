"""Without an optional package: one line that says which extra to install."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from dbq.support.extras import EXTRAS

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
DISTRIBUTIONS = {"PIL": "pillow", "sklearn": "scikit-learn", "vl_convert": "vl-convert-python",
                 "tomli_w": "tomli-w"}  # fmt: skip


def test_extras_are_those_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    for module, extra in EXTRAS.items():
        names = [re.split(r"[<>=\[]", requirement)[0] for requirement in extras[extra]]
        assert DISTRIBUTIONS.get(module, module) in names, module
    assert [re.split("[<>=]", needed)[0] for needed in project["dependencies"]] == ["numpy"]


def without(package: str, program: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a Python that cannot import `package`."""
    hidden = f"import sys; sys.modules[{package!r}] = None\n{program}"
    return subprocess.run([sys.executable, "-c", hidden], capture_output=True, text=True)


@pytest.mark.parametrize(
    ("package", "command", "extra"),
    [
        ("typer", "--help", "run"),
        ("torch", "cost resnet20", "train"),
        ("torch", "train digits-2t --out nowhere", "train"),
        ("altair", "report nowhere", "train"),
    ],
)
def test_a_command_names_the_extra(package: str, command: str, extra: str) -> None:
    arguments = ["dbq", *command.split()]
    run = without(package, f"from dbq.__main__ import main; sys.argv = {arguments}; main()")
    assert run.returncode == 2, run.stderr
    assert package in run.stderr
    assert f"dbq[{extra}]" in run.stderr
    assert len(run.stderr.splitlines()) == 1


@pytest.mark.parametrize("command", ["--help", "--version", "recipes list", "doctor"])
def test_commands_that_do_not_need_torch(command: str) -> None:
    arguments = ["dbq", *command.split()]
    run = without("torch", f"from dbq.__main__ import main; sys.argv = {arguments}; main()")
    assert run.returncode == 0, run.stderr


def test_doctor_says_which_extra_is_incomplete() -> None:
    run = without("altair", "from dbq.__main__ import main; sys.argv = ['dbq', 'doctor']; main()")
    assert re.search(r"dbq\[run\] +complete", run.stdout)
    assert re.search(r"dbq\[train\] +no altair: pip install 'dbq\[train\]'", run.stdout)


def test_other_missing_modules_are_not_explained_away() -> None:
    run = without("json", "from dbq.__main__ import main; sys.argv = ['dbq', 'doctor']; main()")
    assert "Traceback" in run.stderr


def test_a_public_name_names_the_extra() -> None:
    run = without("torch", "import dbq; dbq.prepare")
    assert "ModuleNotFoundError: dbq.prepare" in run.stderr
    assert "dbq[train]" in run.stderr
