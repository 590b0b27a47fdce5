"""The parts that operations in a .dbq file are made of, as little-endian bytes. See docs/format.md."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from dbq.deploy.tensors import Floats, Result, Shape, Tensor
from dbq.deploy.window import Window
from dbq.errors import FileFormatError


class ByteWriter:
    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def put(self, layout: str, *values: float) -> None:
        self.parts.append(struct.pack("<" + layout, *values))

    def text(self, text: str) -> None:
        data = text.encode()
        self.put("H", len(data))
        self.parts.append(data)

    def field(self, type: str, value: Any) -> None:
        """A field by the name of its type in docs/format.md."""
        put: dict[str, Callable[[Any], None]]
        put = {"u32": self.number, "window": self.window, "results": self.results}
        put[type](value)

    def number(self, number: int) -> None:
        self.put("I", number)

    def window(self, window: Window) -> None:
        self.put("6H", *window.kernel, *window.stride, *window.padding)

    def results(self, results: tuple[Result, ...]) -> None:
        self.put("B", len(results))
        for result in results:
            self.put("Iii", result.tensor, result.low, result.high)
            numbers = (result.scales, result.offsets)
            self.parts += [floats.astype("<f4").tobytes() for floats in numbers]


class ByteReader:
    """Takes bytes from the front, never more than there are."""

    def __init__(self, content: bytes) -> None:
        self.content, self.at = content, 0
        self.part = "the header"  # which part of the file is being read
        self.tensors: list[Tensor] = []  # the file's own, as soon as they are known

    def error(self, problem: str) -> FileFormatError:
        return FileFormatError(f"{self.part} {problem}")

    def take(self, size: int) -> bytes:
        if size > len(self.content) - self.at:
            raise FileFormatError(f"ends inside {self.part}; copy or export it again")
        self.at += size
        return self.content[self.at - size : self.at]

    def get(self, layout: str) -> tuple[Any, ...]:
        packed = struct.Struct("<" + layout)
        return packed.unpack(self.take(packed.size))

    def field(self, type: str, sums: int) -> Any:
        """A field by the name of its type in docs/format.md; results have `sums` scales a channel."""
        if type == "results":
            return self.results(sums)
        return {"u32": self.number, "window": self.window}[type]()

    def number(self) -> int:
        """A u32: an index or a count."""
        (number,) = self.get("I")
        return int(number)

    def text(self) -> str:
        (length,) = self.get("H")
        try:
            text = self.take(length).decode()
        except UnicodeDecodeError:
            raise self.error("has a text that is not UTF-8") from None
        if "\0" in text:
            raise self.error("has a text with a zero byte, where C would end it")
        return text

    def shape(self, tensor: int) -> Shape:
        """The shape of a tensor that an operation names."""
        if tensor >= len(self.tensors):
            raise self.error(f"names tensor {tensor} of {len(self.tensors)}")
        return self.tensors[tensor].shape

    def channels(self, tensor: int) -> int:
        return self.shape(tensor).channels

    def window(self) -> Window:
        sizes = self.get("6H")
        return Window(sizes[:2], sizes[2:4], sizes[4:])

    def results(self, sums: int) -> tuple[Result, ...]:
        (count,) = self.get("B")
        if not count:
            raise self.error("has no result")
        results = []
        for _ in range(count):
            tensor, low, high = self.get("Iii")
            channels = self.channels(tensor)
            scales = self.floats(channels * sums).reshape(channels, sums)
            results.append(Result(tensor, low, high, scales, self.floats(channels)))
        return tuple(results)

    def floats(self, count: int) -> Floats:
        return np.frombuffer(self.take(4 * count), "<f4").astype(np.float32)
