"""Instructions of inner loops on 64-bit ARM, ours and XNNPACK's: counted in binaries, nothing is timed.

    python benchmarks/instructions.py --xnnpack DIR    after `cmake --build --preset aarch64`

DIR: a copy of github.com/google/XNNPACK, whose int8 kernels are assembled as they are. An inner loop is
what lies between a backward branch and its target, if no other such branch is inside; of each kernel the
one with the most products counts. A multiply-add is one weight by one code. The table's additions serve
eight pixels and three or four input channels of one branch each. Zeros of ternary weights, which the
table skips, are not counted. llvm-mca says how many cycles a loop takes by its models of processors;
those of LLVM 14 take Cortex-A72 and A76 for A57, Apple M1 for Cyclone. Writes results/instructions.json.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from machine import options, save

BUILD = Path(__file__).parents[1] / "build/aarch64"
OBJECTS = BUILD / "CMakeFiles/dbq_objects.dir/native/kernels/isa/narrow"
GEMM = "src/qs8-qc8w-gemm/gen/qs8-qc8w-gemm-"
BRANCHES = ("cbz", "cbnz", "tbz", "tbnz", "b")
CPUS = ("cortex-a53", "cortex-a72", "cortex-a76", "apple-m1")
Instruction = tuple[int, str, str]  # address, name, operands


@dataclass(frozen=True)
class Kernel:
    """A loop to count. `row`: the multiply-adds of an addition of a table's row of eight."""

    what: str
    file: str  # of OBJECTS, or of XNNPACK
    function: str = ""
    row: int = 0
    extension: str = ""  # what a processor must have


KERNELS = (
    Kernel("one branch, table, groups of three", "neon.cpp.o", "add_lists", 24),
    Kernel("one branch, table, groups of four", "neon.cpp.o", "add_lists", 32),
    Kernel("two branches, table, groups of three", "neon.cpp.o", "add_lists", 12),
    Kernel("two branches, table, groups of four", "neon.cpp.o", "add_lists", 16),
    Kernel("int8, XNNPACK 2x8c8 mlal", f"{GEMM}2x8c8-minmax-fp32-asm-aarch64-neon-mlal.S"),
    Kernel("int8, XNNPACK 4x16 mlal-lane", f"{GEMM}4x16-minmax-fp32-asm-aarch64-neon-mlal-lane-ld64.S"),
    Kernel("any weights, `sdot`", "neon_dot.cpp.o", "multiply_quads", extension="dotprod"),
    Kernel("int8, XNNPACK 4x16c4 neondot",
           f"{GEMM}4x16c4-minmax-fp32-asm-aarch64-neondot-ld128.S", extension="dotprod"),
    Kernel("any weights, `smmla`", "neon_i8mm.cpp.o", "multiply_quads", extension="i8mm"),
    Kernel("int8, XNNPACK 4x16c8 neoni8mm", f"{GEMM}4x16c8-minmax-fp32-neoni8mm.c", extension="i8mm"),
)  # fmt: skip


def assembled(source: Path, root: Path, to: Path) -> Path:
    """A kernel of XNNPACK as an object file."""
    out = to / f"{source.stem}.o"
    (to / "pthreadpool.h").write_text("typedef struct pthreadpool* pthreadpool_t;\n")
    command = ["aarch64-linux-gnu-gcc", "-c", "-O2", "-march=armv8.2-a+dotprod+i8mm",
               *[f"-I{place}" for place in (to, root, root / "src", root / "include")],
               str(source), "-o", str(out)]  # fmt: skip
    subprocess.run(command, check=True)
    return out


def functions(file: Path, name: str) -> Iterator[list[Instruction]]:
    """The instructions of the functions whose name contains `name`."""
    command = ["aarch64-linux-gnu-objdump", "-dC", "--no-show-raw-insn", str(file)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for part in text.split("\n\n"):
        head, *lines = part.split("\n")
        if ">:" in head and name in head:
            found = (re.match(r"\s*([0-9a-f]+):\s+(\S+)\s*(.*)", line) for line in lines)
            yield [(int(line[1], 16), line[2], line[3]) for line in found if line]


def inner_loops(code: list[Instruction]) -> Iterator[list[Instruction]]:
    places = {address: i for i, (address, _, _) in enumerate(code)}
    loops = []
    for i, (address, name, operands) in enumerate(code):
        target = re.search(r"([0-9a-f]+) <", operands)
        if target and (name.startswith("b.") or name in BRANCHES):
            start = int(target[1], 16)
            if start <= address and start in places:
                loops.append((places[start], i))
    for start, end in loops:
        inside = [
            loop for loop in loops if loop != (start, end) and start <= loop[0] and loop[1] <= end
        ]
        if not inside:
            yield code[start : end + 1]


def products(kernel: Kernel, name: str, operands: str) -> int:
    """The multiply-adds of an instruction."""
    if kernel.row:
        return kernel.row if name in ("add", "sub") and ".8h" in operands else 0
    if name in ("smlal", "smlal2", "smull", "smull2"):
        return 8 if ".8h" in operands.split(",")[0] else 4
    return {"sdot": 16, "usdot": 16, "smmla": 32, "usmmla": 32}.get(name, 0)


def is_vector(name: str, operands: str) -> bool:
    """Whether an instruction computes with vectors."""
    return bool(re.match(r"v\d+\.|\{?v", operands)) and not name.startswith(("ld", "st", "prfm"))


def is_vector_load(name: str, operands: str) -> bool:
    return name.startswith("ld") and operands.lstrip("{")[0] in "qdv"


def cycles(loop: list[Instruction], cpu: str) -> float:
    """Of one turn, by llvm-mca's model of the processor."""
    lines = ["turn:"]
    for _, name, operands in loop:
        operands = re.sub(r"\s*(//.*|;.*)$", "", operands)
        lines.append(f"{name} " + re.sub(r"[0-9a-f]+ <.*>", "turn", operands))
    command = ["llvm-mca-14", "-mtriple=aarch64-linux-gnu", f"-mcpu={cpu}",
               "-mattr=+dotprod,+i8mm,+fullfp16", "-iterations=100"]  # fmt: skip
    run = subprocess.run(
        command, input="\n".join(lines), capture_output=True, text=True, check=True
    )
    return int(re.search(r"Total Cycles:\s+(\d+)", run.stdout)[1]) / 100  # type: ignore[index]


def count(kernel: Kernel, file: Path) -> dict[str, object]:
    def macs(loop: list[Instruction]) -> int:
        return sum(products(kernel, name, operands) for _, name, operands in loop)

    loops = [loop for code in functions(file, kernel.function) for loop in inner_loops(code)]
    # The fewest instructions for a multiply-add, where several loops have as many products.
    loop = max(loops, key=lambda loop: (macs(loop), -len(loop)))
    total = macs(loop)
    work = sum(is_vector(name, operands) for _, name, operands in loop)
    loads = sum(is_vector_load(name, operands) for _, name, operands in loop)
    return {
        "what": kernel.what,
        "needs": kernel.extension,
        "multiply_adds": total,
        "vector_instructions": work,
        "vector_loads": loads,
        "instructions": len(loop),
        "multiply_adds_a_cycle": {cpu: round(total / cycles(loop, cpu), 1) for cpu in CPUS
                                  if not (kernel.extension and cpu in ("cortex-a53", "cortex-a72"))},
    }  # fmt: skip


def first_line(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")[0]


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--xnnpack", type=Path, required=True, help="a copy of google/XNNPACK")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        rows = []
        for kernel in KERNELS:
            file = OBJECTS / kernel.file
            if kernel.file.startswith("src/"):
                source = arguments.xnnpack / kernel.file
                file = assembled(source, arguments.xnnpack, Path(directory))
            rows.append(count(kernel, file))
            print(rows[-1], flush=True)
    versions = {
        "compiler": first_line("aarch64-linux-gnu-gcc", "--version"),
        "XNNPACK": first_line(
            "git", "-C", str(arguments.xnnpack), "rev-parse", "--short=10", "HEAD"
        ),
    }
    command = "python benchmarks/instructions.py --xnnpack DIR"
    print(save("instructions", command, versions=versions, loops=rows))


if __name__ == "__main__":
    main()
