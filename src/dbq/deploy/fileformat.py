"""The .dbq file: a Program as bytes and back. docs/format.md is the specification."""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dbq.deploy.packing import pack_bits, pack_trits, packed_size, unpack_bits, unpack_trits
from dbq.deploy.program import (
    ZEROS,
    Add,
    AveragePool,
    Channels,
    Convolution,
    Lookup,
    MaxPool,
    Operation,
    Program,
    Requantize,
    Result,
    Shape,
    Tensor,
    Type,
    Window,
)
from dbq.errors import FileFormatError, LoweringError
from dbq.support.atomic import write_atomically

MAGIC = b"\x89DBQ\r\n\x1a\n"
VERSION = 1
HEADER = struct.Struct("<8sIIQQ")  # magic, version, CRC-32 and length of the body, zero
TYPES: tuple[Type, ...] = ("u8", "i8", "i32", "f32")
KINDS: tuple[type[Operation], ...] = (
    Lookup, Convolution, Add, Requantize, AveragePool, MaxPool, Channels)  # fmt: skip
NO_TENSOR = 0xFFFFFFFF  # stands for ZEROS


def save(program: Program, path: str | os.PathLike[str]) -> int:
    """Write `program` to `path`, whole or not at all; the size in bytes.

    >>> import tempfile, torch, dbq
    >>> net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.Flatten(), torch.nn.Linear(288, 2))
    >>> images = torch.rand(4, 3, 8, 8)
    >>> _ = dbq.prepare(net, "fx8-3", images), dbq.calibrate(net, [images])
    >>> program = dbq.lower(net, images, report=None)
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     save(program, directory + "/net.dbq") < 2200  # 800 weights of 8 bits, a table, scales
    True
    """
    content = write_program(program)
    write_atomically(Path(path), content)
    return len(content)


def write_program(program: Program) -> bytes:
    """The contents of a .dbq file."""
    writer = _Writer()
    writer.text(program.name)
    facts = json.dumps(dict(program.facts), sort_keys=True).encode()
    writer.put("I", len(facts))
    writer.parts.append(facts)
    writer.put("I", len(program.tensors))
    for tensor in program.tensors:
        writer.put("BIIIf", TYPES.index(tensor.type), *tensor.shape, tensor.scale)
    writer.put("II", program.output, len(program.operations))
    for op in program.operations:
        writer.put("B", KINDS.index(type(op)))
        writer.text(op.name)
        _write_operation(writer, op)
    body = b"".join(writer.parts)
    return HEADER.pack(MAGIC, VERSION, zlib.crc32(body), len(body), 0) + body


def load_program(path: str | os.PathLike[str]) -> Program:
    """The Program in a .dbq file, to look at or to export: `dbq.load` is what runs one.

    >>> load_program("missing.dbq")
    Traceback (most recent call last):
    ...
    dbq.errors.FileFormatError: cannot read missing.dbq: No such file or directory
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise FileFormatError(f"cannot read {os.fspath(path)}: {error.strerror}") from None
    return read_program(content, os.fspath(path))


def read_program(content: bytes, source: str = "file") -> Program:
    """The Program in the contents of a .dbq file; anything else is a FileFormatError."""
    try:
        return _read_program(content)
    except (FileFormatError, LoweringError) as error:
        raise FileFormatError(f"{source}: {error}") from None


class _Writer:
    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def put(self, layout: str, *values: float) -> None:
        self.parts.append(struct.pack("<" + layout, *values))

    def text(self, text: str) -> None:
        data = text.encode()
        self.put("H", len(data))
        self.parts.append(data)

    def floats(self, values: npt.NDArray[np.float32]) -> None:
        self.parts.append(values.astype("<f4").tobytes())

    def results(self, results: tuple[Result, ...]) -> None:
        self.put("B", len(results))
        for result in results:
            self.put("Iii", result.tensor, result.low, result.high)
            self.floats(result.scales)
            self.floats(result.offsets)

    def window(self, window: Window) -> None:
        self.put("6H", *window.kernel, *window.stride, *window.padding)


def _write_operation(writer: _Writer, op: Operation) -> None:
    match op:
        case Lookup():
            writer.put("I", op.tensor)
            writer.parts.append(op.table.tobytes())
        case Convolution():
            writer.put("I", op.input)
            writer.window(op.window)
            writer.put("HHI", *op.window.dilation, op.groups)
            ternary = op.bits is None
            writer.put("BB", 0 if ternary else 1, len(op.codes) if ternary else op.bits or 0)
            writer.results(op.results)
            writer.parts.append(
                pack_trits(op.codes) if op.bits is None else pack_bits(op.codes, op.bits)
            )
        case Add():
            writer.put("II", op.a, op.b)
            writer.results(op.results)
        case Requantize():
            writer.put("I", op.input)
            writer.results(op.results)
        case AveragePool():
            writer.put("I", op.input)
            writer.window(op.window)
            writer.results(op.results)
        case MaxPool():
            writer.put("I", op.input)
            writer.window(op.window)
            writer.put("I", op.tensor)
        case Channels():
            writer.put("I", op.tensor)
            sources = [
                (NO_TENSOR if tensor == ZEROS else tensor, channel)
                for tensor, channel in op.sources
            ]
            writer.parts.append(np.array(sources, "<u4").tobytes())


class _Reader:
    """Takes bytes from the front; never more than there are."""

    def __init__(self, content: bytes) -> None:
        self.content, self.at = content, 0

    def take(self, size: int, what: str) -> bytes:
        if size > len(self.content) - self.at:
            raise FileFormatError(f"ends inside {what}; copy or export it again")
        self.at += size
        return self.content[self.at - size : self.at]

    def get(self, layout: str, what: str) -> tuple[Any, ...]:
        packed = struct.Struct("<" + layout)
        return packed.unpack(self.take(packed.size, what))

    def text(self, what: str) -> str:
        (length,) = self.get("H", what)
        try:
            return self.take(length, what).decode()
        except UnicodeDecodeError:
            raise FileFormatError(f"{what} is not UTF-8 text") from None

    def floats(self, count: int, what: str) -> npt.NDArray[np.float32]:
        return np.frombuffer(self.take(4 * count, what), "<f4").astype(np.float32)

    def window(self, what: str) -> Window:
        sizes = self.get("6H", what)
        return Window(sizes[:2], sizes[2:4], sizes[4:])


def _read_program(content: bytes) -> Program:
    if content[:8] != MAGIC:
        raise FileFormatError("not a .dbq file: it does not begin with the bytes of one")
    header = _Reader(content).get("8sIIQQ", "the header")
    _, version, checksum, length, zero = header
    if version != VERSION:
        raise FileFormatError(f"version {version}; this dbq reads version {VERSION}: update dbq")
    if zero:
        raise FileFormatError(f"the reserved header field is {zero}, expected 0: export it again")
    body = content[HEADER.size :]
    if length != len(body):
        raise FileFormatError(f"{len(body)} bytes of {length}: copy or export it again")
    if zlib.crc32(body) != checksum:
        raise FileFormatError("damaged: the checksum does not fit; copy or export it again")
    reader = _Reader(body)
    name = reader.text("the name")
    (size,) = reader.get("I", "the facts")
    facts = _read_facts(reader.take(size, "the facts"))
    tensors = [_read_tensor(reader, i) for i in range(*reader.get("I", "the tensors"))]
    output, count = reader.get("II", "the operations")
    operations = [_read_operation(reader, tensors, i) for i in range(count)]
    if reader.at != len(body):
        raise FileFormatError(f"{len(body) - reader.at} bytes after the last operation")
    return Program(name, tuple(tensors), tuple(operations), output, facts)


def _read_facts(data: bytes) -> dict[str, Any]:
    try:
        facts = json.loads(data)
    except (ValueError, RecursionError):
        facts = None
    if not isinstance(facts, dict):
        raise FileFormatError("its facts are not a JSON object")
    return facts


def _read_tensor(reader: _Reader, index: int) -> Tensor:
    type, channels, height, width, scale = reader.get("BIIIf", f"tensor {index}")
    if type >= len(TYPES):
        raise FileFormatError(f"tensor {index} has type {type}, expected 0 to {len(TYPES) - 1}")
    return Tensor(TYPES[type], Shape(channels, height, width), scale)


def _read_operation(reader: _Reader, tensors: list[Tensor], number: int) -> Operation:
    where = f"operation {number}"
    (kind,) = reader.get("B", where)
    if kind >= len(KINDS):
        raise FileFormatError(f"{where} has kind {kind}, expected 0 to {len(KINDS) - 1}")
    name = reader.text(where)
    return _READERS[KINDS[kind]](reader, tensors, name, where)


def _shape(tensors: list[Tensor], index: int, where: str) -> Shape:
    if index >= len(tensors):
        raise FileFormatError(f"{where} names tensor {index} of {len(tensors)}")
    return tensors[index].shape


def _read_results(
    reader: _Reader, tensors: list[Tensor], sums: int, where: str
) -> tuple[Result, ...]:
    (count,) = reader.get("B", where)
    if not count:
        raise FileFormatError(f"{where} has no result")
    results = []
    for _ in range(count):
        tensor, low, high = reader.get("Iii", where)
        channels = _shape(tensors, tensor, where).channels
        scales = reader.floats(channels * sums, where).reshape(channels, sums)
        results.append(Result(tensor, low, high, scales, reader.floats(channels, where)))
    return tuple(results)


def _read_lookup(reader: _Reader, tensors: list[Tensor], name: str, where: str) -> Lookup:
    (tensor,) = reader.get("I", where)
    channels = _shape(tensors, tensor, where).channels
    table = np.frombuffer(reader.take(channels * 256, where), np.uint8)
    return Lookup(name, tensor, table.reshape(channels, 256))


def _read_convolution(reader: _Reader, tensors: list[Tensor], name: str, where: str) -> Convolution:
    (input,) = reader.get("I", where)
    window = reader.window(where)
    *dilation, groups = reader.get("HHI", where)
    window = window._replace(dilation=(dilation[0], dilation[1]))
    form, size = reader.get("BB", where)
    if form > 1 or not (1 <= size <= 3 if form == 0 else 2 <= size <= 8):
        raise FileFormatError(f"{where} has weights of form {form} and size {size}")
    channels = _shape(tensors, input, where).channels
    if not groups or channels % groups:
        raise FileFormatError(f"{where}: {channels} channels in {groups} groups")
    branches, bits = (size, None) if form == 0 else (1, size)
    results = _read_results(reader, tensors, branches, where)
    kernels = _shape(tensors, results[0].tensor, where).channels
    shape = (branches, kernels, channels // groups, *window.kernel)
    count = prod(shape)
    data = reader.take(packed_size(count, bits), where)
    codes = unpack_trits(data, count) if bits is None else unpack_bits(data, count, bits)
    return Convolution(name, results, input, window, groups, codes.reshape(shape), bits)


def _read_add(reader: _Reader, tensors: list[Tensor], name: str, where: str) -> Add:
    a, b = reader.get("II", where)
    return Add(name, _read_results(reader, tensors, 2, where), a, b)


def _read_requantize(reader: _Reader, tensors: list[Tensor], name: str, where: str) -> Requantize:
    (input,) = reader.get("I", where)
    return Requantize(name, _read_results(reader, tensors, 1, where), input)


def _read_average_pool(
    reader: _Reader, tensors: list[Tensor], name: str, where: str
) -> AveragePool:
    (input,) = reader.get("I", where)
    window = reader.window(where)
    return AveragePool(name, _read_results(reader, tensors, 1, where), input, window)


def _read_max_pool(reader: _Reader, tensors: list[Tensor], name: str, where: str) -> MaxPool:
    (input,) = reader.get("I", where)
    window = reader.window(where)
    return MaxPool(name, input, window, *reader.get("I", where))


def _read_channels(reader: _Reader, tensors: list[Tensor], name: str, where: str) -> Channels:
    (tensor,) = reader.get("I", where)
    count = _shape(tensors, tensor, where).channels
    flat = np.frombuffer(reader.take(8 * count, where), "<u4").reshape(count, 2).tolist()
    sources = tuple((ZEROS if index == NO_TENSOR else index, channel) for index, channel in flat)
    return Channels(name, tensor, sources)


_READERS: dict[type[Operation], Callable[[_Reader, list[Tensor], str, str], Operation]] = {
    Lookup: _read_lookup,
    Convolution: _read_convolution,
    Add: _read_add,
    Requantize: _read_requantize,
    AveragePool: _read_average_pool,
    MaxPool: _read_max_pool,
    Channels: _read_channels,
}
