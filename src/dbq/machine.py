"""What a number was measured on."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

from dbq.version import __version__


def machine() -> dict[str, Any]:
    """CPU, threads and versions."""
    import torch

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
