"""Tables into dataclasses: what is accepted, and that errors name file, key and value."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from dbq.errors import PlanError
from dbq.support import toml


@dataclass(frozen=True)
class Inner:
    size: int = 1

    def __post_init__(self) -> None:
        if self.size < 0:
            raise PlanError("too small")


@dataclass(frozen=True)
class Outer:
    name: str
    rate: float | None = None
    inner: Inner = Inner()
    by_name: Mapping[str, Inner] = field(default_factory=dict)
    seeds: tuple[int, ...] = ()
    given: str = ""


def build(**table: Any) -> Outer:
    return toml.build(Outer, table, "file.toml", PlanError, {Inner: str_to_inner}, given="ours")


def str_to_inner(value: Any) -> Any:
    return Inner(int(value)) if isinstance(value, str) else value


def test_values_of_every_kind() -> None:
    built = build(name="n", rate=2, inner={"size": 3}, by_name={"a.b": "7"}, seeds=[1, 2])
    assert built == Outer("n", 2.0, Inner(3), {"a.b": Inner(7)}, (1, 2), "ours")
    assert type(built.rate) is float
    assert copy.deepcopy(built) == built


@pytest.mark.parametrize(
    ("table", "names"),
    [
        ({}, ["name"]),
        ({"name": 3}, ["name = 3"]),
        ({"name": "n", "given": "x"}, ["given"]),
        ({"name": "n", "nmae": "x"}, ["nmae", "closest: name"]),
        ({"name": "n", "rate": "x"}, ["rate = 'x'"]),
        ({"name": "n", "rate": True}, ["rate = True"]),
        ({"name": "n", "inner": 3}, ["inner = 3"]),
        ({"name": "n", "inner": {"size": 1.0}}, ["inner.size = 1.0"]),
        ({"name": "n", "inner": {"sise": 1}}, ["inner.sise", "closest: size"]),
        ({"name": "n", "inner": {"size": -1}}, ["inner: too small"]),
        ({"name": "n", "inner": "-1"}, ["inner: too small"]),
        ({"name": "n", "by_name": {"a.b": {"size": "x"}}}, ["by_name.a.b.size = 'x'"]),
        ({"name": "n", "by_name": [1]}, ["by_name = [1]"]),
        ({"name": "n", "seeds": [1, "x"]}, ["seeds[1] = 'x'"]),
        ({"name": "n", "seeds": 1}, ["seeds = 1"]),
    ],
)
def test_errors_name_the_key_and_the_value(table: dict[str, Any], names: list[str]) -> None:
    with pytest.raises(PlanError) as caught:
        build(**table)
    message = str(caught.value)
    assert message.startswith("file.toml: ")
    assert [name for name in names if name not in message] == []


@pytest.mark.parametrize(
    "text",
    ["name = " + "[" * 3000, f"name = {'[' * 3000}{']' * 3000}", "name = " + "9" * 5000,
     "name = 0x" + "f" * 5000, "rate = " + "9" * 4000, f"name = {'[' * 300}{']' * 300}",
     f"name = '{'x' * 100_000}'\nrate = 'x'", 'name = "a\\u0000b"',
     "k" * 5000 + " = 1", f"name = 'n'\nby_name.{'k' * 5000} = 1"],
)  # fmt: skip
def test_absurd_documents_are_refused_in_a_line(text: str) -> None:
    with pytest.raises(PlanError) as caught:
        toml.build(Outer, toml.parse(text, "file.toml", PlanError), "file.toml", PlanError)
    message = str(caught.value)
    assert message.startswith("file.toml: ")
    assert "\n" not in message
    assert len(message) < 300


def test_paths_that_no_file_can_have() -> None:
    for name in ("nul\0.toml", "x" * 300 + ".toml"):
        with pytest.raises(PlanError):
            toml.read_text(Path(name), "plan", PlanError)
