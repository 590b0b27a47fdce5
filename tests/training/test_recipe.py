"""Recipes: what is shipped says what the paper says; what is wrong is named."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from dbq.errors import RecipeError
from dbq.plans.plan import LayerPlan, Plan
from dbq.plans.shipped import PLANS
from dbq.training.recipe import Recipe, load_recipe, recipe_names

# The supplement's tables of hyper-parameters:
# batch, momentum, decay, rate, warm-up, epochs, T_init, T_inc
FLOAT_CIFAR = (100, 0.9, 1e-4, 0.1, 0, 200, None, None)
TUNE_CIFAR = (100, 0.9, 1e-4, 0.01, 0, 50, 5, 2.5)
FLOAT_V1 = (512, 0.9, 4e-5, 0.1, 5, 150, None, None)
TUNE_V1 = (512, 0.9, 4e-5, 0.001, 0, 50, 50, 20)
FLOAT_VWW = (512, 0.9, 4e-5, 0.1, 5, 200, None, None)
TUNE_VWW = (512, 0.9, 4e-5, 0.01, 0, 50, 20, 5)
SUPPLEMENT = {
    "resnet20-fp": FLOAT_CIFAR,
    "resnet20-1t": TUNE_CIFAR,
    "resnet20-2t": TUNE_CIFAR,
    "mobilenet_v1-fp": FLOAT_V1,
    **{
        f"mobilenet_v1-{plan}": TUNE_V1
        for plan in (
            *("fx8-1", "fx8-2", "fx8-3", "dbq-1t"),
            *("dbq-2t-1", "dbq-2t-2", "dbq-2t-3", "dbq-2t-4"),
        )
    },
    "mobilenet_v2-2t": (256, 0.9, 4e-5, 5e-4, 0, 50, 25, 10),
    "shufflenet_v2-2t": (512, 0.9, 4e-5, 0.001, 0, 30, 25, 10),
    **{f"visual_wake_words-{m}-fp": FLOAT_VWW for m in (0.125, 0.25, 0.375, 0.5)},
    **{
        f"visual_wake_words-{m}-{plan}": TUNE_VWW
        for m in (0.125, 0.25, 0.375, 0.5)
        for plan in ("fx8", "1t", "2t")
    },
}
BEYOND = {"quantize.calibrate", "extra.distill", "extra.ema", "extra.label_smoothing",
          "extra.reestimate"}  # fmt: skip


@pytest.mark.parametrize("name", SUPPLEMENT)
def test_hyper_parameters_are_the_supplements(name: str) -> None:
    recipe = load_recipe(name)
    train, heat = recipe.train, recipe.temperature
    batch, momentum, decay, rate, warmup, epochs, start, increment = SUPPLEMENT[name]
    found = (train.batch, train.momentum, train.weight_decay, train.rate, train.warmup)
    assert found == (batch, momentum, decay, rate, warmup)
    assert train.epochs == epochs
    assert train.every == "epoch"
    if start is not None:
        assert (heat.start, heat.increment) == (start, increment)
    for key in BEYOND:
        section, option = key.split(".")
        assert not getattr(getattr(recipe, section), option), f"{key} is beyond the paper"


def test_widths_and_plans() -> None:
    for width in (0.125, 0.25, 0.375, 0.5):
        plans = {"fp": "fp", "fx8": "fx8-3", "1t": "dbq-1t-a8", "2t": "dbq-2t-4"}
        for suffix, plan in plans.items():
            recipe = load_recipe(f"visual_wake_words-{width}-{suffix}")
            assert (recipe.model.width, recipe.quantize.plan.name) == (width, plan)
    rows = (
        "fp",
        "fx8-1",
        "fx8-2",
        "fx8-3",
        "dbq-1t",
        "dbq-2t-1",
        "dbq-2t-2",
        "dbq-2t-3",
        "dbq-2t-4",
    )
    for row in rows:  # of the paper's ablation
        for network in ("mobilenet_v1", "mobilenet_v1-tiny_imagenet"):
            assert load_recipe(f"{network}-{row}").quantize.plan.name == row


@pytest.mark.parametrize("name", recipe_names())
def test_written_out_and_read_back(name: str) -> None:
    recipe = load_recipe(name)
    assert recipe.name == name
    assert recipe.about
    assert Recipe.from_toml(recipe.to_toml()) == recipe
    if recipe.model.weights_from:
        assert recipe.model.weights_from in recipe_names()


@pytest.mark.parametrize(
    ("override", "names"),
    [
        ("train.epoch=3", ["train.epoch;", "closest: epochs"]),
        ("trian.epochs=3", ["trian", "closest: train"]),
        ("train.epochs=three", ["train.epochs = 'three'"]),
        ("train.epochs=0", ["train.epochs = 0"]),
        ("train.epochs=true", ["train.epochs = True"]),
        ("train.every=week", ["train.every = 'week'", "'epoch'", "'step'"]),
        ("train.rate=nan", ["train.rate = nan"]),
        ("train.rate=inf", ["train.rate = inf"]),
        ("data.std=[1,nan,1]", ["data.std", "nan"]),
        ("train.seed=0x" + "f" * 5000, ["train.seed", "too long"]),
        ("train.seed=" + "9" * 5000, ["train.seed"]),
        ("train.rate=" + "[" * 3000, ["train.rate"]),
        ('data.directory="a\\u0000"', ["data.directory"]),
        ("extra.distill=2", ["extra.distill = 2.0"]),
        ("data.mean=[1,'a']", ["data.mean[1] = 'a'"]),
        ("quantize.options.init=[1]", ["quantize.options.init = [1]"]),
        ("quantize.plan=dbq-9t", ["quantize.plan", "'dbq-9t'", "closest: dbq-"]),
        ("quantize.plan=3", ["quantize.plan = 3"]),
        ("quantize.plan={name='x',k=0}", ["quantize.plan", "k = 0"]),
        ("train=3", ["train = 3"]),
        ("name.x=3", ["name.x"]),
        ("train.epochs", ["'train.epochs'"]),
        ("=3", ["'=3'"]),
    ],
)
def test_bad_overrides_are_named(override: str, names: list[str]) -> None:
    with pytest.raises(RecipeError) as caught:
        load_recipe("resnet20-2t", [override])
    assert [name for name in names if name not in str(caught.value)] == []
    assert "\n" not in str(caught.value)


def test_overrides_reach_their_place() -> None:
    recipe = load_recipe(
        "resnet20-2t",
        [
            "train.epochs=3",
            "data.directory=/a b",
            "quantize.options.init=kmeans",
            "data.std=[1,2,3]",
        ],
    )
    assert recipe.train.epochs == 3
    assert recipe.data.directory == "/a b"
    assert recipe.data.std == (1.0, 2.0, 3.0)
    assert recipe.plan.default.options == {"init": "kmeans"}
    assert recipe.plan.roles["first"].options == {}


@pytest.mark.parametrize(
    ("text", "directory"),
    [
        ("2024-01-01", "2024-01-01"),
        ("7", "7"),
        ("true", "true"),
        ('"a=b"', "a=b"),
        ("a.b=c", "a.b=c"),
    ],
)
def test_any_text_may_be_a_string(text: str, directory: str) -> None:
    assert load_recipe("resnet20-2t", [f"data.directory={text}"]).data.directory == directory


def test_a_plan_from_a_file_is_written_out(tmp_path: Path) -> None:
    """What a run was begun with must not change when the file does."""
    path = tmp_path / "plan.toml"
    path.write_text('name = "mine"\n[default]\nweight = "3T"\n')
    recipe = load_recipe("resnet20-2t", [f"quantize.plan={path}"])
    path.unlink()
    assert recipe.plan is recipe.quantize.plan
    assert recipe.plan == Plan("mine", LayerPlan.of("3T"))
    assert Recipe.from_toml(recipe.to_toml()) == recipe


def test_runs_recorded_by_earlier_versions_hold_the_plan_as_text() -> None:
    """As version 0.1 wrote it into recipe.toml."""
    text = load_recipe("resnet20-2t").to_toml()
    plan = r'"name = \"mine\"\u000aclip = \"bn\"\u000ak = 6.0\u000a\u000a[default]\u000a'
    plan += r'weight = \"3T\"\u000ainput = \"float\"\u000aoptions = { \"init\" = \"qem\" }\u000a"'
    recipe = Recipe.from_toml(text.replace('plan = "resnet-2t"', f"plan = {plan}"))
    assert recipe.quantize.plan == Plan("mine", LayerPlan.of("3T", init="qem"))
    assert Recipe.from_toml(recipe.to_toml()) == recipe


def test_recipes_travel_to_other_processes() -> None:
    recipe = load_recipe("resnet20-2t", ["quantize.options.init=kmeans"])
    assert pickle.loads(pickle.dumps(recipe)) == recipe
    with pytest.raises(TypeError):
        recipe.quantize.options["init"] = "qem"  # type: ignore[index]


def test_files_extend_shipped_recipes_and_each_other(tmp_path: Path) -> None:
    (tmp_path / "one.toml").write_text('extends = "resnet20-2t"\n[train]\nepochs = 7\n')
    (tmp_path / "two.toml").write_text('extends = "one.toml"\n[train]\nrate = 0.5\n')
    recipe = load_recipe(tmp_path / "two.toml")
    assert (recipe.name, recipe.train.epochs, recipe.train.rate) == ("two", 7, 0.5)
    assert recipe.quantize.plan is PLANS["resnet-2t"]
    assert recipe.paper is None, "the accuracy belongs to the recipe it was said of"


def test_files_that_cannot_be_followed(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('extends = "b.toml"\n')
    (tmp_path / "b.toml").write_text('extends = "a.toml"\n')
    (tmp_path / "broken.toml").write_text("[train\n")
    (tmp_path / "empty.toml").write_text("")
    for name, also in {"a.toml": "b.toml", "broken.toml": "", "empty.toml": "model"}.items():
        with pytest.raises(RecipeError, match=name) as caught:
            load_recipe(tmp_path / name)
        assert also in str(caught.value)
    with pytest.raises(RecipeError, match=r"absent\.toml"):
        load_recipe(tmp_path / "absent.toml")
    with pytest.raises(RecipeError, match="'resnet20-3t'; closest: resnet20"):
        load_recipe("resnet20-3t")
