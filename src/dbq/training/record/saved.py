"""A run's network from disk, built and filled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor, nn

from dbq.networks.weights import put_state
from dbq.training.networks import quantized_network
from dbq.training.recipe import Recipe
from dbq.training.record.rundir import read_network


def saved_network(path: Path) -> tuple[nn.Module, Recipe, dict[str, Any]]:
    """The network of a run's directory, or one of its networks; its recipe, and what is noted of it."""
    tensors, recipe, facts = read_network(path)
    model = quantized_network(recipe, _class_count(tensors), start=False)
    put_state(model, tensors, str(path))
    return model.eval(), recipe, facts


def _class_count(tensors: dict[str, Tensor]) -> int:
    """Rows of the last linear layer."""
    linear = [t for key, t in tensors.items() if key.endswith(".weight") and t.ndim == 2]
    return len(linear[-1])
