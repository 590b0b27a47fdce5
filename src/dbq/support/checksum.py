"""Checksums inside the files they protect: a flipped bit must not become another result.

The SHA-256 is one more key of a JSON object. It covers the other keys, in any order and layout, and
blocks of bytes stored beside the object. Objects of earlier versions have none and are not checked.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

KEY = "sha256"


class ChecksumError(ValueError):
    """The content is not what was written."""


def sealed(data: Mapping[str, Any], blocks: Iterable[Any] = ()) -> dict[str, Any]:
    """`data` with its checksum; `blocks` are bytes, or whatever has their interface.

    >>> unsealed(sealed({"top1": 90.5}))
    {'top1': 90.5}
    >>> unsealed({**sealed({"top1": 90.5}), "top1": 98.5})
    Traceback (most recent call last):
    dbq.support.checksum.ChecksumError: its checksum does not match
    """
    plain = json.loads(json.dumps(data))  # as it will be read: keys become strings
    return {**data, KEY: _digest(plain, blocks)}


def unsealed(data: object, blocks: Iterable[Any] = ()) -> dict[str, Any]:
    """What `sealed` was given, or ChecksumError."""
    if not isinstance(data, dict):
        raise ChecksumError("not an object")
    rest = {key: value for key, value in data.items() if key != KEY}
    if KEY in data and data[KEY] != _digest(rest, blocks):
        raise ChecksumError("its checksum does not match")
    return rest


def _digest(data: Mapping[str, Any], blocks: Iterable[Any]) -> str:
    digest = hashlib.sha256(json.dumps(data, sort_keys=True).encode())
    for block in blocks:
        digest.update(block)
    return digest.hexdigest()
