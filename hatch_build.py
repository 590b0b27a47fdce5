"""Builds the native libraries when the package is built or installed, editable installs included.

`python hatch_build.py` builds those anew whose sources have changed.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import subprocess
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # there while a package is built; not needed to build the libraries alone
    BuildHookInterface = object

FLAGS = ["-std=c++17", "-O3", "-fPIC", "-pthread"]
# What training calls, and what runs .dbq files.
TRAINING, ENGINE = Path("src/dbq/libdbq_train.so"), Path("src/dbq/libdbq.so")
TRAINING_FLAGS = [*FLAGS, "-Wno-psabi"]
# The formula of the engine is the same bits everywhere: no fused multiply-add.
ENGINE_FLAGS = [*FLAGS, "-ffp-contract=off", "-fvisibility=hidden", "-Wall", "-Wextra"]

# Files for one kind of processor only, by the end of their names, and the flags these need.
SPECIAL = {"avx2": (("x86_64", "amd64"), ["-mavx2"]), "neon": (("aarch64", "arm64"), [])}


class NativeLibrary(BuildHookInterface):  # type: ignore[type-arg]
    """Compiles native/ into the package; the wheel fits every Python on this kind of machine."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if not compiler():
            self.app.display_warning("no C++ compiler: dbq will train by torch calls, more slowly")
            self.app.display_warning("no C++ compiler: dbq will not run .dbq files")
            return
        build(Path(self.root))
        build_data["artifacts"] += [str(TRAINING), str(ENGINE)]
        build_data["pure_python"] = False
        machine = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{machine}"


def compiler() -> list[str]:
    """The command of the C++ compiler; empty if there is none."""
    found = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
    return shlex.split(os.environ.get("CXX") or found or "")


def build(root: Path) -> None:
    """Both libraries, into the package."""
    version = re.search(r'__version__ = "(.*)"', (root / "src/dbq/version.py").read_text())
    assert version is not None
    training = root / "native/staircase.cpp"
    engine = {*root.glob("native/*.cpp"), *root.glob("native/kernels/*.cpp")} - {training}
    engine_flags = [*ENGINE_FLAGS, f'-DDBQ_VERSION="{version[1]}"']
    visible = f"-Wl,--version-script={root / 'native/dbq.map'}"
    make_library(root / TRAINING, [training], TRAINING_FLAGS, [])
    make_library(root / ENGINE, sorted(engine), engine_flags, [visible])


def is_current(root: Path) -> bool:
    """Whether both libraries are newer than everything they are made of."""
    built = [root / TRAINING, root / ENGINE]
    sources = [root / "hatch_build.py", root / "src/dbq/version.py", *root.glob("native/**/*.*")]
    newest = max(source.stat().st_mtime for source in sources)
    return all(library.exists() and library.stat().st_mtime > newest for library in built)


def make_library(library: Path, sources: list[Path], flags: list[str], linking: list[str]) -> None:
    """Compile each source by itself, as many at once as there are processors; link; replace."""
    with tempfile.TemporaryDirectory() as directory, ThreadPoolExecutor(os.cpu_count()) as threads:

        def compile(source: Path) -> str:
            target = f"{directory}/{source.parent.name}-{source.stem}.o"
            run(*compiler(), *flags, *special_flags(source), "-c", str(source), "-o", target)
            return target

        objects = list(threads.map(compile, filter(for_this_machine, sources)))
        partial = library.with_suffix(".partial")
        run(*compiler(), "-shared", "-pthread", *objects, *linking, "-o", str(partial))
    partial.replace(library)


def run(*command: str) -> None:
    subprocess.run(command, check=True)


def for_this_machine(source: Path) -> bool:
    machines, _ = SPECIAL.get(source.stem.rpartition("_")[2], (None, []))
    return machines is None or platform.machine().lower() in machines


def special_flags(source: Path) -> list[str]:
    return SPECIAL.get(source.stem.rpartition("_")[2], (None, []))[1]


if __name__ == "__main__":
    here = Path(__file__).parent
    if not compiler():
        print("no C++ compiler: nothing is built")
    elif not is_current(here):
        build(here)
