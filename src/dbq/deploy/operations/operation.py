"""What every operation of a Program can do, and what those have in common that compute."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from dbq.deploy.file.binary import ByteReader, ByteWriter
from dbq.deploy.onnx import exact, int8
from dbq.deploy.onnx.values import Values
from dbq.deploy.tensors import CODE_RANGE, LARGEST_SUM, Array, Doubles, Result, Tensor, require


@dataclass(frozen=True, eq=False)
class Operation(ABC):
    """Tensors are indices into the program's. `kind` and `layout` are the words of docs/format.md."""

    name: str

    sum_count: ClassVar[int] = 1  # J, how many sums each element has
    kind: ClassVar[str]
    layout: ClassVar[str]  # its bytes in a file, behind kind and name

    @property
    def reads(self) -> tuple[int, ...]:
        """The tensors it reads, in the order `run` gets them: every u32 of its layout but `tensor`."""
        names = (name for type, name in self.fields() if type == "u32" and name != "tensor")
        return tuple(getattr(self, name) for name in names)

    @property
    def writes(self) -> tuple[int, ...]:
        """The tensors it writes, at least one."""
        return (self.tensor,)  # type: ignore[attr-defined]  # of those that override nothing

    @abstractmethod
    def check(self, tensors: Sequence[Tensor], largest: Mapping[int, int]) -> None:
        """Raise LoweringError unless it can run; no code of tensor i exceeds largest[i] in size.

        What it reads and writes exists, and it reads no f32: that is checked for all operations alike.
        """

    def largest_codes(self, largest: Mapping[int, int]) -> dict[int, int]:
        """The same bound for what it writes. An operation that computes nothing makes nothing larger."""
        return {tensor: max(largest[i] for i in self.reads) for tensor in self.writes}

    @abstractmethod
    def run(self, tensors: Sequence[Tensor], inputs: list[Array]) -> dict[int, Array]:
        """What it writes, given what it reads, [N, C, H, W] each: the specification."""

    def macs(self, tensors: Sequence[Tensor]) -> int:
        """Multiply-accumulates of one image, branches counted once."""
        return 0

    def write(self, file: ByteWriter) -> None:
        """The fields of `layout`; an operation that has others overrides this and `read`."""
        for type, attribute in self.fields():
            file.field(type, getattr(self, attribute))

    @classmethod
    def read(cls, file: ByteReader, name: str) -> Self:
        """The way back; raises FileFormatError. `check` comes later."""
        return cls(name=name, **{a: file.field(type, cls.sum_count) for type, a in cls.fields()})

    @classmethod
    def fields(cls) -> Iterator[tuple[str, str]]:
        """Type and attribute of each field: "u32 input" is both, "window" is its own name."""
        for text in cls.layout.split(", "):
            type, _, attribute = text.partition(" ")
            yield type, attribute or type

    @abstractmethod
    def onnx_exact(self, values: Values) -> None:
        """Add nodes that compute what it writes, in the form of `dbq.deploy.onnx.exact`."""

    def onnx_int8(self, values: Values) -> None:
        """The same in the form of `dbq.deploy.onnx.int8`, if that differs."""
        self.onnx_exact(values)


@dataclass(frozen=True, eq=False)
class Summing(Operation):
    """Computes exact integer sums s_0 .. s_{J-1} for each element; each `Result` makes codes of them.

    Some compute one float32 instead, by steps that are rounded one by one.
    """

    results: tuple[Result, ...]

    @property
    def writes(self) -> tuple[int, ...]:
        return tuple(result.tensor for result in self.results)

    def sums(self, tensors: Sequence[Tensor], inputs: list[Array]) -> list[Array]:
        """s_0 .. s_{J-1}, [N, K, H, W] each; the inputs themselves if not overridden."""
        return inputs

    def largest_sums(self, largest: Sequence[int]) -> Doubles:
        """Bounds [K or 1, J] on the sums, given bounds on the codes of each input."""
        return np.array([largest], np.float64)

    def units(self, tensors: Sequence[Tensor]) -> Doubles:
        """What each sum is to be multiplied by to give a value, [J]."""
        return np.array([tensors[i].scale for i in self.reads])

    def check_codes(self, tensors: Sequence[Tensor], largest: Sequence[int]) -> None:
        """Raise LoweringError if a sum could overflow, given bounds on the codes of each input."""
        most = self.largest_sums(largest).max()
        require(most <= LARGEST_SUM, f"sums up to {most:.0f}, over {LARGEST_SUM}")

    @abstractmethod
    def check_sums(self, tensors: Sequence[Tensor]) -> None:
        """Raise LoweringError unless inputs, parameters and the results' shape fit each other."""

    def onnx_sums(self, values: Values) -> list[str]:
        """The sums as float32 values of an ONNX graph, for the exact form."""
        return [values.names[i] for i in self.reads]

    @abstractmethod
    def onnx_affine(self, values: Values, slopes: Doubles, offsets: Doubles) -> str:
        """sum_j slopes[:, j] * S_j + offsets, with S_j in real units, for the 8-bit form."""

    def check(self, tensors: Sequence[Tensor], largest: Mapping[int, int]) -> None:
        shape = tensors[self.writes[0]].shape
        for result in self.results:
            require(tensors[result.tensor].shape == shape, "results of different shapes")
            result.check(tensors[result.tensor], self.sum_count)
        self.check_sums(tensors)
        self.check_codes(tensors, [largest[i] for i in self.reads])

    def largest_codes(self, largest: Mapping[int, int]) -> dict[int, int]:
        return {result.tensor: result.largest_code() for result in self.results}

    def run(self, tensors: Sequence[Tensor], inputs: list[Array]) -> dict[int, Array]:
        sums = self.sums(tensors, inputs)
        return {r.tensor: r.codes(sums, tensors[r.tensor].type) for r in self.results}

    def onnx_exact(self, values: Values) -> None:
        sums = self.onnx_sums(values)
        for result in self.results:
            values.names[result.tensor] = exact.requantized(values, sums, result, self.name)

    def onnx_int8(self, values: Values) -> None:
        """Results that stand for the same numbers share one computation."""
        made: list[tuple[Doubles, Doubles, str]] = []
        types = [values.tensors[i].type for i in self.reads]
        largest = self.largest_sums([max(map(abs, CODE_RANGE[type])) for type in types])
        for result in self.results:
            slopes, offsets = int8.real_units(values, self.units(values.tensors), result)
            same = (
                name for s, o, name in made
                if np.allclose(s, slopes, rtol=1e-5)
                and np.allclose(o, offsets, rtol=1e-5, atol=1e-6)
            )  # fmt: skip
            if not (x := next(same, "")):
                x = self.onnx_affine(values, slopes, offsets)
                made.append((slopes, offsets, x))
            values.names[result.tensor] = int8.stored(values, x, largest, result, self.name)
