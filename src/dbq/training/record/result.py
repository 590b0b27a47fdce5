"""Result: the accuracy and cost of a finished run, and their JSON form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any, TypeVar

from dbq.costs.rules import Totals
from dbq.errors import TrainingError
from dbq.training.record.provenance import Provenance

Part = TypeVar("Part")


@dataclass(frozen=True)
class EvaluationSet:
    """The images that accuracies were measured on."""

    data: str
    split: str
    images: int


@dataclass(frozen=True)
class Result:
    """Accuracies in percent, of the hard network on the whole test set. Epochs count from 0."""

    recipe: str
    about: str
    plan: str
    seed: int
    epochs: int
    top1: float
    top5: float
    best_top1: float
    best_epoch: int
    paper_top1: float | None
    test: EvaluationSet
    seconds: float
    cost: Totals
    provenance: Provenance

    def to_json(self) -> dict[str, Any]:
        """Plain data: the fields, with those of `provenance` beside them."""
        data = asdict(self)
        provenance = data.pop("provenance")
        return {**data, **provenance}

    @classmethod
    def from_json(cls, data: Mapping[str, Any], source: str = "result") -> Result:
        """Read what `to_json` made; keys that this version does not know are ignored."""
        parts = {
            "test": _part(EvaluationSet, data.get("test", {}), source),
            "cost": _part(Totals, data.get("cost", {}), source),
            "provenance": _part(Provenance, data, source),
        }
        return _part(cls, {**data, **parts}, source)


def _part(kind: type[Part], data: Mapping[str, Any], source: str) -> Part:
    known = fields(kind)  # type: ignore[arg-type]
    for entry in known:
        if entry.default is MISSING and entry.name not in data:
            raise TrainingError(
                f"{source} has no {entry.name}: it is not the result of a finished run"
            )
    return kind(**{entry.name: data[entry.name] for entry in known if entry.name in data})
