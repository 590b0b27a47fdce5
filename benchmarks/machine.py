"""What every benchmark says about the machine, and how it saves what it measured."""

from __future__ import annotations

import json
import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

import dbq

RESULTS = Path(__file__).parents[1] / "results"


def machine() -> dict[str, Any]:
    """CPU, threads and versions."""
    return {
        "cpu": _cpu_name(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "dbq": dbq.__version__,
    }


def save(name: str, command: str, **measured: Any) -> Path:
    """Write results/NAME.json: what was measured, by which command, when and on what."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    date = datetime.now(UTC).date().isoformat()
    record = {"command": command, "date": date, "machine": machine(), **measured}
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    partial.replace(path)
    return path


def headline() -> str:
    facts = machine()
    return (
        f"{facts['cpu']} ({facts['instructions']}), {facts['threads']} threads, "
        f"torch {facts['torch']}"
    )


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
