"""Runs with a network and data that are not ours: built, remembered, rebuilt; mistakes by name."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from dbq.errors import RecipeError, TrainingError, UserCodeError
from dbq.experiments.export import program_of_run
from dbq.networks.weights import read_weights
from dbq.support import imports
from dbq.training.networks import class_count, empty_network, quantized_network
from dbq.training.recipe import Recipe, load_recipe
from dbq.training.record.rundir import read_network
from dbq.training.record.saved import evaluate_file, saved_network
from dbq.training.run import train
from tests.own_package import write_digits, write_package
from tests.runs import single_thread


@pytest.fixture
def recipe_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A recipe in the current directory, with the package it names."""
    file = write_package(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(imports, "_announced", set())
    yield file
    for name in [name for name in sys.modules if name.split(".")[0] == "bring"]:
        del sys.modules[name]


def build(file: Path, *overrides: str, classes: int = 4) -> nn.Module:
    return quantized_network(load_recipe(file, overrides), classes)


def outputs(model: nn.Module) -> int:
    return int(model.eval()(torch.zeros(1, 3, 16, 16)).shape[1])


def test_a_run_from_beginning_to_end(
    recipe_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    with single_thread():
        result = train(load_recipe(recipe_file, ["model.options.channels=4"]), out)
    assert (result.test.data, result.test.images) == ("bring.data:digits", 144)
    assert capsys.readouterr().err == ""  # whoever writes a recipe knows what it imports
    _, recipe, metadata = read_network(out)
    assert recipe.code == ("bring.networks:tiny", "bring.data:digits")
    assert metadata["classes"] == 4
    assert metadata["class_names"] == ["nought", "one", "two", "three"]
    model, _, _ = saved_network(out)
    assert outputs(model) == 4
    assert evaluate_file(out)["top1"] == result.top1
    said = capsys.readouterr().err.splitlines()
    assert said == [f"{out} imports code: {name}" for name in recipe.code]  # once
    program = program_of_run(out)
    assert program.facts["classes"] == ["nought", "one", "two", "three"]
    assert program.facts["compared_on"] == "test images"
    assert program.facts["resize_length"] == 18


def test_class_names_survive_without_the_data(recipe_file: Path, tmp_path: Path) -> None:
    folder = write_digits(tmp_path / "digits")
    overrides = ["data.name=folder", f"data.directory={folder}", "data.split=0.25"]
    with single_thread():
        result = train(load_recipe(recipe_file, [*overrides, "train.batch=45"]), tmp_path / "run")
    assert result.test.images == 4 * 8  # a quarter of 30 is rounded to 8
    folder.rename(tmp_path / "gone")
    program = program_of_run(tmp_path / "run")
    assert program.facts["compared_on"] == "noise"
    assert program.facts["classes"] == ["nought", "one", "three", "two"]
    assert (program.facts["split"], program.facts["split_seed"]) == (0.25, 0)


def test_how_the_number_of_classes_is_given(recipe_file: Path) -> None:
    assert outputs(build(recipe_file, classes=6)) == 6
    own = ["model.name=bring.networks:other", "model.classes=outputs"]
    assert outputs(build(recipe_file, *own, classes=5)) == 5
    assert outputs(build(recipe_file, "model.name=bring.networks:fixed")) == 4
    # `other` takes any option, so num_classes as well, which `tiny` then gets twice
    any_option = ["model.name=bring.networks:other", "model.options.outputs=4"]
    with pytest.raises(UserCodeError, match="num_classes"):
        build(recipe_file, *any_option)
    assert outputs(build(recipe_file, *any_option, "model.classes=none")) == 4


@pytest.mark.parametrize(
    ("overrides", "kind", "words"),
    [
        (["model.name=bring.networks:fixed"], UserCodeError, ["[1, 4]", "[1, 3]", "model.classes"]),
        (
            ["model.name=bring.networks:fails"],
            UserCodeError,
            ["ValueError: no such network", "line"],
        ),
        (["model.name=bring.networks:tyni"], UserCodeError, ["closest: tiny"]),
        (["model.name=bring.network:tiny"], UserCodeError, ["no module bring.network"]),
        (["model.name=bring.networks:separable"], UserCodeError, ["inputs"]),
        (["model.options.chanels=3"], UserCodeError, ["no chanels (model.options)", "channels"]),
        (["model.options.num_classes=3"], RecipeError, ["model.options.num_classes"]),
        (["model.classes=classes"], UserCodeError, ["takes no classes"]),
        (["model.width=0.5"], UserCodeError, ["takes no width"]),
        (["model.name=resnet20", "model.classes=n"], RecipeError, ["model.classes", "ours"]),
    ],
)
def test_mistakes(
    recipe_file: Path, overrides: list[str], kind: type[Exception], words: list[str]
) -> None:
    with pytest.raises(kind) as caught:
        build(recipe_file, *overrides, classes=3)
    for word in words:
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)


def test_auxiliary_outputs_while_training(recipe_file: Path, tmp_path: Path) -> None:
    with pytest.raises(
        TrainingError, match=r"bring\.networks:tuples gives a tuple while it trains"
    ):
        train(load_recipe(recipe_file, ["model.name=bring.networks:tuples"]), tmp_path / "run")


def test_no_package_fetches_weights_for_a_network_that_gets_others(
    recipe_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """timm's `pretrained` counts when a run starts from scratch, and only then."""
    (recipe_file.parent / "timm.py").write_text(
        "from bring.networks import tiny\n"
        "asked = []\n"
        "def list_models(): return ['tiny']\n"
        "def create_model(name, pretrained=False, num_classes=4):\n"
        "    asked.append(pretrained)\n"
        "    return tiny(num_classes)\n"
    )
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    recipe: Recipe = load_recipe(
        recipe_file, ["model.name=timm:tiny", "model.options.pretrained=true"]
    )
    quantized_network(recipe, 4)
    empty_network(recipe, 4)
    asked = sys.modules["timm"].asked
    monkeypatch.delitem(sys.modules, "timm")
    assert asked == [True, False]


def test_networks_of_ours_without_a_recorded_number_of_classes(
    recipe_file: Path, float_run: Path
) -> None:
    """Files of earlier versions; those of networks that are not ours always record it."""
    _, recipe, _ = read_network(float_run)
    state = read_weights(float_run / "model.safetensors")
    assert class_count(recipe, state) == 10
    with pytest.raises(TrainingError, match="no number of classes"):
        class_count(load_recipe(recipe_file), state)
