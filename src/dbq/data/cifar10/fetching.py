"""Downloading a file: it appears under its name only once its checksum is right."""

from __future__ import annotations

import hashlib
import http.client
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dbq.errors import DataError, first_line
from dbq.support.atomic import replacing
from dbq.support.progress import Progress, silent

CHUNK = 1 << 20
TIMEOUT = 30  # seconds without an answer


def fetch(url: str, path: Path, md5: str, progress: Progress = silent) -> None:
    """Write `url` to `path`, unless its checksum is wrong. A failure leaves nothing behind."""
    by_hand = f"download it elsewhere, put it at {path} and run this again"
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT) as answer, _folder(path.parent):
            total = int(answer.headers.get("Content-Length") or 0)
            digest = hashlib.md5(usedforsecurity=False)
            with replacing(path) as file:
                while chunk := answer.read(CHUNK):
                    file.write(chunk)
                    digest.update(chunk)
                    progress(path.name, file.tell(), total)
                if (found := digest.hexdigest()) != md5:
                    raise DataError(
                        f"{url} has md5 {found}, expected {md5}: try again, or {by_hand}"
                    )
    except (OSError, ValueError, http.client.HTTPException) as error:  # no network, no space, ...
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None)
        raise DataError(f"cannot fetch {url}: {reason or first_line(error)}; {by_hand}") from None


@contextmanager
def _folder(path: Path) -> Iterator[None]:
    """Make a folder; an error removes what was made, if it is still empty."""
    made = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        with suppress(OSError):
            for folder in made:
                folder.rmdir()
        raise


def md5_of(path: Path) -> str:
    """The checksum that publishers of old data sets print. It detects accidents, not attacks."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
