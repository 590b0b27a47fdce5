"""Progress: how long work tells whoever started it how far it is."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]  # what is being done, how much of it, of how much


def silent(what: str, done: int, total: int) -> None:
    """The progress nobody watches."""
