"""Photographs for the tests of data sets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.photographs import write_photograph

Photograph = Callable[..., Path]


@pytest.fixture
def photograph() -> Photograph:
    return write_photograph
