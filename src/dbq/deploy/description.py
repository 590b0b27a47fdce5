"""What a loaded network runs, layer by layer."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class LayerInfo:
    """One operation. The type and shape are those of its (first) output."""

    name: str
    kind: str
    precision: str  # of the weights: "2T", "8b", or ""
    kernel: str  # "" where nothing has to run
    type: str
    shape: tuple[int, int, int]  # channels, height, width
    weight_bytes: int  # in memory
    macs: int


@dataclass(frozen=True)
class Description:
    """Prints as a table; `to_json` has the same facts for programs."""

    name: str
    isa: str
    threads: int
    peak_memory: int
    load_milliseconds: float
    layers: tuple[LayerInfo, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        from dbq.support.text import aligned, short

        heads = ["layer", "kind", "precision", "output", "kernel", "weights", "MMACs"]
        rows = [
            (
                layer.name,
                layer.kind,
                layer.precision,
                f"{layer.type} {'x'.join(map(str, layer.shape))}",
                layer.kernel,
                f"{layer.weight_bytes:,}" if layer.weight_bytes else "",
                f"{layer.macs / 1e6:.2f}" if layer.macs else "",
            )
            for layer in self.layers
        ]
        weights = sum(layer.weight_bytes for layer in self.layers)
        macs = sum(layer.macs for layer in self.layers)
        last = (
            f"{self.name}: {short(macs)} MACs, {short(weights)} bytes of weights, "
            f"{short(self.peak_memory)} bytes in all; {self.isa}, {self.threads} threads, "
            f"loaded in {self.load_milliseconds:.1f} ms"
        )
        return f"{aligned(heads, rows, left=5)}\n\n{last}"
