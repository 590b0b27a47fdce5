"""The public face: names, laziness, docstrings, layering, examples."""

from __future__ import annotations

import inspect
import pkgutil
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import dbq

ROOT = Path(__file__).parents[1]


def python(program: str) -> str:
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


def test_every_public_name_resolves_and_is_documented_with_an_example() -> None:
    for name in dbq.__all__:
        value = getattr(dbq, name)
        if inspect.isfunction(value) or inspect.isclass(value):
            assert value.__doc__, name
        if inspect.isfunction(value) or name in ("Plan", "LayerPlan", "TemperatureSchedule"):
            assert ">>>" in value.__doc__, f"{name} has no tested example"


def test_no_submodule_shadows_a_public_name() -> None:
    """Importing a submodule sets an attribute on the package: it must not hide a function."""
    submodules = {module.name for module in pkgutil.iter_modules(dbq.__path__)}
    assert not submodules & set(dbq.__all__)


def test_import_is_light() -> None:
    loaded = python("import sys, dbq; print('torch' in sys.modules, 'numpy' in sys.modules)")
    assert loaded == "False False"


def test_unknown_attribute() -> None:
    with pytest.raises(AttributeError, match="no attribute 'quantise'"):
        _ = dbq.quantise


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.name)
def test_examples_run(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out


def test_readme_numbers_are_those_of_results() -> None:
    script = [sys.executable, str(ROOT / "benchmarks" / "pages.py"), "--check"]
    run = subprocess.run(script, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


@pytest.mark.slow
def test_readme_code_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert blocks, "the README shows Python code"
    python("\n".join(blocks))
