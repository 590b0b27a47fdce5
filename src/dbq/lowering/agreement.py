"""Comparing an integer program with the network it came from, tensor by tensor, in two ways.

Step by step: each operation reads torch's codes, and what it writes is compared with torch's. Rounding
explains a difference of one 8-bit code, and of WIDE_TOLERANCE in 32-bit codes and outputs; more is an
error in the lowering. Every operation is judged, so a program that passes computes what torch computes.
End to end: the program runs on its own codes, so that small differences accumulate. In a trained network
they stay small; one that is not may amplify them, which the report says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dbq.deploy import reference
from dbq.deploy.program import Program
from dbq.deploy.tensors import DTYPES, Array, Grid
from dbq.errors import LoweringError
from dbq.lowering.emission import Emitted
from dbq.model.reading.recording import Recording, record
from dbq.support.text import counted

# Shares of the largest value of a tensor. Float sums of 2^16 terms and the segments of curves stay well
# below the first; a tensor whose torch value is wrong by a missing operation does not.
WIDE_TOLERANCE = 2.0**-9
# Beyond this share of the largest logit, the report warns.
USUAL_ERROR = 0.1


@dataclass(frozen=True)
class Agreement:
    """How a program compares with the network it was lowered from."""

    images: int
    codes: int  # 8-bit activations compared, step by step
    different: int  # of these, how many differ (by one)
    end_to_end: float  # share of 8-bit activations that are equal when the program runs by itself
    largest_logit_error: float  # as a share of the largest logit
    same_top1: int  # images with the same class
    # What rounding scales to whole ratios moved the weights of a kernel by, as a share of their norm.
    # The network that the program is compared with is the rounded one.
    moved_mean: float = 0.0
    moved_most: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        text = (
            f"integer program against torch on {counted(self.images, 'image')}: "
            f"{self.different:,} of {self.codes:,} activation codes differ, by 1; end to end "
            f"{100 * self.end_to_end:.2f} % of codes equal, "
            f"logits within {100 * self.largest_logit_error:.2g} %, "
            f"same class for {self.same_top1} of {self.images}"
        )
        if self.moved_most:
            text += (
                f"; whole ratios of scales moved weights by {100 * self.moved_mean:.2g} % on average, "
                f"{100 * self.moved_most:.2g} % in one kernel"
            )
        if self.largest_logit_error > USUAL_ERROR:
            text += (
                ". WARNING: every operation agrees, but the network amplifies small differences: "
                "is it trained and calibrated?"
            )
        return text


@torch.no_grad()
def compare(
    model: nn.Module, recording: Recording, emitted: Emitted, x: Tensor, images: Array,
    moved: Sequence[Tensor] = (),
) -> Agreement:  # fmt: skip
    """Compare on uint8 `images`, for which torch reads `x`; raise if they differ by more than rounding.

    `recording` is the run that the program was made of. The comparison records another, and raises if
    it takes another course. `moved` is what whole ratios did to the kernels of each layer.
    """
    program = emitted.program
    expected = _torchs_codes(model, recording, emitted, x)
    known: dict[int, Array] = {}  # torch's codes where torch has the tensor, else the program's
    compared = different = 0
    for op in program.operations:
        inputs = [known[i] for i in op.reads]
        for index, codes in reference.execute(program, op, inputs, images).items():
            known[index] = codes
            if (wanted := expected[index]) is None:
                continue
            known[index] = wanted
            off = _check_step(op.name, program.tensors[index].type, codes, wanted)
            compared, different = compared + off.size, different + int(off.sum())
    agreement = _end_to_end(program, expected, images, compared, different)
    if not moved:
        return agreement
    shares = torch.cat(list(moved))
    return replace(agreement, moved_mean=float(shares.mean()), moved_most=float(shares.max()))


def _torchs_codes(
    model: nn.Module, recording: Recording, emitted: Emitted, x: Tensor
) -> list[Array | None]:
    """torch's value of each tensor of the program, on its grid; None if torch has no such tensor."""
    again = record(model, x, keep=True)
    if [call.op for call in again.calls] != [call.op for call in recording.calls]:
        raise LoweringError(
            "the network takes another course for other images: lowering needs one fixed course"
        )
    values = {value.index: value.tensor for value in again.values()}
    codes: list[Array | None] = []
    for node, grid, tensor in zip(
        emitted.nodes, emitted.grids, emitted.program.tensors, strict=True
    ):
        value = None if node is None else values[node.index]
        codes.append(None if value is None else _codes(value, grid, tensor.shape))
    return codes


def _check_step(name: str, type: str, codes: Array, wanted: Array) -> Array:
    """How far 8-bit codes are off, at most by one; nothing for 32-bit ones, which are judged here."""
    off = np.abs(codes.astype(np.float64) - wanted.astype(np.float64))
    if type in ("u8", "i8"):
        if off.max() > 1:
            raise LoweringError(
                f"{name}: the integer program is off by {off.max():.0f} codes, expected 1 at most: "
                "please report this"
            )
        return off
    share = off.max() / max(float(np.abs(wanted).max()), 1e-30)
    if share > WIDE_TOLERANCE:
        raise LoweringError(
            f"{name}: the integer program is off by {100 * share:.2g} % of the largest value, expected "
            f"{100 * WIDE_TOLERANCE:.2g} % at most: please report this"
        )
    return off[:0]


def _end_to_end(
    program: Program, torchs: list[Array | None], images: Array, compared: int, different: int
) -> Agreement:
    own = reference.trace(program, images)
    narrow = (i for i, tensor in enumerate(program.tensors) if tensor.type in ("u8", "i8"))
    equal = [own[i] == torchs[i] for i in narrow if torchs[i] is not None]
    share = sum(int(e.sum()) for e in equal) / max(1, sum(e.size for e in equal))
    errors = []
    same = np.ones(len(images), bool)
    for output in program.outputs:
        expected, found = torchs[output.tensor], own[output.tensor]
        assert expected is not None
        errors.append(np.abs(found - expected).max() / max(float(np.abs(expected).max()), 1e-30))
        same &= (found.argmax(1) == expected.argmax(1)).all((1, 2))
    return Agreement(len(images), compared, different, share, float(max(errors)), int(same.sum()))


def _codes(value: Tensor, grid: Grid, shape: tuple[int, int, int]) -> Array:
    """torch's value on a grid, by torch's own arithmetic."""
    x = value.float().cpu().reshape(-1, *shape)
    if grid.type != "f32":
        x = (x / torch.tensor(grid.scale)).clamp(grid.low, grid.high).round()
    codes: Array = x.numpy().astype(DTYPES[grid.type])
    return codes
