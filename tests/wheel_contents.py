"""What a manylinux wheel holds; run by wheels.sh: python -m tests.wheel_contents WHEEL MACHINE."""

from __future__ import annotations

import re
import struct
import sys
import zipfile
from pathlib import Path

MACHINES = {"aarch64": 183, "x86_64": 62}  # e_machine of ELF
NEWEST = (2, 17)  # glibc


def main(wheel: Path, machine: str) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (about,) = (name for name in names if name.endswith(".dist-info/WHEEL"))
        tags = re.findall(r"^Tag: (.*)$", archive.read(about).decode(), re.MULTILINE)
        assert tags == [f"py3-none-manylinux_2_17_{machine}"], tags
        assert {"dbq/web/dbq.js", "dbq/web/dbq.wasm"} <= set(names), "no engine for browsers"
        libraries = [name for name in names if name.endswith(".so")]
        assert libraries == ["dbq/libdbq.so", "dbq/libdbq_train.so"], libraries
        for name in libraries:
            content = archive.read(name)
            assert struct.unpack_from("<H", content, 18)[0] == MACHINES[machine], name
            versions = {
                tuple(map(int, found)) for found in re.findall(rb"GLIBC_(\d+)\.(\d+)", content)
            }
            assert max(versions) <= NEWEST, f"{name} needs glibc {max(versions)}"
            assert b"libstdc++.so" not in content, f"{name} needs a C++ library"
    print(f"{wheel.name}: {wheel.stat().st_size:,} bytes, {', '.join(libraries)}, dbq.wasm")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
