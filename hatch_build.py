"""Builds the native library when the package is built or installed, editable installs included."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE, LIBRARY = Path("native/staircase.cpp"), Path("src/dbq/libdbq_train.so")
FLAGS = ["-std=c++17", "-O3", "-fPIC", "-shared", "-pthread", "-Wno-psabi"]


class NativeLibrary(BuildHookInterface):  # type: ignore[type-arg]
    """Compiles native/ into the package; the wheel fits every Python on this kind of machine."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        found = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
        compiler = shlex.split(os.environ.get("CXX") or found or "")
        if not compiler:
            self.app.display_warning("no C++ compiler: dbq will train by torch calls, more slowly")
            return
        partial = root / LIBRARY.with_suffix(".partial")
        subprocess.run([*compiler, *FLAGS, str(root / SOURCE), "-o", str(partial)], check=True)
        partial.replace(root / LIBRARY)
        build_data["artifacts"].append(str(LIBRARY))
        build_data["pure_python"] = False
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"
