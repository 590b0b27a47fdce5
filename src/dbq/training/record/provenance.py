"""Where a result came from: code, command, machine."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from dbq.training.processes.world import World, launch
from dbq.training.recipe import Recipe
from dbq.version import __version__


@dataclass(frozen=True)
class Provenance:
    """The circumstances of a run; they are part of its result."""

    revision: str | None = None
    date: str = ""
    command: str = ""
    processes: int = 1
    launch: str | None = None  # torchrun's name for the launch
    machine: Mapping[str, Any] = field(default_factory=dict)
    weights: str = ""  # what the network started from

    @classmethod
    def of(cls, recipe: Recipe, world: World) -> Provenance:
        """The circumstances of a run that this process starts."""
        device = world.device
        gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else None
        return cls(
            revision=revision(),
            date=datetime.now(UTC).date().isoformat(),
            command=" ".join(["dbq", *sys.argv[1:]]),
            processes=world.size,
            launch=launch(),
            machine={**machine(), "device": device.type, "gpu": gpu},
            weights=recipe.model.weights,
        )


def revision() -> str | None:
    """The commit of the code if it is in a git work tree, with "+" if files have changed since."""
    here = Path(__file__).parent
    try:
        _git(here, "ls-files", "--error-unmatch", Path(__file__).name)  # else the tree is not ours
        commit = _git(here, "rev-parse", "--short=12", "HEAD")
        changed = _git(here, "status", "--porcelain", "--untracked-files=no", "--", ".")
    except (OSError, subprocess.SubprocessError):
        return None
    return commit + ("+" if changed else "")


def _git(directory: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(directory), *arguments],
        capture_output=True, text=True, check=True, timeout=10,
    )  # fmt: skip
    return done.stdout.strip()


def machine() -> dict[str, Any]:
    """CPU, threads and versions."""
    return {
        "cpu": _cpu_name(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "dbq": __version__,
    }


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
