"""Downloading a file: it appears under its name only once its checksum is right."""

from __future__ import annotations

import hashlib
import http.client
import urllib.request
from pathlib import Path

from dbq.errors import DataError, first_line
from dbq.support.progress import Progress, silent

CHUNK = 1 << 20
TIMEOUT = 30  # seconds without an answer


def fetch(url: str, path: Path, md5: str, progress: Progress = silent) -> None:
    """Write `url` to `path`, unless its checksum is wrong."""
    partial = path.with_name(path.name + ".partial")
    by_hand = f"download it elsewhere, put it at {path} and run this again"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with urllib.request.urlopen(url, timeout=TIMEOUT) as answer, partial.open("wb") as file:
            total = int(answer.headers.get("Content-Length") or 0)
            while chunk := answer.read(CHUNK):
                file.write(chunk)
                progress(path.name, file.tell(), total)
        found = md5_of(partial)
        if found != md5:
            raise DataError(f"{url} has md5 {found}, expected {md5}: try again, or {by_hand}")
        partial.replace(path)
    except (OSError, ValueError, http.client.HTTPException) as error:  # no network, no space, ...
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None)
        raise DataError(f"cannot fetch {url}: {reason or first_line(error)}; {by_hand}") from None
    finally:
        partial.unlink(missing_ok=True)


def md5_of(path: Path) -> str:
    """The checksum that publishers of old data sets print. It detects accidents, not attacks."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
