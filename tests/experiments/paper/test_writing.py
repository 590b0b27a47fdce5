"""`dbq paper`: its tables say what `dbq tables` says, its figures what the networks do."""

from __future__ import annotations

import json
import re
from importlib import import_module
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from dbq.cli.main import app
from dbq.costs.rules import Totals
from dbq.experiments.comparison.comparison import parse_all
from dbq.experiments.paper.figures import TEMPERATURES, staircase
from dbq.experiments.paper.tables import paper_tables
from dbq.experiments.paper.writing import Accuracy, _accuracies, our_accuracies, write_paper
from dbq.experiments.report.facts import RunFacts
from dbq.plans.precision import Precision
from dbq.quantizers.dbq.branch import BranchQuantizer
from dbq.training.recipe import load_recipe
from dbq.training.record.provenance import Provenance
from dbq.training.record.result import EvaluationSet, Result

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("paper")
    write_paper(out, [])
    return out


def test_every_table_is_there_with_every_figure(written: Path) -> None:
    text = (written / "tables.md").read_text()
    for number in ("Table 1", "Table 2", "Table 3", "Table 4", "Table 5", "storage", "sparsity"):
        assert number in text
    data = {table["key"]: table for table in json.loads((written / "tables.json").read_text())}
    for table in paper_tables():
        assert {k: v for k, v in data[table.key].items() if k != "ours"} == table.to_json()
        section = text.partition(table.title)[2].partition("\n## ")[0].splitlines()
        rows = [row for row in section if row.startswith("|")][2:]
        for line, row in zip(table.lines, rows, strict=True):
            assert row.startswith(f"| {line.label}")
            for figure in line.figures:
                assert figure.printed in row
                assert {True: "✓", False: "≠", None: "–"}[figure.agrees] in row


def test_without_runs_only_the_motivation_is_drawn(written: Path) -> None:
    assert [path.name for path in written.glob("*.svg")] == ["motivation.svg"]
    text = (written / "motivation.svg").read_text()
    assert ">IAO* 8b/8b</text>" in text
    assert ">DBQ-2T</text>" in text


def facts(network: str, data: str, plan: str, top1: float) -> RunFacts:
    result = Result(
        recipe="r", about="", plan=plan, seed=0, epochs=6, top1=top1, top5=top1, best_top1=top1,
        best_epoch=5, paper_top1=None, test=EvaluationSet(data, "test", 1), seconds=1.0,
        cost=Totals(1, 1, 1, 1, 1, 1), provenance=Provenance(),
    )  # fmt: skip
    return RunFacts("r", network, data, plan, False, result, [], [], {}, [], None, "")


def test_accuracies_go_to_the_row_of_their_plan() -> None:
    runs = [
        facts("resnet20", "cifar10", "resnet-2t", 91.5),
        facts("resnet20", "cifar10", "resnet-2t", 91.7),
        facts("resnet20", "digits", "resnet-1t", 99.0),
        facts("mobilenet_v1", "tiny_imagenet", "dbq-2t-4", 55.0),
        facts("mobilenet_v1", "imagenet", "dbq-2t-4", 70.0),
        facts("mobilenet_v1 x0.5", "imagenet", "dbq-2t-4", 60.0),  # another network
    ]
    tables = {table.key: table for table in paper_tables()}
    assert our_accuracies(tables["resnet20"], runs) == {
        "DBQ-2T": [(91.5, 6, ""), (91.7, 6, "")], "DBQ-1T": [(99.0, 6, "digits")],
    }  # fmt: skip
    mobilenet = [(70.0, 6, ""), (55.0, 6, "tiny_imagenet")]  # the table's own data first
    assert our_accuracies(tables["mobilenet_v1"], runs) == {"DBQ-2T-4": mobilenet}
    assert our_accuracies(tables["comparison"], runs) == {"DBQ-2T": mobilenet}
    assert our_accuracies(tables["operations"], runs) == {}


def test_another_method_is_not_ours() -> None:
    """A comparison runs LQ-Net in the plan of DBQ: its accuracy belongs to LQ-Net's row."""
    base = load_recipe("resnet20-compare")
    runs = [
        facts("resnet20", "cifar10", method.recipe(base).plan.name, top1)
        for method, top1 in zip(
            parse_all("dbq:2T,lqnet:2B,lqnet:1B,twn,dbq:1T"),
            [91.0, 92.0, 93.0, 94.0, 95.0],
            strict=True,
        )
    ]
    assert our_accuracies(next(t for t in paper_tables() if t.key == "resnet20"), runs) == {
        "LQNet-1B": [(93.0, 6, "")], "LQNet-2B": [(92.0, 6, "")], "DBQ-1T": [(95.0, 6, "")],
        "DBQ-2T": [(91.0, 6, "")],
    }  # fmt: skip


def test_accuracies_say_how_long_they_took() -> None:
    found = [Accuracy(91.5, 6), Accuracy(90.0, 2), Accuracy(91.25, 6)]
    assert list(_accuracies(found)) == ["**91.50**, **91.25** (6 epochs)", "**90.00** (2 epochs)"]
    assert list(_accuracies([Accuracy(88.0, 1)])) == ["**88.00** (1 epoch)"]


def test_accuracies_on_other_data_name_it() -> None:
    found = [Accuracy(70.0, 6), Accuracy(55.0, 6, "tiny_imagenet")]
    assert list(_accuracies(found)) == [
        "**70.00** (6 epochs)",
        "**55.00** (6 epochs on tiny_imagenet)",
    ]


def test_the_drawn_staircase_is_equation_4() -> None:
    """Against the sum of sigmoids written out, in double precision."""
    torch.manual_seed(1)
    quantizer = BranchQuantizer(Precision("ternary", 2), kernels=3)
    quantizer.initialise(torch.randn(3, 200))
    rows = staircase(quantizer, kernel=1)
    alpha = sorted(quantizer.alpha[1].abs().tolist(), reverse=True)
    levels = sorted(a * alpha[0] + b * alpha[1] for a in (-1, 0, 1) for b in (-1, 0, 1))
    t = sorted(quantizer.t[1].tolist())
    gamma_1, gamma_2 = (float(g.detach()[1]) for g in (quantizer.gamma_1, quantizer.gamma_2))

    def soft(w: float, temperature: float) -> float:
        steps = torch.sigmoid(temperature * (gamma_1 * w - torch.tensor(t, dtype=torch.double)))
        heights = torch.tensor(levels, dtype=torch.double).diff()
        return gamma_2 * (float((steps * heights).sum()) + levels[0])

    for temperature in TEMPERATURES:
        curve = [row for row in rows if row["curve"] == f"T = {temperature:g}"]
        for row in curve[::37]:
            # float32 sums of eight terms, each below gamma_2 (about 3)
            assert row["q"] == pytest.approx(soft(row["w"], temperature), abs=1e-5)
    hard = {round(row["q"], 5) for row in rows if row["curve"] == "hard"}
    assert hard <= {round(gamma_2 * level, 5) + 0.0 for level in levels}
    assert float(quantizer.temperature) == 50.0, "left as it was"


def test_a_trained_run_gives_its_figures(two_branches: Path, tmp_path: Path) -> None:
    shown = CliRunner().invoke(app, ["paper", str(two_branches), "-o", str(tmp_path), "--json"])
    assert shown.exit_code == 0, shown.output
    names = {Path(file).name for file in json.loads(shown.output)}
    assert names == {"motivation.svg", "quantizer.svg", "clip.svg", "alpha-ratio.svg",
                     "tables.md", "tables.json"}  # fmt: skip


def test_the_map_of_the_paper_names_what_exists() -> None:
    text = (ROOT / "docs" / "paper.md").read_text()
    names = re.findall(r"`(dbq\.[\w.]+)`", text)
    assert len(names) > 15
    for name in names:
        module, _, attribute = name.rpartition(".")
        try:
            import_module(name)
        except ImportError:
            assert hasattr(import_module(module), attribute), name
    for file in re.findall(r"`python (benchmarks/\w+\.py)", text):
        assert (ROOT / file).exists(), file
