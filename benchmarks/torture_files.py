"""Attacks on readers and on the engine: a file is refused by name or means what it says."""

from __future__ import annotations

import io
import multiprocessing
import os
import shutil
import warnings
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from PIL import Image
from typer.testing import CliRunner

from dbq.cli.main import app
from dbq.deploy import reference
from dbq.deploy.engine import Net, available_isas, load
from dbq.deploy.file.fileformat import read_program, save, write_program
from dbq.deploy.pictures.images import read_image
from dbq.deploy.program import Program
from dbq.errors import DataError, DbqError, RecipeError
from dbq.training.recipe import Recipe, load_recipe, recipe_names
from dbq.training.record.rundir import RunDir, read_network
from tests.disturbances import memory_in_use
from tests.native.damage import HEADER, mutants, repaired
from tests.native.handmade import images_for, random_program, small_program
from tests.native.verdicts import disagreements, engine_accepts

MOST_WORK = 10**6  # steps that the numpy reference takes in an instant
GROWTH = 2**24  # bytes that a process may grow by without a leak
MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16", "F")
FORMATS = ("PNG", "JPEG", "GIF", "TIFF", "WEBP", "BMP", "PPM")
# What people who mean harm put where a word or a number is expected.
WORDS = (
    '""', "-1", "0", "1e999", "nan", "true", "[]", "{}", "[[", "]", '"', "'''", "=", "#", "\0",
    "\x1b[2J", "9" * 5000, "[" * 3000, "{a=" * 300, "../../../etc/passwd", "/dev/zero", '"\\ud800"',
    "\u202e", "\n", "1979-05-27", "0xffffffffffffffff", "weights", "model.width", "1e-320", '"x"',
)  # fmt: skip


def dbq_files(dice: Random, work: Path, base: Path) -> Counter[str]:
    """Both readers refuse the same; what both accept, every instruction set computes as numpy does."""
    programs = [
        small_program(),
        *(random_program(dice.randrange(2**32), length=3) for _ in range(6)),
    ]
    bodies = [write_program(program)[HEADER:] for program in programs]
    files = [repaired(body) for body in mutants(bodies, dice, count=400)]
    files += mutants([write_program(program) for program in programs], dice, count=100)
    assert (found := disagreements(files)) == [], found[0].hex()
    accepted = [content for content in files if engine_accepts(content)]
    counts = Counter({"files": len(files), "accepted by both": len(accepted)})
    for content in accepted:
        counts["run as numpy does"] += _runs_as_specified(content)
    return counts


def _runs_as_specified(content: bytes) -> bool:
    program = read_program(content)
    images = images_for(program, 1)
    for isa in available_isas():
        os.environ["DBQ_ISA"] = isa
        with load(content, threads=2) as net:
            if net.work > MOST_WORK:
                return False
            with np.errstate(all="ignore"):
                expected = reference.run(program, images)
            assert np.array_equal(net(images), expected, equal_nan=True), content.hex()
    del os.environ["DBQ_ISA"]
    return True


def checkpoints_and_results(dice: Random, work: Path, base: Path) -> Counter[str]:
    """Read as what was written, or refused: never as something else.

    One change in each: two, of which one hits the key of the checksum, look like a file of an earlier
    version, which had none.
    """
    run = RunDir(Path(shutil.copytree(base / "whole", work / "run")))
    counts: Counter[str] = Counter()
    for path, read in (
        (run.last, run.checkpoint),
        (run.final, lambda: read_network(run.final)),
        (run.path / "result.json", run.result),
    ):
        whole, expected = path.read_bytes(), read()
        for damaged in mutants([whole], dice, count=60, changes=(1,)):
            path.write_bytes(damaged)
            counts["files"] += 1
            try:
                assert _same(read(), expected), path
            except DbqError as error:
                _check(error, path.name)
                counts["refused by name"] += 1
        path.write_bytes(whole)
    return counts


def _check(error: DbqError, name: str = "") -> None:
    """A refusal is one line of reasonable length that names the file."""
    assert name in str(error), error
    assert "\n" not in str(error), error
    assert len(str(error)) < 1000, error


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, tuple):
        return all(map(_same, one, other))
    return bool(one == other)


def images(dice: Random, work: Path, base: Path) -> Counter[str]:
    """Damaged image files: pixels of the asked shape, or an error that names the file."""
    counts: Counter[str] = Counter()
    path = work / "image"
    for content in mutants([_picture(dice) for _ in range(10)], dice, count=200):
        path.write_bytes(content)
        counts["files"] += 1
        shape = (dice.choice((1, 32, 224)), dice.choice((1, 32, 224)), dice.choice((1, 3)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                pixels = read_image(path, shape, dice.choice((0, 32, 256)))
            except DataError as error:
                _check(error, str(path))
                counts["refused by name"] += 1
            else:
                assert (pixels.shape, pixels.dtype) == (shape, np.dtype("uint8"))
    return counts


def _picture(dice: Random) -> bytes:
    """A sound file of some mode and format that go together."""
    while True:
        size = dice.randint(1, 60), dice.randint(1, 60)
        noise = Image.frombytes("RGB", size, dice.randbytes(3 * size[0] * size[1]))
        content = io.BytesIO()
        try:
            noise.convert(dice.choice(MODES)).save(content, dice.choice(FORMATS))
        except (OSError, ValueError, KeyError):
            continue
        return content.getvalue()


def recipes(dice: Random, work: Path, base: Path) -> Counter[str]:
    """Recipes with words replaced, lines lost and characters changed: one line, or a sound recipe."""
    counts: Counter[str] = Counter()
    path = work / "recipe.toml"
    for _ in range(100):
        text = load_recipe(dice.choice(recipe_names())).to_toml()
        for _ in range(dice.choice((1, 1, 2, 5))):
            text = _rewritten(text, dice)
        path.write_text(text, encoding="utf-8", errors="surrogatepass")
        counts["files"] += 1
        try:
            recipe = load_recipe(path)
        except RecipeError as error:
            _check(error)
            counts["refused by name"] += 1
        else:
            assert Recipe.from_toml(recipe.to_toml()) == recipe
    return counts


def _rewritten(text: str, dice: Random) -> str:
    lines = text.splitlines()
    at = dice.randrange(len(lines)) if lines else 0
    match dice.randrange(5):
        case 0 if lines:
            lines[at] = lines[at].partition("=")[0] + "= " + dice.choice(WORDS)
        case 1 if lines:
            del lines[at]
        case 2:
            lines.insert(at, dice.choice(WORDS))
        case 3 if lines:
            lines.insert(dice.randrange(len(lines)), lines[at])
        case _:
            cut = dice.randrange(len(text) + 1)
            return text[:cut] + dice.choice(WORDS) + text[cut + dice.randint(0, 3) :]
    return "\n".join(lines)


def commands(dice: Random, work: Path, base: Path) -> Counter[str]:
    """Hostile facts and names in a sound file: no command crashes or steers the terminal."""
    counts: Counter[str] = Counter()
    picture, file = work / "a.png", work / "net.dbq"
    Image.new("RGB", (8, 8)).save(picture)
    keys = ("classes", "data", "recipe", "epoch", "plan", "resize_length", "mean", "top1")
    for _ in range(20):
        facts = {dice.choice(keys): _value(dice, 3) for _ in range(dice.randint(1, 4))}
        save(replace(random_program(dice.randrange(2**32), length=2), facts=facts), file)
        arguments = dice.choice((["inspect", file], ["run", file, picture], ["eval", file]))
        done = CliRunner().invoke(app, [str(argument) for argument in arguments])
        assert done.exit_code in (0, 2), (facts, done.output, done.exception)
        assert all(c == "\n" or c.isprintable() for c in done.output), done.output
        counts["commands"] += 1
    return counts


def _value(dice: Random, depth: int) -> object:
    kind = dice.randrange(8 if depth else 6)
    if kind < 6:
        word = dice.choice([word for word in WORDS if len(word) < 300])
        return (None, True, dice.randint(-(2**70), 2**70), dice.uniform(-1, 1), word, word)[kind]
    values = [_value(dice, depth - 1) for _ in range(dice.randint(0, 4))]
    return values if kind == 6 else {str(i): value for i, value in enumerate(values)}


def _any_network(dice: Random) -> tuple[Program, Net, Any, Any]:
    program = random_program(dice.randrange(2**32), length=8)
    some = images_for(program, 5, dice.randrange(2**32))
    net = load(write_program(program), threads=dice.randint(1, 4))
    return program, net, some, reference.run(program, some)


def threads(dice: Random, work: Path, base: Path) -> Counter[str]:
    """Eight threads use one network, and change its number of threads, at the same time."""
    _, net, some, expected = _any_network(dice)

    def call(number: int) -> bool:
        if number % 50 == 0:
            net.threads = 1 + number // 50 % 8
        count = 1 + number % len(some)
        return np.array_equal(net(some[:count]), expected[:count])

    with net, ThreadPoolExecutor(8) as callers:
        assert all(callers.map(call, range(2000)))
    return Counter({"runs": 2000})


def loads(dice: Random, work: Path, base: Path) -> Counter[str]:
    """Networks are loaded, run now and then, and freed: memory stays."""
    content = write_program(random_program(dice.randrange(2**32), length=4))
    before = 0
    for number in range(10_000):
        with load(content, threads=1 + number % 2) as net:
            if number % 100 == 0:
                net(np.zeros(net.input_shape, np.uint8))
        if number == 1000:
            before = memory_in_use()
    assert memory_in_use() - before < GROWTH, memory_in_use() - before
    for damaged in mutants([content], dice, count=1000):
        assert engine_accepts(damaged) in (False, None, True)
    assert memory_in_use() - before < GROWTH
    return Counter({"loads": 11_000})


def forks(dice: Random, work: Path, base: Path) -> Counter[str]:
    """A child of a process that has run a network on several threads can run it too, and end."""
    _, net, some, expected = _any_network(dice)
    assert np.array_equal(net(some), expected)
    fork = multiprocessing.get_context("fork")

    def child() -> None:
        same = np.array_equal(net(some), expected)
        net.close()
        os._exit(0 if same else 3)

    for _ in range(10):
        process = fork.Process(target=child)
        process.start()
        assert np.array_equal(net(some), expected)
        process.join(60)
        code = process.exitcode
        process.kill()  # if it hangs
        assert code == 0, code
    net.close()
    return Counter({"forks": 10})


Attack = Callable[[Random, Path, Path], Counter[str]]
ATTACKS: tuple[Attack, ...] = (
    dbq_files, checkpoints_and_results, images, recipes, commands, threads, loads, forks,
)  # fmt: skip
