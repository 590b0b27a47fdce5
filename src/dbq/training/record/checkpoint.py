"""Checkpoints: one safetensors file, tensors and a little JSON, replaced atomically."""

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
