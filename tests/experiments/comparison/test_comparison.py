"""A comparison: each contestant is the run it says it is, nothing is trained twice, times are times."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

from dbq.cli.main import app
from dbq.costs.rules import plan_cost
from dbq.errors import RecipeError, WeightsError
from dbq.experiments.comparison import comparison
from dbq.experiments.comparison.comparison import Comparison, Contestant, compare, step_ratios
from dbq.experiments.comparison.figure import draw_comparison
from dbq.experiments.comparison.methods import ABOUT
from dbq.networks.table import create_model
from dbq.networks.weights import read_weights
from dbq.quantizers import table as quantizers
from dbq.quantizers.fixed import FixedPointQuantizer
from dbq.training.recipe import Recipe, load_recipe
from dbq.training.run import train
from tests.runs import TINY, single_thread

pytestmark = pytest.mark.slow

NAMES = ["float", "twn", "lqnet:2B", "dbq:1T"]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory, float_run: Path) -> Recipe:
    file = tmp_path_factory.mktemp("recipe") / "tiny.toml"
    file.write_text(TINY)
    return load_recipe(file, [f"model.weights={float_run}", "train.epochs=1"])


@pytest.fixture(scope="module")
def found(base: Recipe, tmp_path_factory: pytest.TempPathFactory) -> tuple[Comparison, Path]:
    out = tmp_path_factory.mktemp("comparison")
    with single_thread():
        return compare(base, [Contestant.parse(name) for name in NAMES], out), out


def test_each_contestant_is_an_ordinary_run(
    base: Recipe, found: tuple[Comparison, Path], tmp_path: Path
) -> None:
    before, out = found
    assert [entry.name for entry in before.entries] == ["float", "twn-1T", "lqnet-2B", "dbq-1T"]
    by_hand = load_recipe(
        out / "lqnet-2B" / "recipe.toml",
        ["quantize.plan=resnet-2t", "quantize.method=lqnet", "quantize.precision=2B"],
    )
    with single_thread():
        result = train(by_hand, tmp_path / "run")
    mine = read_weights(out / "lqnet-2B" / "model.safetensors")
    theirs = read_weights(tmp_path / "run" / "model.safetensors")
    assert mine.keys() == theirs.keys()
    assert any(".weight_quantizer." in key for key in mine)
    assert all(torch.equal(mine[key], theirs[key]) for key in mine)
    entry = next(e for e in before.entries if e.name == "lqnet-2B")
    assert entry.top1 == result.top1


def test_costs_are_those_of_the_precision(found: tuple[Comparison, Path]) -> None:
    entries = {entry.name: entry for entry in found[0].entries}
    net = create_model("resnet20", num_classes=10)
    one_branch = plan_cost(net, torch.zeros(1, 3, 8, 8), "resnet-1t").total
    for name in ("twn-1T", "dbq-1T"):
        cost = entries[name].cost
        assert (cost.C_C, cost.C_R, cost.C_M) == (one_branch.C_C, one_branch.C_R, one_branch.C_M)
        assert cost.C_S < cost.C_C, "ternary weights have zeros"
    binary = entries["lqnet-2B"].cost
    assert binary.C_S == binary.C_C, "binary ones have none"
    assert binary.C_M == one_branch.C_M, "two binary branches take the bits of a ternary one"


def test_finished_runs_are_kept_and_methods_can_be_added(
    base: Recipe, found: tuple[Comparison, Path]
) -> None:
    first, out = found
    times = {path: path.stat().st_mtime_ns for path in out.glob("*/result.json")}
    more = [Contestant.parse(name) for name in [*NAMES, "xnor"]]
    with single_thread():
        again = compare(base, more, out)
    assert again.entries[: len(NAMES)] == first.entries
    assert again.entries[-1].name == "xnor-1B"
    assert all(path.stat().st_mtime_ns == then for path, then in times.items())
    saved = json.loads((out / "comparison.json").read_text())
    assert saved == json.loads(json.dumps(again.to_json()))


def test_the_figure_names_everyone(found: tuple[Comparison, Path], tmp_path: Path) -> None:
    text = draw_comparison(found[0], tmp_path / "figure.svg").read_text()
    for entry in found[0].entries:
        assert f">{entry.name}</text>" in text
    assert draw_comparison(found[0], tmp_path / "again.svg").read_text() == text


class Clock:
    """A second passes between two looks at it, and whatever is added to `now`."""

    now = 0.0

    def perf_counter(self) -> float:
        Clock.now += 1.0
        return Clock.now


class _Slow(FixedPointQuantizer):
    """Fixed point that takes half a second in each of ResNet-20's 18 branched layers."""

    def forward(self, weight: Tensor) -> Tensor:
        Clock.now += 0.5
        return super().forward(weight)


def test_step_times_are_relative_to_float(base: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(quantizers.QUANTIZERS, "slow", ("fixed", _Slow))
    monkeypatch.setattr(comparison, "time", Clock())
    ratios = step_ratios(base, [Contestant("slow", "8b"), Contestant("fixed", "8b")], rounds=2)
    assert ratios == {"float": 1.0, "slow-8b": 1.0 + 18 * 0.5, "fixed-8b": 1.0}


class _NotANumber(FixedPointQuantizer):
    """Breaks in the first step of training: a TrainingError."""

    def forward(self, weight: Tensor) -> Tensor:
        return super().forward(weight) * torch.nan


class _Unfittable(FixedPointQuantizer):
    """Breaks while the network is prepared: a WeightsError."""

    def initialise(self, weight: Tensor) -> None:
        raise WeightsError("unfittable")


@pytest.mark.parametrize("broken", [_NotANumber, _Unfittable])
def test_a_run_that_breaks_does_not_stop_the_others(
    base: Recipe, tmp_path: Path, broken: type[FixedPointQuantizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(quantizers.QUANTIZERS, "broken", ("fixed", broken))
    contestants = [Contestant("broken", "8b"), Contestant("float")]
    with single_thread():
        outcome = compare(base, contestants, tmp_path / "out", rounds=1)
    assert [entry.name for entry in outcome.entries] == ["float"]
    assert outcome.failed.keys() == {"broken-8b"}
    assert "broken-8b failed: " in str(outcome)


def base_file(base: Recipe, folder: Path) -> Path:
    file = folder / "base.toml"
    file.write_text(base.to_toml())
    return file


@pytest.mark.parametrize(
    ("text", "named"),
    [("twm", "twn"), ("dbq", "dbq:2T"), ("dbq:4b", "dbq:2T"), ("float:8b", "float")],
)
def test_what_is_not_understood_is_explained(text: str, named: str) -> None:
    with pytest.raises(RecipeError) as error:
        Contestant.parse(text)
    assert named in str(error.value)


def test_a_plan_without_ternary_layers_is_refused(base: Recipe, tmp_path: Path) -> None:
    fixed = load_recipe(base_file(base, tmp_path), ["quantize.plan=fx8-3"])
    with pytest.raises(RecipeError, match="fx8-3"):
        compare(fixed, [Contestant("twn", "1T")], tmp_path / "out")


def run_cli(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments))


def test_commands(base: Recipe, found: tuple[Comparison, Path], tmp_path: Path) -> None:
    file, out = base_file(base, tmp_path), found[1]
    name = f"name={base.name}"
    shown = run_cli(
        "compare", str(file), "--methods", ",".join(NAMES), "--out", str(out), "--set", name
    )
    assert shown.exit_code == 0, shown.output
    assert "lqnet-2B" in shown.output
    assert (out / "comparison.svg").exists()
    listed = json.loads(run_cli("methods", "--json").output)
    assert [row["method"] for row in listed] == list(quantizers.QUANTIZERS) == list(ABOUT)
    assert all(row["about"] and row["precisions"] for row in listed)
    plan = tmp_path / "mixed.toml"
    found_bits = run_cli(
        *("search", str(file), "--budget", "0.6", "-o", str(plan), "--images", "64", "--json"),
        *("--set", "quantize.plan=fp"),
    )
    assert found_bits.exit_code == 0, found_bits.output
    bits = json.loads(found_bits.output)["bits"]
    assert len(set(bits.values())) > 1
    assert load_recipe(file, [f"quantize.plan={plan}"]).plan.names.keys() == bits.keys()
    found_choices = run_cli(
        *("search", str(file), "--budget", "0.5", "-o", str(plan), "--images", "64", "--json"),
        *("--choices", "1T,2T,8b", "--metric", "bytes", "--set", "quantize.plan=fp"),
    )
    assert found_choices.exit_code == 0, found_choices.output
    choices = json.loads(found_choices.output)["bits"]
    assert set(choices.values()) <= {"1T", "2T", "8b"}
    assert len(set(choices.values())) > 1
    mixed = load_recipe(file, [f"quantize.plan={plan}"]).plan
    assert {name: str(rule.weight) for name, rule in mixed.names.items()} == choices
