"""Tensors of codes, and the one formula that turns sums into codes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from dbq.errors import LoweringError

Type = Literal["u8", "i8", "i32", "f32"]
Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]

DTYPES: dict[Type, type[np.generic]]
DTYPES = {"u8": np.uint8, "i8": np.int8, "i32": np.int32, "f32": np.float32}
# The codes an element of each type may take. i32 is for values that are added up later: its steps are
# so fine that only rounding to float32 limits them. f32 has no codes: these are the limits of a clamp.
CODE_RANGE: dict[Type, tuple[int, int]]
CODE_RANGE = {"u8": (0, 255), "i8": (-128, 127), "i32": (-(2**30), 2**30), "f32": (-(2**30), 2**30)}

# The limits of docs/format.md.
MAX_SIDE = MAX_CHANNELS = 65_535
MAX_PIXELS = 2**26
LARGEST_SCALE = float(np.float32(1e20))
LARGEST_SUM = 2**31 - 1
LARGEST_VALUE = 2.0**60  # of a number that is computed in floats; times a scale it is still finite


def require(condition: object, problem: str) -> None:
    if not condition:
        raise LoweringError(problem)


class Grid(NamedTuple):
    """Codes of one tensor: value = code * scale, low <= code <= high."""

    type: Type
    scale: float
    low: int
    high: int

    @property
    def clip(self) -> float:
        return self.scale * self.high


class Shape(NamedTuple):
    channels: int
    height: int
    width: int


@dataclass(frozen=True)
class Tensor:
    """C x H x W elements; `code * scale` is the value. The scale of f32 is 1."""

    type: Type
    shape: Shape
    scale: float

    def check(self) -> None:
        channels, height, width = self.shape
        require(0 < channels <= MAX_CHANNELS, f"a tensor of {channels} channels")
        sides = 0 < height <= MAX_SIDE and 0 < width <= MAX_SIDE
        require(sides and height * width <= MAX_PIXELS, f"a tensor of {height} x {width} pixels")
        fits = (
            0 < self.scale <= LARGEST_SCALE and np.float32(self.scale) > 0
        )  # as the file holds it
        require(fits, f"a tensor with scale {self.scale}")


@dataclass(frozen=True, eq=False)
class Result:
    """One output of an operation, from its exact integer sums s_0 .. s_{J-1} in channel k:

        t = s_0 * scales[k, 0] + ... + s_{J-1} * scales[k, J-1] + offsets[k]
        t = low if t < low, high if t > high    (not for f32 with low = high = 0)
        f32: t                others: round_half_even(t)

    from left to right, each step rounded to float32. Some operations compute a float32 in place of s_0.
    A ReLU is low = 0; batch norm, the scales of weights and of both tensors are all inside `scales` and
    `offsets`.
    """

    tensor: int
    low: int
    high: int
    scales: Floats  # [K, J]
    offsets: Floats  # [K]

    def check(self, tensor: Tensor, sums: int) -> None:
        channels = tensor.shape.channels
        require(self.scales.shape == (channels, sums), "shape of the scales")
        require(self.offsets.shape == (channels,), "shape of the offsets")
        for floats in (self.scales, self.offsets):
            require(floats.dtype == np.float32, "scales and offsets that are not float32")
            fine = np.isfinite(floats).all() and np.abs(floats).max() <= LARGEST_SCALE
            require(fine, "a scale or offset that is NaN or too large")
        low, high = CODE_RANGE[tensor.type]
        inside = low <= self.low <= self.high <= high
        require(inside, f"codes {self.low} to {self.high} in a tensor of {tensor.type}")

    @property
    def clamps_floats(self) -> bool:
        """Whether an f32 result is clamped."""
        return (self.low, self.high) != (0, 0)

    def largest_code(self) -> int:
        """The largest size of a code, with the limits as float32 rounds them."""
        return int(max(-np.float32(self.low), np.float32(self.high)))

    def codes(self, sums: list[Array], type: Type) -> Array:
        """The formula, for sums [N, K, H, W]; every step is rounded to float32 by itself."""
        scales = self.scales.T[:, :, None, None]  # [J, K, 1, 1]
        t: Array = sums[0].astype(np.float32) * scales[0]
        for s, scale in zip(sums[1:], scales[1:], strict=True):
            t = t + s.astype(np.float32) * scale
        t = t + self.offsets[:, None, None]
        if type == "f32" and not self.clamps_floats:
            return t
        low, high = np.float32(self.low), np.float32(self.high)
        t = np.where(t < low, low, np.where(t > high, high, t))  # keeps the sign of a zero
        return t if type == "f32" else np.rint(t).astype(DTYPES[type])  # halves go to the even one
