"""What a sweep consists of, and the mistakes in one that are found before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from dbq.cli.main import app
from dbq.cli.sweep import complete_sweep
from dbq.errors import RecipeError
from dbq.experiments.sweep.sweep import Sweep, load_sweep, sweep_names
from dbq.quantizers.fixed import FixedPointQuantizer
from dbq.training.networks import empty_network
from tests.experiments.sweep.small import SWEEP, write


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("sweep"))


def test_the_grid_written_out(file: Path) -> None:
    sweep = load_sweep(file, ["train.momentum=0.8"])
    expected = [
        ("float,width=0.125,seed=0", 0.125, "", "fp"),
        ("float,width=0.25,seed=0", 0.25, "", "fp"),
    ]
    for width in (0.125, 0.25):
        for precision in ("8b", "1T"):
            name = f"width={width},precision={precision},seed=0"
            expected.append((name, width, precision, "resnet-2t"))
    runs = sweep.runs(Path("/out"))
    found = [(r.name, r.recipe.model.width, r.recipe.quantize.precision,
              r.recipe.quantize.plan.name)
             for r in runs]  # fmt: skip
    assert found == expected
    starts = [run.recipe.model.weights for run in runs]
    assert starts == ["", ""] + [f"/out/float,width={w},seed=0" for w in (0.125, 0.125, 0.25, 0.25)]
    assert {run.recipe.train.momentum for run in runs} == {0.8}
    assert {run.recipe.train.rate for run in runs[:2]} == {0.1}


def test_seeds_share_a_baseline() -> None:
    sweep = Sweep("s", "digits-2t", "digits-fp", (3, 4), grid={"train.rate": (0.1, 0.2)})
    runs = sweep.runs(Path("out"))
    assert [(run.seed, run.recipe.train.seed) for run in runs] == [(s, s) for s in (3, 3, 4, 3, 4)]
    assert {run.baseline for run in runs[1:]} == {"float,seed=3"}
    assert [run.name for run in runs[1:3]] == ["rate=0.1,seed=3", "rate=0.1,seed=4"]


def test_without_baselines_the_recipe_says_where_to_start() -> None:
    sweep = Sweep("s", "digits-2t", shared={"model.width": (0.5,)}, overrides=("model.weights=f",))
    assert [run.recipe.model.weights for run in sweep.runs(Path("out"))] == ["f"]


def test_bits_take_the_usual_method_of_their_kind(file: Path) -> None:
    run = load_sweep(file, ["model.weights_from="]).runs(Path("out"))[2]
    network = empty_network(run.recipe, classes=10)
    quantizers = [m for m in network.modules() if isinstance(m, FixedPointQuantizer)]
    assert len(quantizers) == 18, "all convolutions but the first"


@pytest.mark.parametrize(
    ("name", "runs"), [("visual_wake_words", 4 + 36), ("cifar10-vehicles", 4 + 40)]
)
def test_shipped(name: str, runs: int) -> None:
    found = load_sweep(name).runs(Path("out"))
    assert len(found) == runs
    widths = {run.recipe.model.width for run in found if not run.baseline}
    assert widths == {0.125, 0.25, 0.375, 0.5}
    assert {run.recipe.plan.choose("x", "depthwise").weight.size for run in found[4:]} == {8}
    assert complete_sweep(name[:3]) == [name]
    assert name in sweep_names()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (("about", "abuot"), "abuot"),
        (("[shared]", "[share]"), "share"),
        (("model.width", "model.widht"), "model.widht"),
        (("quantize.precision", "quantise.precision"), "quantise"),
        (('["8b", "1T"]', '["9b"]'), "9"),
        (('["8b", "1T"]', '"8b"'), "quantize.precision"),
        (("[0.125, 0.25]", "[0.125, 0.125]"), "float,width=0.125,seed=0"),
        (('recipe = "tiny.toml"', ""), "recipe"),
        (('"quantize.precision"', "model.weights"), "model.weights"),
        (('"quantize.precision"', "model.width"), "model.width"),
        (("[shared]", "seeds = [0.5]\n[shared]"), "seeds"),
        (('recipe = "tiny.toml"', 'recipe = "float.toml"'), "quantize.precision"),
        (('recipe = "tiny.toml"', 'recipe = "tony.toml"'), "tony.toml"),
    ],
)
def test_mistakes_are_found_before_anything_starts(
    tmp_path: Path, change: tuple[str, str], named: str
) -> None:
    path = write(tmp_path, SWEEP.replace(*change))
    shown = CliRunner().invoke(app, ["sweep", str(path), "--out", str(tmp_path / "out")])
    assert shown.exit_code == 2
    assert named in shown.output.replace(str(tmp_path), "")
    assert not (tmp_path / "out").exists()


def test_a_key_is_decided_once(file: Path) -> None:
    with pytest.raises(RecipeError, match=r"model\.width"):
        load_sweep(file, ["model.width=1"])
    with pytest.raises(RecipeError, match="cifar10-vehicles"):
        load_sweep("cifar10-vehicle")
