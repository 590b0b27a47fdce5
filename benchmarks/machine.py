"""How benchmarks save what they measured, with the machine they measured it on."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dbq.support.atomic import write_atomically
from dbq.training.record.provenance import machine

RESULTS = Path(__file__).parents[1] / "results"


def save(name: str, command: str, **measured: Any) -> Path:
    """Write results/NAME.json: what was measured, by which command, when, on which machine."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    date = datetime.now(UTC).date().isoformat()
    record = {"command": command, "date": date, "machine": machine(), **measured}
    write_atomically(path, (json.dumps(record, indent=1) + "\n").encode())
    return path


def headline() -> str:
    facts = machine()
    return (
        f"{facts['cpu']} ({facts['instructions']}), {facts['threads']} threads, "
        f"torch {facts['torch']}"
    )
