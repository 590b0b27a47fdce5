"""Shared by all tests: seeds, thread count, and the data that lives beside the repository."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

SEED = 20200823
SHARED = Path(__file__).parents[2] / "shared" / "data"


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(SEED)


def pytest_report_header() -> str:
    return f"dbq: torch seed {SEED} before every test, {torch.get_num_threads()} torch threads"


@pytest.fixture(scope="session")
def resnet20_weights() -> Path:
    path = SHARED / "resnet20-cifar10-fp.safetensors"
    if not path.exists():
        pytest.skip(f"float ResNet-20 weights not at {path}")
    return path
