"""The runtime: a .dbq file is loaded, run, inspected and timed where numpy is the only package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dbq.deploy.file.fileformat import save
from tests.native.handmade import small_program

# An import of any of these fails, as it does where they are not installed.
BLOCK = """
import sys
for name in ("torch", "safetensors", "typer", "rich", "msgspec", "tomli_w", "onnx", "PIL"):
    sys.modules[name] = None
"""


def python(code: str, *arguments: str) -> str:
    command = [sys.executable, "-c", BLOCK + code, *arguments]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_every_module_of_the_deployment_half_imports() -> None:
    modules = """
import pkgutil, importlib, dbq.deploy
for module in pkgutil.walk_packages(dbq.deploy.__path__, "dbq.deploy."):
    importlib.import_module(module.name)
    print(module.name)
"""
    names = python(modules).split()
    assert {"dbq.deploy.engine", "dbq.deploy.onnx.export", "dbq.deploy.operations.table"} <= {
        *names
    }


def test_a_file_is_loaded_run_inspected_and_saved(tmp_path: Path) -> None:
    save(small_program(), tmp_path / "net.dbq")
    code = """
import dbq, numpy as np
from dbq.deploy import reference
path, copy = sys.argv[1:]
program = dbq.load_program(path)
net = dbq.load(path)
images = np.zeros((2, 3, 3, 1), np.uint8)
np.testing.assert_equal(net(images), reference.run(program, images))
dbq.save(program, copy)
assert len(net.profile(images[0])) == len(program.operations)
print(program)
print(net.describe())
"""
    text = python(code, str(tmp_path / "net.dbq"), str(tmp_path / "copy.dbq"))
    assert (tmp_path / "net.dbq").read_bytes() == (tmp_path / "copy.dbq").read_bytes()
    lines = text.splitlines()
    heads = [line.split() for line in lines if line.startswith(" layer")]
    assert [head[-1] for head in heads] == ["MMACs", "MMACs"]
    assert sum(line.startswith(" c ") for line in lines) == 4  # two convolutions, in both tables


@pytest.mark.parametrize(
    ("name", "extra"), [("prepare", "train"), ("lower", "train"), ("create_model", "train")]
)
def test_what_needs_torch_says_what_to_install(name: str, extra: str) -> None:
    code = f"""
import dbq
try:
    dbq.{name}
except ModuleNotFoundError as error:
    print(error)
"""
    assert f"pip install 'dbq[{extra}]'" in python(code)
    assert f"dbq.{name}" in python(code)
