"""Runs a static program for x86-64 Linux on an emulated processor, by Bochs, which knows AVX-512.

    python emulated_x86.py MODEL PROGRAM [ARGUMENT ...]

MODEL is one of `bochs --help cpu`; tigerlake has AVX-512 with VNNI. No Linux is started: a ROM that is
built beside PROGRAM (bochs/) loads the program and serves its system calls. The machine's disk holds the
program, and arguments that are files.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

SECONDS = 1800  # a minute where the machine does nothing else
MEGABYTES = 512
SECTOR, CYLINDER = 512, 512 * 16 * 63
FILES, HEADER = 16, 16384  # of struct Disk in bochs/system.c
START, END = "\nthe program starts\n", "\nthe program ended with "

# The display is a terminal that nobody looks at. Bochs writes to it, and standard output stays ours.
CONFIGURATION = """
display_library: term
config_interface: textconfig
romimage: file="{rom}"
cpu: model={model}, count=1, ips=50000000, reset_on_triple_fault=0
memory: guest={megabytes}, host={megabytes}
clock: sync=none
port_e9_hack: enabled=1
ata0: enabled=1, ioaddr1=0x1f0, ioaddr2=0x3f0, irq=14
ata0-master: type=disk, path="disk", mode=flat, cylinders={cylinders}, heads=16, spt=63
vga: extension=none
speaker: enabled=0
log: log
panic: action=fatal
"""


def disk(program: str, arguments: list[str]) -> bytes:
    """struct Disk of bochs/system.c, and the files behind it."""
    names = [program, *(argument for argument in arguments if Path(argument).is_file())]
    text = b"".join(argument.encode() + b"\0" for argument in (program, *arguments))
    table, files = b"", b""
    for name in names:
        content = Path(name).read_bytes()
        table += struct.pack("<3I", len(text), (HEADER + len(files)) // SECTOR, len(content))
        text += name.encode() + b"\0"
        files += content + bytes(-len(content) % SECTOR)
    counts = struct.pack("<3I", MEGABYTES << 20, 1 + len(arguments), len(names))
    header = counts + table.ljust(FILES * 12, b"\0") + text
    if len(names) > FILES or len(header) > HEADER:
        raise SystemExit("too many files, or too long names of them")
    whole = header.ljust(HEADER, b"\0") + files
    return whole + bytes(-len(whole) % CYLINDER)


def main(model: str, program: str, *arguments: str) -> int:
    with tempfile.TemporaryDirectory() as directory:
        image = disk(program, list(arguments))
        Path(directory, "disk").write_bytes(image)
        Path(directory, "configuration").write_text(
            CONFIGURATION.format(
                rom=Path(program).resolve().parent / "bochs.rom",
                model=model,
                megabytes=MEGABYTES,
                cylinders=len(image) // CYLINDER,
            )
        )
        # Debian's Bochs has a debugger, which waits for commands: continue, and quit in the end.
        with Path(directory, "output").open("w+", errors="replace") as output:
            emulator = subprocess.Popen(
                ["bochs", "-q", "-f", "configuration"],
                cwd=directory,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "TERM": "vt100"},
            )
            try:
                emulator.communicate(b"c\nq\n", timeout=SECONDS)
            except subprocess.TimeoutExpired:
                print(f"not finished after {SECONDS} seconds", file=sys.stderr)
            finally:
                emulator.kill()
                emulator.wait()
            output.seek(0)
            said, _, printed = output.read().partition(START)
        if END in printed:
            printed, _, code = printed.rpartition(END)
            sys.stdout.write(printed)
            return int(code.split()[0])
        log = Path(directory, "log")
        logged = log.read_text(errors="replace") if log.exists() else ""
        for text in (said + printed, logged):
            print(*text.splitlines()[-30:], sep="\n", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
