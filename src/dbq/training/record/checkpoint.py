"""Checkpoints: one safetensors file of tensors and a little JSON, replaced atomically."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from dbq.errors import TrainingError, first_line
from dbq.networks.tensorfile import DAMAGES, read_tensors, tensor_bytes
from dbq.support.atomic import write_atomically
from dbq.support.regular import why_unreadable


def write_checkpoint(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]
) -> None:
    """Write tensors and metadata to `path`, whole or not at all."""
    write_atomically(path, tensor_bytes(tensors, metadata))


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and metadata of a file written by `write_checkpoint`."""
    if reason := why_unreadable(path):
        raise TrainingError(f"{path}: {reason}; expected a checkpoint of dbq train")
    try:
        return read_tensors(path)
    except DAMAGES as error:
        raise TrainingError(
            f"{path}: not a whole checkpoint of dbq train ({first_line(error)}); "
            "delete it, or train again"
        ) from None
