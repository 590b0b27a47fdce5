"""Progress callbacks for long-running work."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]  # what is being done, how much is done, of how much


def silent(what: str, done: int, total: int) -> None:
    """Ignores progress."""
