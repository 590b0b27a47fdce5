"""Rates of a comparison: what a trial is, which rate is taken, and that the final run is a whole one."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dbq.errors import RecipeError
from dbq.experiments.comparison import rates as module
from dbq.experiments.comparison.comparison import Contestant, compare
from dbq.experiments.comparison.rates import TRIALS, parse_rates, with_best_rate
from dbq.training.recipe import Recipe, load_recipe
from tests.runs import TINY, single_thread


@pytest.fixture
def base(tmp_path: Path) -> Recipe:
    file = tmp_path / "tiny.toml"
    file.write_text(TINY)
    return load_recipe(file, ["train.epochs=5", "train.warmup=4"])


def test_the_best_rate_on_held_out_images_is_taken(
    base: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials: dict[str, Recipe] = {}

    def trained(recipe: Recipe, out: Path, **options: Any) -> Any:
        trials[out.name] = recipe
        return SimpleNamespace(top1={0.1: 50.0, 0.02: 70.0, 0.3: 70.0}[recipe.train.rate])

    monkeypatch.setattr(module, "train", trained)
    found = with_best_rate(base, (0.1, 0.3, 0.02), Path("runs"), lambda name: ())
    assert found.train.rate == 0.3, "the first of those that are equal"
    assert found.data == base.data
    assert found.train.epochs == base.train.epochs
    assert trials.keys() == {"0.1", "0.3", "0.02"}
    for trial in trials.values():
        assert trial.data.held_out == 0.1
        assert (trial.train.epochs, trial.train.warmup) == (2, 2)


def test_without_rates_nothing_is_tried(base: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "train", None)
    assert with_best_rate(base, (), Path("runs"), lambda name: ()) is base


@pytest.mark.slow
def test_a_comparison_with_rates(tmp_path: Path, float_run: Path) -> None:
    file, out = tmp_path / "tiny.toml", tmp_path / "out"
    file.write_text(TINY)
    recipe = load_recipe(file, [f"model.weights={float_run}", "train.epochs=1"])
    names = ["float", "twn-1T"]
    with single_thread():
        found = compare(
            recipe, [Contestant("float"), Contestant("twn", "1T")], out, rates=(1.0, 0.01)
        )
    assert found.rates == (1.0, 0.01)
    for name, entry in zip(names, found.entries, strict=True):
        results = {
            rate: json.loads((out / TRIALS / name / rate / "result.json").read_text())
            for rate in ("1", "0.01")
        }
        assert all(each["test"]["images"] == 144 for each in results.values())  # of 1,437
        assert f"{entry.rate:g}" == max(results, key=lambda rate: float(results[rate]["top1"]))
        assert load_recipe(out / name / "recipe.toml").data.held_out == 0
    assert f"{found.entries[0].rate:g}" in str(found)


@pytest.mark.parametrize("text", ["0.1,", "fast", "0", "-1", "nan", "inf"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(RecipeError, match="rates"):
        parse_rates(text)
