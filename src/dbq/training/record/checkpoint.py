"""Checkpoints: one safetensors file of tensors and a little JSON, replaced atomically."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from dbq.errors import TrainingError
from dbq.support.atomic import write_atomically
from dbq.support.regular import why_unreadable

METADATA_KEY = "dbq"  # of our JSON among the strings that a safetensors file carries


def write_checkpoint(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]
) -> None:
    """Write tensors and metadata to `path`, whole or not at all."""
    # Each tensor gets its own memory: safetensors refuses tensors that share storage.
    plain = {key: tensor.detach().cpu().contiguous().clone() for key, tensor in tensors.items()}
    write_atomically(path, save(plain, metadata={METADATA_KEY: json.dumps(metadata)}))


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and metadata of a file written by `write_checkpoint`."""
    if reason := why_unreadable(path):
        raise TrainingError(f"{path}: {reason}; expected a checkpoint of dbq train")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = json.loads((file.metadata() or {}).get(METADATA_KEY, "{}"))
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise TrainingError(
            f"{path}: not a whole checkpoint of dbq train ({type(error).__name__}); "
            "delete it, or train again"
        ) from None
    return tensors, metadata
