"""verify: build a network with a cross compiler, run it under QEMU, compare, and count instructions.

QEMU's `-icount` makes a board's clock advance by the same time for every instruction, so a loop of
known length gives the instructions of a tick. They are instructions, not cycles: QEMU does not model
how long one takes.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from dbq.deploy.csource.boards.machines import Machine
from dbq.deploy.csource.files import CASES, comparison_text
from dbq.deploy.csource.source import Source
from dbq.errors import DbqError

OPTIMISE = ("-O2",)
WARNINGS = ("-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror")
SPIN_INSTRUCTIONS = 1_000_000  # of boards/main.c
ICOUNT = "shift=5"  # 32 ns an instruction: finer than a tick of any board here, or nearly
SECONDS = 600


@dataclass(frozen=True)
class Verified:
    """What a machine did: every float compared, instructions of each layer of the last image."""

    machine: str
    processor: str
    wrong: int  # floats that differ
    compared: int
    instructions: tuple[int, ...]  # of each layer
    flash: int  # bytes of NAME.o: code and constants
    ram: int  # bytes of NAME.o: arena and pointers
    stack: int  # deepest seen, test included
    stack_bound: int  # from -fstack-usage: all functions of NAME.c at once
    float_calls: tuple[str, ...]  # of the compiler's float library, by NAME.c

    @property
    def total(self) -> int:
        return sum(self.instructions)

    def __str__(self) -> str:
        verdict = f"{self.wrong} of {self.compared} outputs differ" if self.wrong else (
            f"all {self.compared} outputs bit-equal")  # fmt: skip
        return (
            f"{self.machine} ({self.processor}): {verdict}; {self.total:,} instructions (not cycles) an "
            f"image; flash {self.flash:,}, RAM {self.ram:,}, stack {self.stack:,} bytes"
        )


def missing_tools(machine: Machine) -> list[str]:
    """Programs that this machine needs and that are not installed."""
    return [tool for tool in (machine.compiler, machine.emulator[0]) if shutil.which(tool) is None]


def verify(
    source: Source, machine: Machine, cases: int = CASES, flags: Sequence[str] = ()
) -> Verified:
    """Build and run the test of `source` on `machine`; raises DbqError if either fails."""
    if tools := missing_tools(machine):
        raise DbqError(
            f"{machine.name} needs {' and '.join(tools)}: install gcc-arm-none-eabi, "
            "libnewlib-arm-none-eabi and qemu-system-arm, or gcc-riscv64-unknown-elf, "
            "picolibc-riscv64-unknown-elf and qemu-system-misc"
        )
    with tempfile.TemporaryDirectory() as directory:
        folder, name = Path(directory), source.name
        texts = {".c": source.code, ".h": source.header,
                 "_test.c": comparison_text(source.program, name, cases)}  # fmt: skip
        for ending, text in texts.items():
            (folder / f"{name}{ending}").write_text(text, encoding="utf-8")
        boards = files("dbq.deploy.csource.boards")
        for file in ("board.h", "main.c", machine.board):
            text = (boards / file).read_text(encoding="utf-8").replace("NAME_", f"{name}_")
            (folder / file).write_text(text, encoding="utf-8")
        (folder / "link.ld").write_text(_link_script(boards, machine), encoding="utf-8")
        return _run(source, machine, folder, cases, flags)


def _link_script(boards: Traversable, machine: Machine) -> str:
    text = (boards / "link.ld").read_text(encoding="utf-8")
    for word, (start, size) in (("FLASH", machine.flash), ("RAM", machine.ram)):
        text = text.replace(f"{word}_START", hex(start)).replace(f"{word}_BYTES", str(size))
    return text


def _run(
    source: Source, machine: Machine, folder: Path, cases: int, flags: Sequence[str]
) -> Verified:
    name, compiler = source.name, [machine.compiler, *machine.flags, *machine.link]
    step = f"-D{name.upper()}_STEP(n)=board_step(n)"
    build = [*compiler, *OPTIMISE, *WARNINGS, *flags, "-c", f"{name}.c"]
    _call([*build, "-fstack-usage", "-o", "plain.o"], folder)  # as users build it: sizes
    (folder / "hook.h").write_text("#include <stdint.h>\nvoid board_step(uint32_t step);\n")
    _call([*build, "-include", "hook.h", step, "-o", "net.o"], folder)
    rest = ["main.c", machine.board, f"{name}_test.c", f"-D{name.upper()}_NO_MAIN"]
    _call(
        [*compiler, "-O1", "-nostartfiles", "-T", "link.ld", "net.o", *rest, "-o", "a.elf"],
        folder,
    )
    printed = _call(
        [*machine.emulator, "-display", "none", "-monitor", "none", "-serial", "none", "-icount", ICOUNT,
         "-semihosting-config", "enable=on,target=native", "-kernel", "a.elf"],
        folder, statuses=(0, 1),
    )  # fmt: skip
    numbers = [(word, int(number)) for word, number in re.findall(r"^(\w+) (\d+)$", printed, re.M)]
    found = dict(numbers)
    if not {"spin", "wrong", "stack"} <= found.keys():
        raise DbqError(f"{machine.name}: {name} did not finish: {printed[-400:]!r}")
    per_tick = SPIN_INSTRUCTIONS / found["spin"]
    text, data, bss = (int(n) for n in _call([machine.size, "plain.o"], folder).split()[6:9])
    frames = [int(line.split("\t")[1]) for line in (folder / "plain.su").read_text().splitlines()]
    symbols = re.findall(r"U (__\w*(?:f|d)\w*)", _call([machine.nm, "plain.o"], folder))
    floats = [
        s for s in symbols if re.match(r"__(aeabi_(f|d|i2f|ui2f|i2d)|(add|sub|mul|div)[sd]f3)", s)
    ]
    return Verified(
        machine.name, machine.processor, found["wrong"],
        cases * sum(_size(source, i) for i in range(len(source.program.outputs))),
        tuple(round(ticks * per_tick) for word, ticks in numbers if word == "step"),
        text + data, bss, found["stack"], sum(frames), tuple(floats),
    )  # fmt: skip


def _size(source: Source, output: int) -> int:
    channels, height, width = source.program.tensors[source.program.outputs[output].tensor].shape
    return channels * height * width


def _call(command: Sequence[str], folder: Path, statuses: tuple[int, ...] = (0,)) -> str:
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise DbqError(f"{command[0]} did not finish within {SECONDS} s") from None
    if done.returncode not in statuses:
        raise DbqError(f"{command[0]} failed: {(done.stderr or done.stdout).strip()[-1500:]}")
    return done.stdout + done.stderr
