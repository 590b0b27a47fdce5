"""The examples in help texts: all are parsed, and two of every command are run."""

from __future__ import annotations

import glob
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from safetensors.torch import save_file
from typer.main import get_command
from typer.testing import CliRunner

import dbq
from dbq.cli.main import app
from dbq.deploy.csource.boards.machines import MACHINES
from dbq.deploy.csource.boards.verify import missing_tools
from dbq.deploy.page.page import can_write_pages
from dbq.experiments import demo
from dbq.training.recipe import load_recipe
from tests.cli.test_structure import commands
from tests.experiments.sweep.small import FOUR_RUNS
from tests.experiments.sweep.small import write as write_sweep
from tests.photographs import write_photograph
from tests.test_doc_commands import SHORT, parse
from tests.training.test_shipped_recipes import make_cifar10

RUN = CliRunner()
ONE_RUN = FOUR_RUNS.replace("[0.125, 0.25]", "[0.125]")  # and its float network
# Examples that are parsed only, by what they begin with or contain, and why.
PARSED_ONLY = {
    "dbq sweep cifar10-vehicles": "needs CIFAR-10, and hours",
    "resnet20-fp": "needs CIFAR-10",
    "/data/": "needs ImageNet or COCO",
    "--ray": "needs a cluster",
    "dbq train mine.toml": "somebody's own files",
    "mine.networks": "somebody's own files",
    "mine.data": "somebody's own files",
    "mine.dbq": "somebody's own files",
    "digits-2t --out runs/2t --resume": "that run is finished",
}
# What others use comes first, what overwrites it last; all others are between.
ORDER = ("dbq train digits-fp", "dbq train digits-2t --out", "dbq export runs", "dbq search",
         "nothing else", "dbq quantize")  # fmt: skip
OTHERS = ORDER.index("nothing else")


def is_run(line: str) -> bool:
    return not any(part in line for part in PARSED_ONLY)


def examples(help: str) -> list[str]:
    """The commands behind "Examples:"; a line that ends with a backslash goes on."""
    text = (help or "").partition("Examples:")[2].replace("\\\n", " ")
    lines = (" ".join(line.split()) for line in text.splitlines())
    return [line for line in lines if line.startswith("dbq ")]


def every() -> Iterator[tuple[str, list[str]]]:
    group = get_command(app)
    yield "dbq", examples(group.help or "")
    for name in ("recipes", "data"):
        yield f"dbq {name}", examples(group.commands[name].help or "")  # type: ignore[attr-defined]
    for path, command in commands(group):
        yield f"dbq {' '.join(path)}", examples(command.help or "")


EXAMPLES = dict(every())


@pytest.mark.parametrize("command", list(EXAMPLES))
def test_every_help_text_has_two_examples(command: str) -> None:
    assert len(EXAMPLES[command]) >= 2
    shown = RUN.invoke(app, [*command.split()[1:], "--help"]).stdout
    for example in EXAMPLES[command]:
        assert example.split(" \\")[0][:40] in " ".join(shown.split()), "typer reflows it"


@pytest.mark.parametrize("command", list(EXAMPLES))
def test_every_example_is_a_command(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mixed.toml").write_text(dbq.PLANS["fx8-3"].to_toml())  # what `dbq search` writes
    for example in EXAMPLES[command]:
        parse(shlex.split(example)[1:])


@pytest.mark.parametrize("command", list(EXAMPLES))
def test_two_examples_of_every_command_are_run(command: str) -> None:
    assert sum(map(is_run, EXAMPLES[command])) >= 2


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the examples take for granted: photographs, weights, noise as CIFAR-10, a sweep."""
    monkeypatch.chdir(tmp_path)
    for name in ("cat.jpg", "dog.png", *(f"photographs/{letter}.png" for letter in "abcdefgh")):
        write_photograph(tmp_path / name)
    for number in range(10):
        write_photograph(tmp_path / "flowers" / ("rose", "tulip")[number % 2] / f"{number}.png")
    save_file(dbq.create_model("resnet20").state_dict(), "resnet20.safetensors")
    Path("classes.txt").write_text("".join(f"digit {number}\n" for number in range(10)))
    make_cifar10(tmp_path / "data")
    write_sweep(tmp_path, ONE_RUN).rename("mine.toml")
    # The demo's recipes are long, and no option makes them shorter.
    monkeypatch.setattr(demo, "load_recipe", lambda n, o: load_recipe(n, [*o, SHORT[1]]))


def shortened(words: list[str]) -> list[str]:
    """An example as it is run here: fewer epochs, and without emulators that are not installed."""
    if words[0] in ("train", "compare", "sweep"):
        return [*words, *SHORT]
    if words[0] == "quantize":
        return [*words, "--budget", "fast"]
    if "--verify" in words and missing_tools(MACHINES[words[-1]]):
        return words[:-2]
    return words


def rank(line: str) -> int:
    return next((n for n, start in enumerate(ORDER) if line.startswith(start)), OTHERS)


@pytest.mark.slow
@pytest.mark.process
def test_examples_run_in_the_order_of_a_users_day(home: None) -> None:
    found = dict.fromkeys(line for lines in EXAMPLES.values() for line in lines if is_run(line))
    for line in sorted(found, key=rank):
        if line.startswith("dbq page") and not can_write_pages():
            continue  # `make native` builds dbq.wasm
        words = shlex.split(line)[1:]
        words = words[: words.index(">")] if ">" in words else words
        words = [path for word in words for path in (sorted(glob.glob(word)) or [word])]
        print(line, flush=True)
        done = RUN.invoke(app, shortened(words))
        assert done.exit_code == 0, (line, done.output[-2000:])
        if words == ["export", "runs/2t"]:
            shutil.copy("runs/2t/net.dbq", "net.dbq")


def test_what_counts_as_an_example() -> None:
    assert examples("Do it.\n\nExamples:\n  dbq a b \\\n    --c\n  dbq d\n") == [
        "dbq a b --c",
        "dbq d",
    ]
    assert not re.search("dbq", "".join(examples("dbq a")))
