"""Safetensors files with an object of JSON and a checksum over everything."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from dbq.support.checksum import sealed, unsealed

METADATA_KEY = "dbq"  # of our JSON among the strings that a safetensors file carries
REPLACEMENTS = 20  # of a file while it is read, after which it counts as damaged
DAMAGES = (SafetensorError, OSError, ValueError, RecursionError)  # what `read_tensors` raises


def tensor_bytes(tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> bytes:
    """The contents of a file."""
    # Each tensor gets its own memory: safetensors refuses tensors that share storage.
    plain = {key: tensor.detach().cpu().contiguous().clone() for key, tensor in tensors.items()}
    # One string only: safetensors writes several in random order.
    text = json.dumps(sealed(metadata, _blocks(plain)))
    return save(plain, metadata={METADATA_KEY: text})


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and metadata of a safetensors file, ours or not; ChecksumError if they have changed.

    safetensors opens the file twice. A run that saves in between replaces it, and what was read is half
    of each; then it is read again.
    """
    for _ in range(REPLACEMENTS):
        before = path.stat()
        try:
            return _read_tensors(path)
        except DAMAGES:
            after = path.stat()
            if (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns):
                raise
    return _read_tensors(path)


def _read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    with safe_open(path, framework="pt") as file:
        text = (file.metadata() or {}).get(METADATA_KEY, "{}")
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    return tensors, unsealed(json.loads(text), _blocks(tensors))


def _blocks(tensors: Mapping[str, Tensor]) -> Iterator[Any]:
    """Names, types, shapes and contents."""
    for key in sorted(tensors):
        tensor = tensors[key]
        yield f"{key} {tensor.dtype} {list(tensor.shape)}\n".encode()
        # A tensor of one element is contiguous whatever its stride, but bytes are seen only of stride 1.
        flat = tensor.contiguous()
        yield flat.as_strided((flat.numel(),), (1,)).view(torch.uint8).numpy()
