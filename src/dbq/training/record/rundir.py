"""RunDir: the directory of a run. Only this file knows the names of the files in it.

recipe.toml          the recipe, resolved: every default and override written out
run.json             version, command, machine
metrics.jsonl        a line for each epoch
last.safetensors     everything needed to resume
best.safetensors     the network of the best epoch so far, with its recipe inside
model.safetensors    the network of the last epoch, with its recipe inside
result.json          the result; the run is finished if and only if it exists
lock                 held by the process that trains; a line for each process that ever held it
error.txt            why a run of a sweep failed
net.dbq              the network as `dbq export` writes it
bench.json           put there by the user: the output of `dbq bench --json`, for reports
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from os.path import exists, isdir  # Path's raise for a name that is too long
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from dbq.errors import DbqError, TrainingError, first_line
from dbq.networks.weights import refuse_broken
from dbq.support.atomic import write_atomically
from dbq.support.checksum import sealed, unsealed
from dbq.support.lock import only_one
from dbq.training.processes.world import restarted_launch
from dbq.training.recipe import MachineOptions, Recipe, load_recipe
from dbq.training.record.checkpoint import read_checkpoint, write_checkpoint
from dbq.training.record.provenance import Provenance
from dbq.training.record.result import Result


class RunDir:
    """Reads and writes the files of a run; only the first process may write."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.last = path / "last.safetensors"
        self.best = path / "best.safetensors"
        self.final = path / "model.safetensors"
        self.deployed = path / "net.dbq"
        self._recipe = path / "recipe.toml"
        self._provenance = path / "run.json"
        self._metrics = path / "metrics.jsonl"
        self._result = path / "result.json"
        self._error = path / "error.txt"

    @property
    def is_finished(self) -> bool:
        return exists(self._result)

    @property
    def is_started(self) -> bool:
        return exists(self._recipe)

    def lock(self) -> AbstractContextManager[None]:
        """Hold the directory while training in it; LockedError if another process does."""
        return only_one(self.path / "lock", wait=False)

    def start(self, recipe: Recipe, provenance: Provenance) -> None:
        """State what is going to happen in the directory, which `lock` has made."""
        write_atomically(self._recipe, recipe.to_toml().encode())
        _write_json(self._provenance, asdict(provenance))

    def recipe(self, overrides: Sequence[str] = ()) -> Recipe:
        """The recipe that the run was started with; `overrides` are "section.key=value"."""
        if not self.is_started:
            raise TrainingError(f"{self._recipe}: no such file; expected a run of dbq train")
        return load_recipe(self._recipe, overrides)

    def look(self, recipe: Recipe, resume: bool) -> Result | None:
        """Check the directory before anything is written; the result, if the run is finished."""
        if not (self.is_finished or exists(self.last)):
            return None
        if not resume and not self._started_by_this_launch():
            raise TrainingError(
                f"{self.path} already holds a run: continue it with --resume, or choose another --out"
            )
        before = self.recipe()
        if _essence(before) != _essence(recipe):
            raise TrainingError(
                f"{self.path} was started with another recipe ({_difference(before, recipe)}): "
                "resume with the same one, or choose another --out"
            )
        return self.result() if self.is_finished else None

    def _started_by_this_launch(self) -> bool:
        """True if torchrun started this run and now restarts it because a process died."""
        now = restarted_launch()
        return now is not None and _read_json(self._provenance).get("launch") == now

    def checkpoint(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Tensors and metadata of the last checkpoint, if there is one."""
        if not exists(self.last):
            return None
        try:
            tensors, metadata = read_checkpoint(self.last)
            if "position" not in metadata:
                raise TrainingError(f"{self.last} is not a checkpoint of a run; delete it")
            refuse_broken(tensors, str(self.last))
        except DbqError as error:
            raise TrainingError(f"{error}{self._way_back()}") from None
        return tensors, metadata

    def _way_back(self) -> str:
        """What to do without the last checkpoint."""
        if not exists(self.best):
            return ""
        return (
            f"; the network of the best epoch is in {self.best}: start another run from it with "
            f"--set model.weights={self.best}"
        )

    def result(self) -> Result:
        """The result of the finished run."""
        return Result.from_json(_read_json(self._result), str(self._result))

    def write_result(self, result: Result) -> None:
        _write_json(self._result, result.to_json())

    def metrics(self) -> list[dict[str, Any]]:
        """A row for each epoch so far."""
        try:
            lines = self._metrics.read_text(encoding="utf-8").splitlines()
            return [json.loads(line) for line in lines]
        except (OSError, ValueError) as error:
            raise TrainingError(f"cannot read {self._metrics} ({type(error).__name__})") from None

    @property
    def epochs_done(self) -> int:
        """How many epochs are over, whether the run is finished or not."""
        return self._metrics.read_bytes().count(b"\n") if exists(self._metrics) else 0

    def write_metrics(self, rows: list[dict[str, Any]]) -> None:
        """Replace all lines: an epoch repeated after a crash must not appear twice."""
        text = "".join(json.dumps(row) + "\n" for row in rows)
        write_atomically(self._metrics, text.encode())

    def bench(self) -> dict[str, Any] | None:
        """Measured times of the exported network, if the user put them there."""
        path = self.path / "bench.json"
        return _read_json(path) if exists(path) else None

    def error(self) -> str:
        """Why the last attempt at an unfinished run failed; empty if it did not."""
        if self.is_finished or not exists(self._error):
            return ""
        return self._error.read_text(encoding="utf-8").partition("\n")[0]

    def write_error(self, text: str) -> None:
        """Note a failure: its first line is what `error` returns."""
        self.path.mkdir(parents=True, exist_ok=True)
        write_atomically(self._error, (text + "\n").encode())

    def clear_error(self) -> None:
        self._error.unlink(missing_ok=True)


def write_network(path: Path, model: nn.Module, recipe: Recipe, **metadata: Any) -> None:
    """A network with its recipe, so that the file can be used alone."""
    state: dict[str, Tensor] = model.state_dict()
    write_checkpoint(path, state, {"recipe": recipe.to_toml(), **metadata})


def read_network(path: Path) -> tuple[dict[str, Tensor], Recipe, dict[str, Any]]:
    """State dict, recipe and metadata of a file of `write_network`, or of a finished run."""
    if isdir(path):
        run = RunDir(path)
        if not exists(run.final) and exists(run.best):
            raise TrainingError(
                f"{path} holds a run that is not finished: continue it with dbq train --resume, or "
                f"give {run.best}"
            )
        path = run.final
    tensors, metadata = read_checkpoint(path)
    if "recipe" not in metadata:
        raise TrainingError(f"{path} holds no recipe; expected a network written by dbq train")
    return tensors, Recipe.from_toml(metadata["recipe"], f"{path}: recipe"), metadata


def _write_json(path: Path, data: Mapping[str, Any]) -> None:
    write_atomically(path, (json.dumps(sealed(data), indent=1) + "\n").encode())


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return unsealed(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise TrainingError(
            f"cannot read {path}: no such file; expected a finished run of dbq train"
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise TrainingError(
            f"cannot read {path} ({first_line(error)}); delete it and resume the run"
        ) from None


def _essence(recipe: Recipe) -> Recipe:
    """What decides the outcome: not how it is computed, nor where the data is today."""
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
