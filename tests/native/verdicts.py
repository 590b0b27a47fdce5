"""What the two readers of .dbq files, in C++ and in Python, say about a file."""

from __future__ import annotations

from collections.abc import Iterable

from dbq.deploy.engine import load
from dbq.deploy.file.fileformat import read_program
from dbq.errors import EngineError, FileFormatError


def engine_accepts(content: bytes) -> bool | None:
    """None if the engine finds the network too large, which is no verdict on the file."""
    try:
        load(content).close()
    except FileFormatError:
        return False
    except EngineError:
        return None
    return True


def python_accepts(content: bytes) -> bool:
    try:
        read_program(content)
    except FileFormatError:
        return False
    return True


def disagreements(files: Iterable[bytes]) -> list[bytes]:
    """What one reader refuses and the other accepts."""
    verdicts = ((content, engine_accepts(content)) for content in files)
    return [
        content
        for content, verdict in verdicts
        if verdict is not None and verdict != python_accepts(content)
    ]
