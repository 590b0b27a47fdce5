"""Shared by all tests, the examples in docstrings included: seeds and thread counts."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

# `make test` runs two workers: with two threads each, torch's would spin against each other. This has to
# be said before torch is imported, and goes for the processes that tests start, too.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
# torch.compile's cache does not tell code for one ATEN_CPU_CAPABILITY from code for another.
os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(
    Path(tempfile.gettempdir(), f"torchinductor-{os.environ.get('ATEN_CPU_CAPABILITY', 'any')}")
)

import pytest
import torch

SEED = 20200823


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(SEED)


def pytest_report_header() -> str:
    return f"dbq: torch seed {SEED} before every test, {torch.get_num_threads()} torch threads"
