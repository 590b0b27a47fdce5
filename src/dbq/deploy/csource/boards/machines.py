"""The machines of `--verify`: a cross compiler, its flags, and the QEMU board that runs the result."""

from __future__ import annotations

from dataclasses import dataclass

from dbq.errors import DbqError

KB = 1024


@dataclass(frozen=True)
class Machine:
    """`flash` and `ram` are start and size of the memories that the test program is linked into."""

    name: str
    processor: str
    compiler: str
    flags: tuple[str, ...]
    link: tuple[str, ...]
    emulator: tuple[str, ...]
    board: str  # the file of boards/ that starts it
    flash: tuple[int, int]
    ram: tuple[int, int]

    @property
    def size(self) -> str:
        return self.compiler.removesuffix("gcc") + "size"

    @property
    def nm(self) -> str:
        return self.compiler.removesuffix("gcc") + "nm"


def _arm(
    name: str, cpu: str, board: str, flash: tuple[int, int], ram: tuple[int, int], *extra: str
) -> Machine:
    return Machine(
        name, f"Cortex-{cpu.removeprefix('cortex-').upper()}", "arm-none-eabi-gcc",
        (f"-mcpu={cpu}", "-mthumb", "-mfloat-abi=soft"), ("--specs=nano.specs",),
        ("qemu-system-arm", "-M", board, *extra), "cortex_m.c", flash, ram,
    )  # fmt: skip


def _riscv(name: str, arch: str, abi: str, cpu: str) -> Machine:
    return Machine(
        name, arch.upper(), "riscv64-unknown-elf-gcc", (f"-march={arch}", f"-mabi={abi}"),
        ("--specs=picolibc.specs",), ("qemu-system-riscv32", "-M", "virt", "-cpu", cpu, "-bios", "none"),
        "riscv.c", (0x80000000, 2048 * KB), (0x80200000, 4096 * KB),
    )  # fmt: skip


_MPS2 = ((0x0, 4096 * KB), (0x20000000, 4096 * KB))
_TCM = ((0x0, 512 * KB), (0x20000000, 512 * KB))

MACHINES: dict[str, Machine] = {
    machine.name: machine
    for machine in (
        # The real micro:bit has 16 kB of RAM; QEMU gives its processor as much as networks need.
        _arm("arm-m0", "cortex-m0", "microbit", (0x0, 256 * KB), (0x20000000, 256 * KB),
             "-global", f"nrf51-soc.sram-size={256 * KB}"),
        _arm("arm-m3", "cortex-m3", "mps2-an385", *_MPS2),
        _arm("arm-m4", "cortex-m4", "mps2-an386", *_MPS2),
        _arm("arm-m7", "cortex-m7", "mps2-an500", *_MPS2),
        _arm("arm-m33", "cortex-m33", "mps2-an505", (0x10000000, 4096 * KB), (0x38000000, 4096 * KB)),
        _arm("arm-m55", "cortex-m55", "mps3-an547", *_TCM),
        _riscv("rv32imc", "rv32imac", "ilp32", "rv32"),
        _riscv("rv32ec", "rv32eac", "ilp32e", "rv32,m=false"),
    )
}  # fmt: skip


def machine_of(name: str) -> Machine:
    if name not in MACHINES:
        raise DbqError(f"no machine {name!r} to verify on; known: {', '.join(MACHINES)}")
    return MACHINES[name]
