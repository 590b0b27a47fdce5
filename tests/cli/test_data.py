"""`dbq data`: what is printed, as text and as JSON, and the exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dbq.cli.data import complete_data, data_app
from dbq.data.table import DATASETS
from dbq.errors import DataError
from tests.photographs import write_photograph

RUN = CliRunner()


def run(*arguments: str, status: int = 0) -> str:
    result = RUN.invoke(data_app, list(arguments))
    assert result.exit_code == status, result.output
    return result.stdout


@pytest.fixture
def imagenet(tmp_path: Path) -> Path:
    for part in ("train", "val"):
        for wnid in ("n1", "n2"):
            write_photograph(tmp_path / part / wnid / "a.JPEG")
    return tmp_path


def test_list() -> None:
    text = run("list")
    assert "cifar10: 60,000 colour photographs" in text
    assert "files: none" in text  # the digits
    assert max(map(len, text.splitlines())) <= 100
    rows = json.loads(run("list", "--json"))["data"]
    assert [row["name"] for row in rows] == list(DATASETS)
    assert all(row["layout"] for row in rows if row["name"] != "digits")


def test_prepare() -> None:
    assert "1437 to train, 360 to test" in run("prepare", "digits")
    assert json.loads(run("prepare", "digits", "--json"))["name"] == "digits"


def test_check() -> None:
    text = run("check", "digits")
    assert "train: 1437 images of 10 classes" in text
    checksum = text.strip().splitlines()[-1].removeprefix("sha256 ")
    data = json.loads(run("check", "digits", "--json"))
    assert data["sha256"] == checksum
    assert sum(data["splits"][1]["per_class"].values()) == 360
    assert data["problems"] == []


def test_check_finds_something_wrong(imagenet: Path) -> None:
    victim = imagenet / "val" / "n2" / "a.JPEG"
    assert "problem" not in run("check", "imagenet", str(imagenet), "--workers", "0")
    victim.write_bytes(b"damaged")
    text = run("check", "imagenet", str(imagenet), "--workers", "0", status=1)
    assert f"problem: {victim}: not an image" in text
    data = json.loads(run("check", "imagenet", str(imagenet), "--json", status=1))
    assert data["problems"] == [f"{victim}: not an image"]


def test_many_classes_are_summed_up(imagenet: Path) -> None:
    for part in ("train", "val"):
        for i in range(30):
            write_photograph(imagenet / part / f"m{i}" / "a.JPEG")
    text = run("check", "imagenet", str(imagenet), "--workers", "0")
    assert "train: 32 images of 32 classes" in text
    assert "1 to 1 a class" in text


def test_errors_go_through_to_the_root_command(tmp_path: Path) -> None:
    for arguments in (["prepare", "imagenet", str(tmp_path)], ["check", "cifar10"], ["check", "x"]):
        result = RUN.invoke(data_app, arguments)
        assert isinstance(result.exception, DataError)
        assert "\n" not in str(result.exception)


def test_help_has_examples() -> None:
    for command in ("list", "prepare", "check"):
        assert f"Examples:\n    dbq data {command}" in run(command, "--help")


def test_completion() -> None:
    assert complete_data("c") == ["cifar10", "cifar10-vehicles"]
