"""`dbq doctor`: what this machine has, and what dbq uses of it."""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

import typer

from dbq.cli.options import JsonOption
from dbq.cli.terminal import print_json
from dbq.support.extras import EXTRAS
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
        **{f"dbq[{extra}]": _extra(extra) for extra in dict.fromkeys(EXTRAS.values())},
        "cores": str(os.cpu_count()),
        "engine": _engine(),
        "pages": _pages(),
        **_training(),
    }


def _training() -> dict[str, str]:
    try:
        import torch
    except ImportError:
        return {}
    from dbq.quantizers.native import LIBRARY, NATIVE

    return {
        "torch": str(torch.__version__),
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "threads": str(torch.get_num_threads()),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
        "training kernel": f"native ({LIBRARY.name})"
        if NATIVE
        else f"torch calls: {LIBRARY} does not load",
    }


def _engine() -> str:
    from dbq.deploy.engine import available_isas
    from dbq.errors import EngineError

    try:
        return f"libdbq with kernels for {', '.join(available_isas())}"
    except EngineError as error:
        return str(error)


def _extra(extra: str) -> str:
    """Whether the packages of an extra are there, and how to get them."""
    missing = [name for name, of in EXTRAS.items() if of == extra and find_spec(name) is None]
    return f"no {', '.join(missing)}: pip install 'dbq[{extra}]'" if missing else "complete"


def _pages() -> str:
    from dbq.deploy.page.page import browser_engine
    from dbq.errors import DbqError

    try:
        return f"dbq.wasm of {len(browser_engine()) / 1000:.0f} kB, with vectors of 128 bits"
    except DbqError as error:
        return str(error)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
