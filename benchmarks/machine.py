"""The options of benchmarks, and how they save what they measured, with the machine it was."""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tabular import RESULTS

from dbq.support.atomic import write_atomically
from dbq.training.record.provenance import machine


def options(about: str | None, **defaults: Any) -> argparse.ArgumentParser:
    """`--NAME VALUE` of the type of its default for each name; `--NAME` alone where that is False."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in defaults.items():
        if default is False:
            parser.add_argument(f"--{name}", action="store_true")
        else:
            parser.add_argument(f"--{name}", type=type(default), default=default)
    return parser


def save(name: str, command: str = "", **measured: Any) -> Path:
    """Write results/NAME.json: what was measured, by which command, when, on which machine."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    command = command or f"python benchmarks/{name}.py"
    date = datetime.now(UTC).date().isoformat()
    record = {"command": command, "date": date, "machine": machine(), **measured}
    write_atomically(path, (json.dumps(record, indent=1) + "\n").encode())
    return path


def headline() -> str:
    return "{cpu} ({instructions}), {threads} threads, torch {torch}".format(**machine())
