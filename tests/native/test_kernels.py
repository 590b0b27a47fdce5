"""The kernels of the engine against their specification: see kernel_test.cpp."""

from __future__ import annotations

import platform
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = [
    ROOT / "native/make_ops.cpp",
    *sorted((ROOT / "native/kernels").glob("*.cpp")),
    Path(__file__).with_name("kernel_test.cpp"),
]
FLAGS = ["-std=c++17", "-fPIC", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror"]
SANITIZED = ["-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
COMPILER = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
MACHINE = {"amd64": "x86_64", "arm64": "aarch64"}.get(
    platform.machine().lower(), platform.machine()
)

pytestmark = pytest.mark.skipif(not COMPILER, reason="no C++ compiler")


def run(*command: str | Path) -> str:
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def build(directory: Path, *flags: str) -> Path:
    """The test program; its objects are left in the directory."""

    def compile(source: Path) -> Path:
        target = directory / f"{source.stem}.o"
        special = ["-mavx2"] if source.stem.endswith("_avx2") and MACHINE == "x86_64" else []
        run(str(COMPILER), *FLAGS, *flags, *special, "-c", source, "-o", target)
        return target

    with ThreadPoolExecutor() as threads:
        objects = list(threads.map(compile, SOURCES))
    program = directory / "kernel_test"
    run(str(COMPILER), *flags, *objects, "-o", program)
    return program


def test_kernels_give_the_bits_of_their_specification(tmp_path: Path) -> None:
    program = build(tmp_path, "-O3")
    assert "passed" in run(program, "1", "150")

    # On a CPU without AVX2 the linker must not have picked this file's copy of a shared function.
    if MACHINE == "x86_64" and shutil.which("nm"):
        symbols = run("nm", "-C", tmp_path / "simd_avx2.o").splitlines()
        shared = [line for line in symbols if " W " in line or " V " in line or " u " in line]
        assert not shared


def test_kernels_stay_inside_their_planes(tmp_path: Path) -> None:
    probe = tmp_path / "probe.cpp"
    probe.write_text("int main() {}\n")
    command = [str(COMPILER), *SANITIZED, str(probe), "-o", str(tmp_path / "probe")]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("the compiler has no sanitizers")
    assert "passed" in run(build(tmp_path, *SANITIZED), "2", "40")
