"""Checkpoints: one safetensors file, tensors and a little JSON, replaced atomically.

The file on disk is at every moment either the old one or the new one, whole: it is written under another
name, forced to disk, and renamed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from dbq.errors import TrainingError

FACTS = "dbq"  # the key of our JSON in the file's metadata


def write_checkpoint(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Write tensors and facts to `path`, whole or not at all."""
    # Every tensor gets memory of its own: safetensors refuses views that share it.
    plain = {key: tensor.detach().cpu().contiguous().clone() for key, tensor in tensors.items()}
    write_atomically(path, save(plain, metadata={FACTS: json.dumps(facts)}))


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and facts of a file written by `write_checkpoint`."""
    try:
        with safe_open(path, framework="pt") as file:
            facts = json.loads((file.metadata() or {}).get(FACTS, "{}"))
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise TrainingError(f"{path}: no such file; expected a checkpoint of dbq train") from None
    except (SafetensorError, OSError, ValueError) as error:
        raise TrainingError(
            f"{path}: not a whole checkpoint of dbq train ({type(error).__name__}); "
            "delete it, or train again"
        ) from None
    return tensors, facts


def write_atomically(path: Path, content: bytes) -> None:
    """Replace the file at `path` by `content`; an error leaves the old file as it was."""
    partial = path.with_name(path.name + ".partial")
    try:
        with open(partial, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        _sync_directory(path.parent)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise TrainingError(
            f"cannot write {path}: {error.strerror}; what was there before is untouched"
        ) from None


def _sync_directory(directory: Path) -> None:
    """Force a rename to disk; some file systems cannot, and then it is as safe as they are."""
    try:
        handle = os.open(directory, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)
