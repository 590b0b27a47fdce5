"""The .dbq file: a Program as bytes and back. docs/format.md is the specification."""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import struct
import zlib
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import Any

from dbq.deploy.file.binary import ByteReader, ByteWriter
from dbq.deploy.operations.operation import Operation
from dbq.deploy.operations.table import OPERATIONS
from dbq.deploy.program import Output, Program
from dbq.deploy.tensors import Shape, Tensor, Type
from dbq.errors import FileFormatError, LoweringError
from dbq.support.atomic import write_atomically
from dbq.support.regular import why_unreadable

MAGIC = b"\x89DBQ\r\n\x1a\n"
VERSION = 2  # that is written; version 1, with one output and no name for it, is read as well
HEADER = struct.Struct("<8sIIQQ")  # magic, version, CRC-32 and length of the body, reserved
TYPES: tuple[Type, ...] = ("u8", "i8", "i32", "f32")
MAX_DEPTH, MAX_NUMBER = 64, 400  # of the facts: nested objects and arrays, characters of a number
STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


def save(program: Program, path: str | os.PathLike[str]) -> int:
    """Write `program` to `path` atomically; returns the size in bytes.

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
    writer = ByteWriter()
    writer.text(program.name)
    facts = _write_facts(program)
    writer.put("I", len(facts))
    writer.parts.append(facts)
    writer.put("I", len(program.tensors))
    for tensor in program.tensors:
        writer.put("BIIIf", TYPES.index(tensor.type), *tensor.shape, tensor.scale)
    writer.put("I", len(program.outputs))
    for output in program.outputs:
        writer.put("I", output.tensor)
        writer.text(output.name)
    writer.put("I", len(program.operations))
    for op in program.operations:
        writer.put("B", OPERATIONS.index(type(op)))
        writer.text(op.name)
        op.write(writer)
    body = b"".join(writer.parts)
    return HEADER.pack(MAGIC, VERSION, zlib.crc32(body), len(body), 0) + body


def load_program(path: str | os.PathLike[str]) -> Program:
    """The Program in a .dbq file, to inspect or to export; `dbq.load` runs one.

    >>> load_program("missing.dbq")
    Traceback (most recent call last):
    ...
    dbq.errors.FileFormatError: cannot read missing.dbq: No such file or directory
    """
    if reason := why_unreadable(path):
        raise FileFormatError(f"cannot read {os.fspath(path)}: {reason}")
    try:
        if stat.S_ISFIFO(os.stat(path).st_mode):  # reading would wait until somebody writes to it
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        content = Path(path).read_bytes()
    except OSError as error:
        raise FileFormatError(f"cannot read {os.fspath(path)}: {error.strerror}") from None
    except ValueError as error:  # a path with a zero byte
        raise FileFormatError(f"cannot read {os.fspath(path)!r}: {error}") from None
    return read_program(content, os.fspath(path))


def read_program(content: bytes, source: str = "file") -> Program:
    """The Program in the contents of a .dbq file; anything else is a FileFormatError."""
    try:
        return _read_program(content)
    except (FileFormatError, LoweringError) as error:
        raise FileFormatError(f"{source}: {error}") from None


def _read_program(content: bytes) -> Program:
    version, body = _checked_body(content)
    reader = ByteReader(body)
    reader.part = "the name"
    name = reader.text()
    reader.part = "the facts"
    facts = _read_facts(reader.take(reader.number()))
    reader.part = "the list of tensors"
    for index in range(reader.number()):
        reader.part = f"tensor {index}"
        reader.tensors.append(_read_tensor(reader))
    reader.part = "the list of outputs"
    outputs = [_read_output(reader, version) for _ in range(1 if version == 1 else reader.number())]
    reader.part = "the list of operations"
    operations = []
    for index in range(reader.number()):
        reader.part = f"operation {index}"
        operations.append(_read_operation(reader))
    if reader.at != len(reader.content):
        left = len(reader.content) - reader.at
        raise FileFormatError(f"{left} bytes after the last operation: export it again")
    return Program(name, tuple(reader.tensors), tuple(operations), tuple(outputs), facts)


def _checked_body(content: bytes) -> tuple[int, bytes]:
    """The version, and what follows the header, if the header is right about it."""
    if content[:8] != MAGIC:
        raise FileFormatError("not a .dbq file: the first eight bytes differ")
    _, version, checksum, length, reserved = ByteReader(content).get(HEADER.format[1:])
    if not 1 <= version <= VERSION:
        raise FileFormatError(f"version {version}; this dbq reads 1 to {VERSION}: update dbq")
    if reserved:
        raise FileFormatError(
            f"the reserved header field is {reserved}, expected 0: export it again"
        )
    body = content[HEADER.size :]
    if length != len(body):
        raise FileFormatError(f"{len(body)} bytes of {length}: copy or export it again")
    if zlib.crc32(body) != checksum:
        raise FileFormatError("damaged: wrong checksum; copy or export it again")
    return version, body


def _read_facts(data: bytes) -> dict[str, Any]:
    """A JSON object within the limits of docs/format.md, which are those of the engine, too."""
    try:
        text = data.decode()
        facts = json.loads(
            text, parse_constant=_number(None), parse_int=_number(int), parse_float=_number(float)
        )
        nested = accumulate((c in "[{") - (c in "]}") for c in STRING.sub("", text))
    except (ValueError, RecursionError):
        facts, nested = None, accumulate(())
    if not isinstance(facts, dict) or max(nested) > MAX_DEPTH:
        raise FileFormatError("its facts are not a JSON object: export it again")
    return facts


def _number(convert: Callable[[str], float] | None) -> Callable[[str], float]:
    """Makes numbers of JSON text. NaN and infinities, which JSON does not have, get no `convert`."""

    def number(text: str) -> float:
        if convert is None or len(text) > MAX_NUMBER:
            raise ValueError(text)
        return convert(text)

    return number


def _write_facts(program: Program) -> bytes:
    try:
        facts = json.dumps(dict(program.facts), sort_keys=True, allow_nan=False).encode()
        _read_facts(facts)
    except (TypeError, ValueError, RecursionError, FileFormatError) as error:
        raise LoweringError(f"{program.name}: its facts cannot be JSON: {error}") from None
    return facts


def _read_tensor(reader: ByteReader) -> Tensor:
    type, channels, height, width, scale = reader.get("BIIIf")
    if type >= len(TYPES):
        raise reader.error(f"has type {type}, expected 0 to {len(TYPES) - 1}")
    return Tensor(TYPES[type], Shape(channels, height, width), scale)


def _read_output(reader: ByteReader, version: int) -> Output:
    return Output(reader.number(), "" if version == 1 else reader.text())


def _read_operation(reader: ByteReader) -> Operation:
    (kind,) = reader.get("B")
    if kind >= len(OPERATIONS):
        raise reader.error(f"has kind {kind}, expected 0 to {len(OPERATIONS) - 1}")
    operation: type[Operation] = OPERATIONS[kind]
    return operation.read(reader, reader.text())
