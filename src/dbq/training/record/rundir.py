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
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from dbq.errors import TrainingError
from dbq.support.atomic import write_atomically
from dbq.training.networks import FINAL
from dbq.training.processes.world import restarted_launch
from dbq.training.recipe import MachineOptions, Recipe
from dbq.training.record.checkpoint import read_checkpoint, write_checkpoint

BEST = "best.safetensors"


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
        self._write_json("run.json", facts)

    def recipe(self) -> Recipe:
        path = self.path / "recipe.toml"
        try:
            return Recipe.from_toml(path.read_text(encoding="utf-8"), str(path))
        except OSError as error:
            raise TrainingError(f"cannot read {path}: {error.strerror}; is it a run?") from None

    def look(self, recipe: Recipe, resume: bool) -> dict[str, Any] | None:
        """Check the directory before anything is written; the result, if the run is finished."""
        if not (self.result_path.exists() or self.last.exists()):
            return None
        if not resume and not self._begun_by_this_launch():
            raise TrainingError(
                f"{self.path} holds a run already: go on with --resume, or choose another --out"
            )
        before = self.recipe()
        if _essence(before) != _essence(recipe):
            raise TrainingError(
                f"{self.path} was begun with another recipe ({_difference(before, recipe)}): "
                "resume with the same one, or choose another --out"
            )
        return self._read_json("result.json") if self.result_path.exists() else None

    def _begun_by_this_launch(self) -> bool:
        """True if torchrun began this run, and now starts it again after a process died."""
        now = restarted_launch()
        return now is not None and self._read_json("run.json").get("launch") == now

    def checkpoint(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """What the last checkpoint holds, if there is one."""
        if not self.last.exists():
            return None
        tensors, facts = read_checkpoint(self.last)
        if "position" not in facts:
            raise TrainingError(f"{self.last}: no checkpoint of a run; delete it, or train again")
        return tensors, facts

    def write_result(self, result: Mapping[str, Any]) -> None:
        self._write_json("result.json", result)

    def _write_json(self, name: str, data: Mapping[str, Any]) -> None:
        write_atomically(self.path / name, (json.dumps(data, indent=1) + "\n").encode())

    def _read_json(self, name: str) -> dict[str, Any]:
        path = self.path / name
        try:
            data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise TrainingError(
                f"cannot read {path} ({type(error).__name__}); delete it and resume"
            ) from None
        return data

    def write_metrics(self, rows: list[dict[str, Any]]) -> None:
        """All lines anew: an epoch repeated after a crash must not be there twice."""
        text = "".join(json.dumps(row) + "\n" for row in rows)
        write_atomically(self.path / "metrics.jsonl", text.encode())

    def write_network(self, name: str, model: nn.Module, recipe: Recipe, **facts: Any) -> None:
        """A network with its recipe, so that the file can be used alone."""
        state: dict[str, Tensor] = model.state_dict()
        write_checkpoint(self.path / name, state, {"recipe": recipe.to_toml(), **facts})


def _essence(recipe: Recipe) -> Recipe:
    """What decides the outcome: not how it is computed, nor where the data lies today."""
    data = replace(recipe.data, directory="", workers=0)
    return replace(recipe, machine=MachineOptions(), data=data)


def _difference(before: Recipe, now: Recipe) -> str:
    """The first key in which two recipes differ."""
    old, new = (tomllib.loads(_essence(recipe).to_toml()) for recipe in (before, now))
    for key in old.keys() | new.keys():
        a, b = old.get(key), new.get(key)
        if a == b:
            continue
        if isinstance(a, dict) and isinstance(b, dict):
            inner = next(name for name in a if a[name] != b.get(name))
            return f"{key}.{inner} = {a[inner]!r} there, {b[inner]!r} now"
        return f"{key} = {a!r} there, {b!r} now"
    raise AssertionError("the recipes are the same")


def read_network(path: Path) -> tuple[dict[str, Tensor], Recipe, dict[str, Any]]:
    """State dict, recipe and facts of a network written by `RunDir.write_network`."""
    if path.is_dir():
        if not (path / FINAL).exists() and (path / BEST).exists():
            raise TrainingError(
                f"{path} holds a run that is not finished: go on with dbq train --resume, or give "
                f"{path / BEST}"
            )
        path = path / FINAL
    tensors, facts = read_checkpoint(path)
    if "recipe" not in facts:
        raise TrainingError(
            f"{path} holds no recipe; expected {FINAL} or {BEST} of a run of dbq train"
        )
    return tensors, Recipe.from_toml(facts["recipe"], f"{path}: recipe"), facts
