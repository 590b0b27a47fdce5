"""What `quantize` did: a row for each layer, and one for each stage."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from dbq.posttraining.agreement import Agreement
from dbq.support.text import as_text, plain_table


@dataclass(frozen=True)
class QuantizedLayer:
    """A layer. Output errors are mean squares relative to the float output's, on the same images.

    Places and channels count in them by what they do to the network's outputs. `weight_error` is
    |w_q - w| / |w| against the float weight: where outputs are what is fitted, it may be larger than
    that of plain rounding. `range` is the largest input that is not clipped.
    """

    name: str
    role: str
    shape: tuple[int, ...]
    weight: str
    input: str
    weight_error: float | None
    error_before: float | None
    error: float | None
    range: float | None
    images: int
    seconds: float


@dataclass(frozen=True)
class Stage:
    """A stage, and the agreement with the float network on held-out images before and after it."""

    name: str
    before: Agreement
    after: Agreement
    kept: bool
    seconds: float


@dataclass(frozen=True)
class Quantization:
    """The summary of `dbq.quantize`; prints as two tables."""

    plan: str
    images: int
    held_out: int
    layers: tuple[QuantizedLayer, ...]
    stages: tuple[Stage, ...]
    notes: tuple[str, ...]

    @property
    def agreement(self) -> Agreement:
        """That of the network as it is now."""
        kept = [stage.after for stage in self.stages if stage.kept]
        return kept[-1] if kept else self.stages[0].before

    def to_json(self) -> dict[str, Any]:
        """A dict of plain values."""
        return asdict(self)

    def __str__(self) -> str:
        table = plain_table(
            ["layer", "role", "weight", "input", "weight error", "output error", "fitted", "range"],
            left=4,
        )
        for row in self.layers:
            numbers = (row.weight_error, row.error_before, row.error)
            cells = ["" if number is None else f"{number:.4f}" for number in numbers]
            limit = "" if row.range is None else f"{row.range:.3g}"
            table.add_row(row.name, row.role, row.weight, row.input, *cells, limit)
        stages = plain_table(["stage", "", "same class", "distance", "seconds"], left=2)
        for stage in self.stages:
            same = "" if stage.after.same is None else f"{100 * stage.after.same:.1f} %"
            kept = "kept" if stage.kept else "undone"
            stages.add_row(
                stage.name, kept, same, f"{stage.after.distance:.4f}", f"{stage.seconds:.1f}"
            )
        heading = (
            f"plan {self.plan}, fitted to {self.images} images, judged by {self.held_out} others"
        )
        return as_text(heading, table, stages, *(f"note: {note}" for note in self.notes))
