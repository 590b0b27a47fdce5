"""The sweep that several test files train, and what its runs must come to."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.experiments.sweep.small import FOUR_RUNS, train_plainly, write


@pytest.fixture(scope="session")
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four runs, for the tests that train them all."""
    return write(tmp_path_factory.mktemp("short"), FOUR_RUNS)


@pytest.fixture(scope="session")
def plain(short: Path) -> Path:
    """What the sweep must come to."""
    return train_plainly(short, short.parent / "plain")
