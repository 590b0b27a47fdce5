"""The kernels of the engine against their specification: see kernel_test.cpp."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.native.programs import Programs

pytestmark = pytest.mark.native


def test_kernels_give_the_bits_of_their_specification(plain: Programs) -> None:
    assert "passed" in plain.run("kernel_test", "1", "150")


def test_every_layer_of_the_networks_gets_its_kernel(plain: Programs) -> None:
    assert "fine" in plain.run("select_test")


def test_kernels_stay_inside_their_planes(sanitized: Programs) -> None:
    assert "passed" in sanitized.run("kernel_test", "2", "40")


def test_files_of_an_instruction_set_share_no_code(plain: Programs) -> None:
    """On an older CPU the linker must not have picked this file's copy of a shared function."""
    plain.path("kernel_test")
    objects = sorted(plain.directory.glob("CMakeFiles/dbq_objects.dir/native/kernels/isa/**/*.o"))
    assert objects
    if not shutil.which("nm"):
        pytest.skip("nm is not installed")
    for file in objects:
        symbols = subprocess.run(["nm", "-C", file], capture_output=True, text=True, check=True)
        shared = [line for line in symbols.stdout.splitlines() if line[17:18] in ("W", "V", "u")]
        assert not shared, f"{file.name}: {shared}"
