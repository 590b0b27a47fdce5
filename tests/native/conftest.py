"""The native test programs, by the way they were built."""

from __future__ import annotations

import pytest

from tests.native.programs import Programs


@pytest.fixture(scope="session")
def plain() -> Programs:
    """Optimised as in the package."""
    return Programs("plain")


@pytest.fixture(scope="session")
def sanitized() -> Programs:
    """These stop at the first bad access and at undefined behaviour."""
    return Programs("asan")


@pytest.fixture(scope="session")
def thread_sanitized() -> Programs:
    """These stop at the first data race."""
    return Programs("tsan")
