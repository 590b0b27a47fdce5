"""Native tests under sanitizers: memory, undefined behaviour, data races; and the fuzzer's corpus."""

from __future__ import annotations

from pathlib import Path

import pytest

from dbq.deploy.engine import available_isas
from dbq.deploy.file.fileformat import save, write_program
from tests.native.damage import HEADER, bit_flips, extreme_words, truncations
from tests.native.handmade import random_program, small_program
from tests.native.programs import Programs

pytestmark = pytest.mark.native

CORPUS = Path(__file__).parent / "corpus"


@pytest.mark.parametrize("isa", available_isas())
def test_engine(sanitized: Programs, tmp_path: Path, isa: str) -> None:
    save(random_program(5, length=10, outputs=2), tmp_path / "net.dbq")
    assert "fine" in sanitized.run("engine_test", tmp_path / "net.dbq", DBQ_ISA=isa)


def test_no_two_types_share_a_name(plain: Programs, tmp_path: Path) -> None:
    """Built with link-time optimisation, which fails if two types of one name differ."""
    save(random_program(5, length=10, outputs=2), tmp_path / "net.dbq")
    assert "fine" in plain.run("engine_test_lto", tmp_path / "net.dbq")


@pytest.mark.parametrize("isa", available_isas())
def test_the_corpus_of_the_fuzzer(sanitized: Programs, isa: str) -> None:
    corpus = sorted(CORPUS.iterdir())
    assert 50 < len(corpus) < 150
    assert sum(file.stat().st_size for file in corpus) < 200_000
    replayed = sanitized.run("fuzz_replay", *corpus, DBQ_ISA=isa)
    assert replayed.startswith(f"{len(corpus)} files")


def test_damaged_files(sanitized: Programs, tmp_path: Path) -> None:
    """What test_hostile_files.py gives to the plain library, where a crash is less sure to show."""
    body = write_program(small_program())[HEADER:]
    files = [*truncations(body), *bit_flips(body), *list(extreme_words(body))[::7]]
    # One file, each part behind its length: starting a process for each would take minutes.
    joined = tmp_path / "damaged"
    joined.write_bytes(b"".join(len(file).to_bytes(4, "little") + file for file in files))
    replayed = sanitized.run("fuzz_replay", "--joined", joined)
    assert replayed.startswith(f"{len(files)} files")


def test_random_programs(sanitized: Programs, tmp_path: Path) -> None:
    """Valid networks of every kind run inside their memory, images and logits included."""
    for seed in range(200, 240):
        (tmp_path / str(seed)).write_bytes(
            write_program(random_program(seed, length=5, outputs=seed % 3 + 1))[HEADER:]
        )
    sanitized.run("fuzz_replay", *sorted(tmp_path.iterdir()))


def test_the_thread_pool_has_no_races(thread_sanitized: Programs) -> None:
    assert "fine" in thread_sanitized.run("thread_pool_test")


def test_the_engine_has_no_races(thread_sanitized: Programs, tmp_path: Path) -> None:
    save(random_program(5, length=10, outputs=2), tmp_path / "net.dbq")
    assert "fine" in thread_sanitized.run("engine_test", tmp_path / "net.dbq")
