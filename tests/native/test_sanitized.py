"""Native tests under sanitizers: memory, undefined behaviour, data races; and the fuzzer's corpus."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from dbq.deploy.engine import available_isas
from dbq.deploy.fileformat import save, write_program
from tests.native.damage import HEADER, bit_flips, extreme_words, truncations
from tests.native.handmade import random_program, small_program

HERE = Path(__file__).parent
NATIVE = HERE.parents[1] / "native"


def run(*command: str | Path, **environment: str) -> str:
    result = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **environment}
    )
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-4000:]
    return result.stdout


@pytest.mark.parametrize("isa", available_isas())
def test_engine(sanitized: Path, tmp_path: Path, isa: str) -> None:
    save(random_program(5, length=10), tmp_path / "net.dbq")
    assert "fine" in run(sanitized / "engine_test", tmp_path / "net.dbq", DBQ_ISA=isa)


@pytest.mark.parametrize("isa", available_isas())
def test_the_corpus_of_the_fuzzer(sanitized: Path, isa: str) -> None:
    corpus = sorted((HERE / "corpus").iterdir())
    assert 50 < len(corpus) < 150
    assert sum(file.stat().st_size for file in corpus) < 200_000
    replayed = run(sanitized / "fuzz_replay", *corpus, DBQ_ISA=isa)
    assert replayed.startswith(f"{len(corpus)} files")


def test_damaged_files(sanitized: Path, tmp_path: Path) -> None:
    """What test_hostile_files.py gives to the plain library, where a crash is less sure to show."""
    body = write_program(small_program())[HEADER:]
    files = [*truncations(body), *bit_flips(body), *list(extreme_words(body))[::7]]
    # One file, each part behind its length: starting a process for each would take minutes.
    joined = tmp_path / "damaged"
    joined.write_bytes(b"".join(len(file).to_bytes(4, "little") + file for file in files))
    assert run(sanitized / "fuzz_replay", "--joined", joined).startswith(f"{len(files)} files")


def test_random_programs(sanitized: Path, tmp_path: Path) -> None:
    """Valid networks of every kind run inside their memory, images and logits included."""
    for seed in range(200, 240):
        (tmp_path / str(seed)).write_bytes(write_program(random_program(seed, length=5))[HEADER:])
    run(sanitized / "fuzz_replay", *sorted(tmp_path.iterdir()))


def test_the_thread_pool_has_no_races(tmp_path: Path) -> None:
    compiler = os.environ.get("CXX") or shutil.which("c++")
    if not compiler:
        pytest.skip("no C++ compiler")
    sources = [HERE / "thread_pool_test.cpp", NATIVE / "thread_pool.cpp"]
    flags = ["-std=c++17", "-O1", "-g", "-pthread", "-fsanitize=thread"]
    command = [compiler, *flags, *sources, "-o", tmp_path / "thread_pool_test"]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("the compiler has no ThreadSanitizer")
    assert "fine" in run(tmp_path / "thread_pool_test")
