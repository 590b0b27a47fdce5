"""export: from a network that was trained in a loop of the user's own to a .dbq file, in one call."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from dbq.deploy.file.fileformat import save
from dbq.deploy.program import Program
from dbq.errors import LoweringError
from dbq.lowering.agreement import Agreement
from dbq.lowering.lower import lower
from dbq.support.text import short


@dataclass(frozen=True)
class Exported:
    """A file that `export` has written. `print` shows its size, what computes it, and how it agrees."""

    path: Path
    bytes: int
    float_bytes: int  # of the network's own parameters in float32
    ternary_share: float  # of the multiply-accumulates: done by additions; the others are 8-bit
    agreement: Agreement
    program: Program = field(repr=False)

    def to_json(self) -> dict[str, Any]:
        """The same as plain data, without the program."""
        facts = {"path": str(self.path), "agreement": asdict(self.agreement)}
        kept = ("bytes", "float_bytes", "ternary_share")
        return {**facts, **{name: getattr(self, name) for name in kept}}

    def __str__(self) -> str:
        smaller = self.float_bytes / self.bytes
        return (
            f"{self.path}: {short(self.bytes)}B, {smaller:.1f} times smaller than the float weights\n"
            f"{100 * self.ternary_share:.1f} % of the MACs in ternary branches, the rest fixed-point\n"
            f"{self.agreement}"
        )


def export(
    model: nn.Module,
    example_input: Tensor,
    path: str | os.PathLike[str],
    *,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    classes: Sequence[str] = (),
    resize_length: int = 0,
    name: str = "",
) -> Exported:
    """Lower a prepared, trained network, compare the program with it, and write a .dbq file.

    `example_input` [N, C, H, W] are images as the network sees them, on which the two are compared;
    `mean` and `std` say how they were made from pixels, as in `dbq.lower`. `classes` are the names that
    `Net.classify` and `dbq run` show. `resize_length` is what the shorter side of a test image became
    before its centre was cropped (256 for most networks at 224); without it an image is scaled to just
    cover the network's size.

    >>> import dbq, tempfile, torch
    >>> model = dbq.create_model("mobilenet_v1", num_classes=2, width=0.25, small_input=True)
    >>> images = torch.rand(2, 3, 32, 32)
    >>> _ = dbq.prepare(model, "dbq-2t-4", images), dbq.calibrate(model, [images])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     done = dbq.export(model, images, f"{folder}/net.dbq", classes=["cat", "dog"])
    ...     best = dbq.load(done.path).classify(torch.zeros(40, 50, 3, dtype=torch.uint8).numpy())
    >>> round(done.ternary_share, 2), sorted(guess.name for guess in best)
    (0.88, ['cat', 'dog'])
    """
    facts: dict[str, Any] = {}
    if resize_length:
        side = max(example_input.shape[2:])
        if not (isinstance(resize_length, int) and side <= resize_length <= 4 * side):
            raise LoweringError(
                f"resize_length is {resize_length!r}; expected {side} to {4 * side}"
            )
        facts["resize_length"] = resize_length
    program = lower(
        model, example_input, mean=mean, std=std, name=name, classes=classes, report=None
    )
    program = program.with_facts(**facts)
    size = save(program, path)
    macs = {op: program.macs(op) for op in program.convolutions}
    ternary = sum(count for op, count in macs.items() if op.precision.endswith("T"))
    parameters = model.named_parameters()
    floats = sum(value.numel() for key, value in parameters if "_quantizer." not in key)
    return Exported(
        Path(path), size, 4 * floats,
        ternary / sum(macs.values()), Agreement(**program.facts["agreement"]), program,
    )  # fmt: skip
