"""`dbq doctor`: what this machine has, and what dbq uses of it."""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version

import typer

from dbq.cli.options import JsonOption
from dbq.cli.terminal import print_json
from dbq.version import __version__


def doctor(as_json: JsonOption = False) -> None:
    """Show what this machine has, and what dbq uses of it.

    \b
    Examples:
      dbq doctor
      dbq doctor --json
    """
    found = examine()
    if as_json:
        print_json(found)
        return
    width = max(map(len, found))
    for name, value in found.items():
        typer.echo(f"{name:{width}}  {value}")


def examine() -> dict[str, str]:
    """What a bug report should state, by name.

    >>> examine()["dbq"] == __version__
    True
    """
    return {
        "dbq": __version__,
        "python": f"{platform.python_version()} on {sys.platform} {platform.machine()}",
        "numpy": _version("numpy"),
        "safetensors": _version("safetensors"),
        "scikit-learn": _version("scikit-learn"),
        "cores": str(os.cpu_count()),
        "engine": _engine(),
        **_training(),
    }


def _training() -> dict[str, str]:
    try:
        import torch
    except ImportError:
        return {"torch": "not installed; to train: pip install 'dbq[train]'"}
    from dbq.quantizers.dbq.staircase_native import LIBRARY, STAIRCASE

    return {
        "torch": str(torch.__version__),
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "threads": str(torch.get_num_threads()),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
        "training kernel": f"native ({LIBRARY.name})"
        if STAIRCASE
        else f"torch calls: {LIBRARY} does not load",
    }


def _engine() -> str:
    from dbq.deploy.engine import available_isas
    from dbq.errors import EngineError

    try:
        return f"libdbq with kernels for {', '.join(available_isas())}"
    except EngineError as error:
        return str(error)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
