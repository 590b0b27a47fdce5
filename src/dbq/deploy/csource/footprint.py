"""footprint: the flash and RAM that a network takes as C source, before anything is compiled."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from dbq.deploy.csource.layers import TENSOR_BYTES
from dbq.deploy.csource.source import Source, to_c
from dbq.deploy.program import Program
from dbq.errors import LoweringError
from dbq.support.text import as_text, plain_table, printable

# Code of each section of kernels/, in bytes: arm-none-eabi-gcc 12, -O2, Cortex-M4. The largest of the
# processors that `--verify` knows takes a third more. Pairs stand in for "ternary" where they exist.
CODE = {
    "tensor": 0, "wide": 0, "code at": 60, "put code": 40, "window": 0, "softfloat": 850, "product": 0,
    "result": 0, "codes": 420, "floats": 200, "sums": 120, "wide codes": 450, "finish": 500,
    "values": 100, "rows": 0, "sum rows": 480, "ternary": 2700, "pairs": 0, "joined": 0,
    "depthwise": 1350, "dense": 1400, "pools": 160,
    "average pool": 200, "mean pool": 320, "max pool": 160, "lookup": 100, "add": 220,
    "requantize": 200, "multiply": 260, "curve": 420, "channels": 160, "pixels": 200, "bilinear": 400,
}  # fmt: skip
CODE_RUN, CODE_CALL = 150, 12  # NAME_run itself, and each layer in it
PAIRS_BYTES = 972  # row_pairs, where there are ternary layers


@dataclass(frozen=True)
class LayerFootprint:
    name: str
    method: str
    weights: int  # bytes of flash
    tables: int  # multipliers, floats and descriptions
    ram: int  # bytes of the arena in use while it runs
    macs: int


@dataclass(frozen=True)
class Footprint:
    """Bytes, and MACs. `flash` is `weights` + `tables` + `code`; `ram` is the arena."""

    name: str
    layers: tuple[LayerFootprint, ...]
    code: int
    arena: int

    @property
    def weights(self) -> int:
        return sum(layer.weights for layer in self.layers)

    @property
    def tables(self) -> int:
        return sum(layer.tables for layer in self.layers)

    @property
    def flash(self) -> int:
        return self.weights + self.tables + self.code

    def to_json(self) -> dict[str, Any]:
        totals = {"weights": self.weights, "tables": self.tables, "flash": self.flash}
        return {**asdict(self), **totals}

    def __str__(self) -> str:
        table = plain_table(["layer", "method", "weights", "tables", "RAM", "MMACs"], left=2)
        for layer in self.layers:
            cells = (layer.weights, layer.tables, layer.ram)
            macs = f"{layer.macs / 1e6:.2f}" if layer.macs else ""
            table.add_row(printable(layer.name), layer.method, *(f"{n:,}" for n in cells), macs)
        return as_text(
            table,
            f"{printable(self.name)}: flash {self.flash:,} bytes (weights {self.weights:,}, tables "
            f"{self.tables:,}, code about {self.code:,}), RAM {self.arena:,} bytes",
        )

    def require(self, flash: int | None, ram: int | None) -> None:
        """Raise LoweringError unless both budgets, in bytes, are kept; names the largest layer."""
        if flash is not None and self.flash > flash:
            most = max(self.layers, key=lambda layer: layer.weights + layer.tables)
            raise LoweringError(
                f"{self.name} needs {self.flash:,} bytes of flash, {self.flash - flash:,} over the "
                f"budget of {flash:,}; the largest layer is {most.name}, "
                f"{most.weights + most.tables:,} bytes"
            )
        if ram is not None and self.arena > ram:
            worst = max(self.layers, key=lambda layer: layer.ram)
            raise LoweringError(
                f"{self.name} needs {self.arena:,} bytes of RAM, {self.arena - ram:,} over the budget "
                f"of {ram:,}; most is in use in {worst.name}, {worst.ram:,} bytes"
            )


def footprint(program: Program, ram: int | None = None) -> Footprint:
    """Flash and RAM of `program` as C source; with `ram`, of the plan that fits it if one does."""
    return footprint_of(to_c(program, ram=ram))


def footprint_of(source: Source) -> Footprint:
    layers = tuple(
        LayerFootprint(
            layer.op.name, layer.method, layer.weight_bytes,
            layer.table_bytes + TENSOR_BYTES * len(layer.op.writes), live,
            source.program.macs(layer.op),
        )
        for layer, live in zip(source.layers, source.memory.live, strict=True)
    )  # fmt: skip
    code = sum(CODE[section] for section in source.sections) + CODE_RUN + CODE_CALL * len(layers)
    code += PAIRS_BYTES if "sum rows" in source.sections else 0
    return Footprint(source.name, layers, code, source.memory.bytes)
