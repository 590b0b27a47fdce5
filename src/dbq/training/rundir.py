"""RunDir: the files of a run, and nothing else about it.

recipe.toml          the recipe, resolved: every default and override written out
run.json             version, command, machine
metrics.jsonl        a line an epoch
last.safetensors     everything needed to go on
best.safetensors     the network of the best epoch so far, with its recipe inside
model.safetensors    the network of the last epoch, with its recipe inside
result.json          what came out; its presence means that the run is finished
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from dbq.errors import TrainingError
from dbq.recipe import Recipe
from dbq.training.build import FINAL
from dbq.training.checkpoint import read_checkpoint, write_atomically, write_checkpoint


class RunDir:
    """Reads and writes a run's files; only the first process may write."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def last(self) -> Path:
        return self.path / "last.safetensors"

    @property
    def result_path(self) -> Path:
        return self.path / "result.json"

    def start(self, recipe: Recipe, facts: Mapping[str, Any]) -> None:
        """Make the directory and say what will happen in it."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise TrainingError(f"cannot make {self.path}: {error.strerror}") from None
        write_atomically(self.path / "recipe.toml", recipe.to_toml().encode())
        self.write_json("run.json", facts)

    def recipe(self) -> Recipe:
        path = self.path / "recipe.toml"
        try:
            return Recipe.from_toml(path.read_text(encoding="utf-8"), str(path))
        except OSError as error:
            raise TrainingError(f"cannot read {path}: {error.strerror}; is it a run?") from None

    def write_json(self, name: str, data: Mapping[str, Any]) -> None:
        write_atomically(self.path / name, (json.dumps(data, indent=1) + "\n").encode())

    def result(self) -> dict[str, Any]:
        data: dict[str, Any] = json.loads(self.result_path.read_text(encoding="utf-8"))
        return data

    def metrics(self) -> list[dict[str, Any]]:
        """The epochs so far. A line cut short by a crash ends the list."""
        path = self.path / "metrics.jsonl"
        rows: list[dict[str, Any]] = []
        if path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                try:
                    rows.append(json.loads(line))
                except json.JSONDecodeError:
                    break
        return rows

    def write_metrics(self, rows: list[dict[str, Any]]) -> None:
        """All lines anew: an epoch repeated after a crash must not be there twice."""
        text = "".join(json.dumps(row) + "\n" for row in rows)
        write_atomically(self.path / "metrics.jsonl", text.encode())

    def write_network(self, name: str, model: nn.Module, recipe: Recipe, **facts: Any) -> None:
        """A network with its recipe, so that the file can be used alone."""
        state: dict[str, Tensor] = model.state_dict()
        write_checkpoint(self.path / name, state, {"recipe": recipe.to_toml(), **facts})


def read_network(path: Path) -> tuple[dict[str, Tensor], Recipe, dict[str, Any]]:
    """State dict, recipe and facts of a network written by `RunDir.write_network`."""
    if path.is_dir():
        path = path / FINAL
    tensors, facts = read_checkpoint(path)
    if "recipe" not in facts:
        raise TrainingError(
            f"{path}: holds no recipe; expected {FINAL} or best.safetensors of a run"
        )
    return tensors, Recipe.from_toml(facts["recipe"], f"{path}: recipe"), facts
