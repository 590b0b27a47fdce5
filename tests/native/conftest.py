"""The native programs of the tests, built by CMake with sanitizers; build/ keeps what did not change."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from dbq.support.lock import only_one

ROOT = Path(__file__).parents[2]
TARGETS = ("engine_test", "fuzz_replay", "classify")


def build_with_cmake(directory: Path, *options: str) -> None:
    """All of TARGETS; the output of the compiler is shown if it fails."""
    configure = ["cmake", "-S", str(ROOT), "-B", str(directory), "-DDBQ_TESTS=ON", *options]
    build = ["cmake", "--build", str(directory), "-j", str(os.cpu_count()), "--target", *TARGETS]
    for command in (configure, build):
        result = subprocess.run(command, capture_output=True, text=True)
        assert result.returncode == 0, result.stdout + result.stderr


def sanitizers_work(directory: Path) -> bool:
    compiler = os.environ.get("CXX") or shutil.which("c++") or "c++"
    source = directory / "probe.cpp"
    source.write_text("int main() {}\n")
    flags = ["-fsanitize=address,undefined", str(source), "-o", str(directory / "probe")]
    return subprocess.run([compiler, *flags], capture_output=True).returncode == 0


@pytest.fixture(scope="session")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the programs in TARGETS, which stop at the first mistake they make."""
    if not shutil.which("cmake"):
        pytest.skip("no cmake")
    if not sanitizers_work(tmp_path_factory.mktemp("probe")):
        pytest.skip("the compiler has no sanitizers")
    directory = ROOT / "build" / "sanitized"
    with only_one(ROOT / "build" / "sanitized.lock"):  # another worker may want the same
        build_with_cmake(directory, "-DDBQ_SANITIZE=ON", "-DCMAKE_CXX_FLAGS_RELEASE=-O1")
    return directory
