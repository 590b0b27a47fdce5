"""Result: the accuracy and cost of a finished run, and their JSON form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar

from dbq.costs.rules import Totals
from dbq.errors import TrainingError
from dbq.support import toml
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
        return {**data, **provenance, "machine": dict(self.provenance.machine)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any], source: str = "result") -> Result:
        """Read what `to_json` made; keys that this version does not know are ignored."""
        return _part(
            cls, data, source,
            test=_part(EvaluationSet, data.get("test"), f"{source}: test"),
            cost=_part(Totals, data.get("cost"), f"{source}: cost"),
            provenance=_part(Provenance, data, source),
        )  # fmt: skip


def _part(kind: type[Part], data: object, source: str, **parts: Any) -> Part:
    known = {entry.name for entry in fields(kind)} - parts.keys()  # type: ignore[arg-type]
    table = data
    if isinstance(data, Mapping):
        table = {key: value for key, value in data.items() if key in known}
    return toml.build(kind, table, source, TrainingError, **parts)
