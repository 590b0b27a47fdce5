"""The same files give the same logits, bit for bit, on every processor: one table of hashes.

Other processors are emulated: qemu runs what `make native` builds with cross compilers, Bochs those for
x86-64, AVX-512 included; Node and wasmtime run WebAssembly. What is not installed is skipped by name.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from dbq.deploy import reference
from dbq.deploy.engine import available_isas, load
from dbq.deploy.file.fileformat import load_program
from tests.native.networks import NETWORKS, hash_of, noise_images, write_network
from tests.native.programs import BUILD

pytestmark = pytest.mark.native

HERE = Path(__file__).parent
NODE = ("node", "--no-warnings", str(HERE / "wasi.mjs"))
RELAXED_NODE = (
    "node",
    "--experimental-wasm-relaxed-simd",
    *NODE[1:],
)  # Node 20 has them by request
WASMTIME = (sys.executable, str(HERE / "wasi_wasmtime.py"))
BOCHS = (sys.executable, str(HERE / "emulated_x86.py"))
# What runs the program of a build, and the instruction set that must be in use.
PLACES: dict[str, tuple[str, Sequence[str], str]] = {
    "x86-64 tigerlake": ("plain/bochs", (*BOCHS, "tigerlake"), "avx512"),
    # An instruction that these do not have ends the program.
    "x86-64 haswell": ("plain/bochs", (*BOCHS, "corei7_haswell_4770"), "avx2"),
    "x86-64 pentium 4": ("plain/bochs", (*BOCHS, "p4_prescott_celeron_336"), "generic"),
    "aarch64 cortex-a53": ("aarch64", ("qemu-aarch64-static", "-cpu", "cortex-a53"), "neon"),
    "aarch64 neoverse-n1": ("aarch64", ("qemu-aarch64-static", "-cpu", "neoverse-n1"), "neon-dot"),
    "aarch64 max": ("aarch64", ("qemu-aarch64-static", "-cpu", "max"), "neon-i8mm"),
    "armhf": ("armhf", ("qemu-arm-static",), "generic"),
    "s390x, big-endian": ("s390x", ("qemu-s390x-static",), "generic"),
    "wasm in Node": ("wasm", NODE, "wasm"),
    "wasm in wasmtime": ("wasm", WASMTIME, "wasm"),
    "relaxed wasm in Node": ("wasm", RELAXED_NODE, "wasm-relaxed"),
    "relaxed wasm in wasmtime": ("wasm", WASMTIME, "wasm-relaxed"),
    # Not in Node 20: its quick compiler (liftoff) gives wrong sums by this instruction on x86 without
    # AVX-VNNI, where dbq.js never chooses it.
    "relaxed wasm, sums of 32 bits": ("wasm", WASMTIME, "wasm-dot"),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    directory = tmp_path_factory.mktemp("networks")
    return {name: write_network(name, directory) for name in NETWORKS}


@pytest.fixture(scope="module")
def hashes(files: dict[str, Path]) -> dict[str, str]:
    """By the specification in numpy."""
    expected = {}
    for name, path in files.items():
        program = load_program(path)
        with load(path) as net:
            images = noise_images(net.input_shape)
        expected[name] = hash_of(np.asarray(reference.run(program, images)))
    return expected


def program_of(place: str, name: str) -> list[str]:
    """The command that runs the program `name` in a place; without its parts the test is skipped."""
    build, command, isa = PLACES[place]
    if build == "wasm":
        name = f"{name}{isa.removeprefix('wasm').replace('-', '_')}.wasm"
    program = BUILD / build / name
    if not program.exists():
        pytest.skip(
            f"{program} is not built: `make native` builds it where its compiler is installed"
        )
    if not shutil.which(command[0]):
        pytest.skip(f"{command[0]} is not installed")
    if command[:2] == BOCHS and not shutil.which("bochs"):
        pytest.skip("bochs is not installed: apt-get install bochs bochs-term")
    if command is WASMTIME and not importlib.util.find_spec("wasmtime"):
        pytest.skip("wasmtime is not installed: pip install wasmtime")
    return [*command, str(program)]


@pytest.mark.parametrize("isa", available_isas())
def test_this_processor(
    isa: str, files: dict[str, Path], hashes: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DBQ_ISA", isa)
    for name, path in files.items():
        with load(path) as net:
            assert net.isa == isa
            assert hash_of(net(noise_images(net.input_shape))) == hashes[name], name


@pytest.mark.parametrize("place", PLACES)
def test_other_processors(place: str, files: dict[str, Path], hashes: dict[str, str]) -> None:
    isa = PLACES[place][2]
    result = subprocess.run(
        [*program_of(place, "logits"), *map(str, files.values())],
        capture_output=True, text=True, env={**os.environ, "DBQ_ISA": ""},
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
    found = [line.split() for line in result.stdout.splitlines()]
    assert found == [[name, hashes[name], isa] for name in files]


@pytest.mark.parametrize("place", [place for place in PLACES if PLACES[place][2] != "generic"])
def test_kernels_of_other_processors(place: str) -> None:
    """Generic kernels are the same everywhere: kernel_test has them on this processor."""
    result = subprocess.run(
        [*program_of(place, "kernel_test"), "3", "12", "own"], capture_output=True, text=True
    )
    assert "passed" in result.stdout, result.stdout + result.stderr


def test_npm_package_in_node(files: dict[str, Path], tmp_path: Path) -> None:
    command = node_package()
    for path in files.values():
        with load(path) as net:
            images = noise_images(net.input_shape)
            expected = net(images).tobytes()
        (tmp_path / "images").write_bytes(images.tobytes())
        found = subprocess.run(
            [*command, path, tmp_path / "images"], capture_output=True, check=True
        )
        assert found.stdout == expected, found.stdout[:200]


def test_npm_package_names_a_damaged_file(files: dict[str, Path], tmp_path: Path) -> None:
    content = bytearray(files["resnet20"].read_bytes())
    content[1000] ^= 1
    (tmp_path / "damaged.dbq").write_bytes(content)
    (tmp_path / "images").write_bytes(b"")
    command = [*node_package(), str(tmp_path / "damaged.dbq"), str(tmp_path / "images")]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.startswith("DbqError: ")
    assert "checksum" in said
    assert said.endswith("the file is damaged: copy or export it again")


def node_package() -> list[str]:
    node, wasm = shutil.which("node"), BUILD / "wasm" / "dbq.wasm"
    if not node or not wasm.exists():
        pytest.skip("node or build/wasm/dbq.wasm is missing: `make native` builds it with ziglang")
    library = BUILD.parent / "web" / "dbq.js"
    return [node, str(HERE / "run_network.mjs"), str(library), str(wasm)]
