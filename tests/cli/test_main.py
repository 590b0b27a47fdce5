"""The command line, in this process and once as a real one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import dbq
from dbq.cli.main import app
from dbq.cli.options import complete_model, complete_plan
from dbq.networks.table import MODELS, create_model
from dbq.plans.shipped import PLANS
from dbq.version import __version__

pytestmark = pytest.mark.process

RUN = CliRunner()
SMALL = ["mobilenet_v1", "--width", "0.25", "--size", "32", "--classes", "10"]


def run(*arguments: str) -> str:
    result = RUN.invoke(app, list(arguments))
    assert result.exit_code == 0, result.output
    return result.stdout


def fail(*arguments: str) -> str:
    result = RUN.invoke(app, list(arguments))
    assert result.exit_code == 2
    assert result.stdout == ""
    return result.stderr


def test_cost_by_role() -> None:
    text = run("cost", *SMALL, "--plan", "dbq-2t-4")
    assert "mobilenet_v1, width 0.25, 32x32, plan dbq-2t-4\n" in text
    assert "pointwise" in text
    assert "note: zeros and C_S are those of untrained, random weights" in text
    assert max(map(len, text.splitlines())) <= 100


def test_cost_by_layer_and_by_operations() -> None:
    assert "blocks.12.pointwise.conv" in run("cost", *SMALL, "--by", "layer")
    assert "mults" in run("cost", *SMALL, "--by", "ops")


def test_cost_as_json_of_the_papers_network() -> None:
    data = json.loads(run("cost", "mobilenet_v1", "--json"))
    assert (data["model"], data["plan"], data["size"], data["note"]) == (
        "mobilenet_v1",
        "fp",
        224,
        "",
    )
    assert data["total"]["C_C"] == 333_731_026_216
    assert data["operations"]["total"]["mults"] == 573_783_040


def test_cost_of_a_prepared_network_counts_its_zeros() -> None:
    data = json.loads(run("cost", *SMALL, "--plan", "dbq-2t-4", "--fold-bn", "--json"))
    zeros = {row["name"]: row["sparsity"] for row in data["rows"] if row["group"] == "pointwise"}
    assert len(zeros) == 13
    assert all(0.1 < share < 0.7 for share in zeros.values())
    assert data["total"]["C_S"] < data["total"]["C_C"]
    assert data["fold_bn"] is True
    assert data["by_role"]["batch_norm"]["params"] == 0


def test_cost_with_weights(tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    torch.save(create_model("resnet20", width=0.5).state_dict(), path)
    text = run("cost", "resnet20", "--width", "0.5", "--plan", "resnet-1t", "--weights", str(path))
    assert "untrained" not in text


def test_cost_with_a_plan_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(PLANS["dbq-2t-4"].to_toml().replace('"dbq-2t-4"', '"mine"'))
    assert "plan mine" in run("cost", *SMALL, "--plan", str(path))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mobilnet_v1"], "error: no network named 'mobilnet_v1'; closest: mobilenet_v1"),
        ([*SMALL, "--plan", "dbq2t4"], "error: no plan named 'dbq2t4'; closest: dbq-2t-4"),
        ([*SMALL, "--plan", "none.toml"], "error: cannot read plan none.toml"),
        (["resnet20", "--plan", "dbq-1t"], "error: plan dbq-1t quantizes no layer"),
        (["resnet20", "--width", "-1"], "error: resnet20: width -1.0"),
        (["resnet20", "--width", "100000"], "error: resnet20: width 100000.0"),
        (["resnet20", "--weights", "x" * 300], "error: " + "x" * 300),
        (["resnet20", "--weights", "none.pth"], "error: none.pth: no such file"),
    ],
)
def test_errors_are_one_line(arguments: list[str], message: str) -> None:
    text = fail("cost", *arguments)
    assert text.startswith(message)
    assert text.count("\n") == 1


def test_usage_errors() -> None:
    assert "--by" in fail("cost", "resnet20", "--by", "colour")
    assert "model" in fail("cost")
    assert "--size" in fail("cost", "resnet20", "--size", "0")


def test_tables_as_text() -> None:
    text = run("tables")
    assert "5.24  5.2356 ✓" in text
    assert "0.64  0.5976 ≠" in text
    assert "not recomputable: per-layer bits not published" in text
    assert max(map(len, text.splitlines())) <= 100


def test_version_and_help() -> None:
    assert run("--version") == f"dbq {__version__}\n"
    assert "dbq cost mobilenet_v1 --plan dbq-2t-4" in run("cost", "--help")
    assert "--install-completion" in run("--help")


def test_completion_knows_all_names() -> None:
    assert complete_model("") == list(MODELS)
    assert complete_model("mob") == ["mobilenet_v1", "mobilenet_v2"]
    assert complete_plan("") == list(PLANS)
    assert complete_plan("resnet-2") == ["resnet-2t", "resnet-2t-a8"]


def test_real_process_prints_json_and_nothing_else() -> None:
    source = str(Path(dbq.__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": source, "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "dbq", "tables", "--json"]
    done = subprocess.run(command, capture_output=True, env=environment, check=True, timeout=120)
    assert done.stderr == b""
    data = json.loads(done.stdout)
    assert [table["key"] for table in data["tables"]][:2] == ["operations", "resnet20"]
    assert all(
        figure["agrees"] for row in data["tables"][0]["rows"] for figure in row["figures"].values()
    )
