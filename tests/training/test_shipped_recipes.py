"""Every shipped recipe builds its network and takes two steps, on tiny data in the true formats."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from dbq.data.table import load_data
from dbq.errors import RecipeError
from dbq.networks.table import create_model
from dbq.training.learner import Learner
from dbq.training.networks import images_to_fit, quantized_network, reestimate, teacher_network
from dbq.training.order import derive, epoch_batches
from dbq.training.processes.world import World
from dbq.training.recipe import Recipe, load_recipe, recipe_names
from dbq.training.run import train
from tests.photographs import write_photograph

pytestmark = pytest.mark.slow

CPU = World(0, 1, torch.device("cpu"))
BATCH = 4
CLASSES = {
    "cifar10": 10,
    "cifar10-vehicles": 2,
    "digits": 10,
    "imagenet": 2,
    "tiny_imagenet": 2,
    "visual_wake_words": 2,
}


def photograph(path: Path, seed: int) -> None:
    write_photograph(path, 120, 90, seed)


def make_cifar10(root: Path) -> None:
    """The reader insists on files of 10,000 records; one file serves as all six."""
    records = np.random.default_rng(0).integers(0, 256, (10_000, 3073), dtype=np.uint8)
    records[:, 0] %= 10
    folder = root / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    records.tofile(folder / "test_batch.bin")
    for i in range(1, 6):
        os.link(folder / "test_batch.bin", folder / f"data_batch_{i}.bin")


def make_imagenet(root: Path) -> None:
    for label, wnid in enumerate(("n01440764", "n01443537")):
        for i in range(5):
            photograph(root / "train" / wnid / f"{wnid}_{i}.JPEG", seed=10 * label + i)
        photograph(root / "val" / wnid / f"ILSVRC2012_val_{label:08}.JPEG", seed=50 + label)


def make_tiny_imagenet(root: Path) -> None:
    for label, wnid in enumerate(("n01443537", "n01629819")):
        for i in range(5):
            file = root / "train" / wnid / "images" / f"{wnid}_{i}.JPEG"
            write_photograph(file, 64, 64, seed=10 * label + i)
        write_photograph(root / "val" / wnid / f"val_{label}.JPEG", 64, 64, seed=50 + label)


def make_coco(root: Path) -> None:
    (root / "annotations").mkdir(parents=True)
    for part, ids in (("train", range(10)), ("val", range(10, 14))):
        names = {i: f"COCO_{part}2014_{i:012}.jpg" for i in ids}
        for i, name in names.items():
            photograph(root / f"{part}2014" / name, seed=i)
        content = {
            "images": [
                {"id": i, "file_name": n, "width": 120, "height": 90} for i, n in names.items()
            ],
            "annotations": [
                {"id": i, "image_id": i, "category_id": 1, "bbox": [0, 0, 60, 60]}
                for i in ids
                if i % 2
            ],
            "categories": [{"id": 1, "name": "person"}],
        }
        text = json.dumps(content)
        (root / "annotations" / f"instances_{part}2014.json").write_text(text)
    (root / "mscoco_minival_ids.txt").write_text("10\n11\n12\n13\n")


MAKERS: dict[str, Callable[[Path], None]] = {
    "cifar10": make_cifar10,
    "cifar10-vehicles": make_cifar10,
    "digits": lambda root: None,
    "imagenet": make_imagenet,
    "tiny_imagenet": make_tiny_imagenet,
    "visual_wake_words": make_coco,
}


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The directory of a tiny data set, made when first asked for."""
    root = tmp_path_factory.mktemp("data")

    def directory(name: str) -> Path:
        if not (root / name).exists():
            MAKERS[name](root / name)
        return root / name

    return directory


@pytest.fixture(scope="session")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Recipe], Path]:
    """Random float weights for the network of a recipe."""
    root = tmp_path_factory.mktemp("weights")

    def path(recipe: Recipe) -> Path:
        model, classes = recipe.model, CLASSES[recipe.data.name]
        file = root / f"{model.name}-{model.width}-{classes}.safetensors"
        if not file.exists():
            options: dict[str, Any] = dict(model.options)
            network = create_model(model.name, num_classes=classes, width=model.width, **options)
            save_file(network.state_dict(), file)
        return file

    return path


def shrunk(name: str, data: Callable[[str], Path], *more: str) -> Recipe:
    """The recipe as it is, but for where its data is, and fewer and smaller images."""
    recipe = load_recipe(name)
    kind = recipe.data.name
    size = ["data.image_size=64"] if kind in ("imagenet", "visual_wake_words") else []
    few = ["quantize.fit=40"] if recipe.quantize.fit else []
    few += ["model.width=0.125"] if kind == "tiny_imagenet" else []  # wide layers take long to fit
    changes = [f"data.directory={data(kind)}", "data.workers=0", f"train.batch={BATCH}"]
    return load_recipe(name, [*changes, *size, *few, *more])


@pytest.mark.parametrize("name", recipe_names())
def test_two_steps(
    name: str, data: Callable[[str], Path], weights: Callable[[Recipe], Path]
) -> None:
    recipe = shrunk(name, data)
    if recipe.model.weights_from:
        with pytest.raises(RecipeError, match=f"dbq train {recipe.model.weights_from}"):
            quantized_network(recipe, CLASSES[recipe.data.name])
        recipe = shrunk(name, data, f"model.weights={weights(recipe)}")
    train_split, _ = load_data(recipe.data)
    classes = len(train_split.classes)
    assert classes == CLASSES[recipe.data.name]
    model = quantized_network(recipe, classes, images_to_fit(recipe, train_split))
    if recipe.quantize.calibrate:
        reestimate(model, train_split, 8, recipe.train.seed, CPU.device)
    learner = Learner(recipe, model, teacher_network(recipe, classes), CPU)
    assert (learner.temperature is not None) == any(
        rule.weight.is_branched for rule in (recipe.plan.default, *recipe.plan.roles.values())
    )
    before = {key: value.clone() for key, value in model.named_parameters()}
    groups = epoch_batches(len(train_split), BATCH, recipe.train.seed, epoch=0)[:2]
    learner.move_to(0, resolution=1.0)
    draw = derive(recipe.train.seed, "augmentation", 0)
    for number, batch in enumerate(train_split.batches(groups, draw)):
        sums = learner.step(batch, number)
        assert torch.isfinite(sums).all()
        assert sums[2] == BATCH
    changed = [
        key for key, value in model.named_parameters() if not torch.equal(value, before[key])
    ]
    assert len(changed) > len(before) / 2


@pytest.mark.parametrize("name", ["mobilenet_v1-dbq-2t-4", "visual_wake_words-0.125-2t"])
def test_a_whole_run_on_photographs(
    name: str, data: Callable[[str], Path], weights: Callable[[Recipe], Path], tmp_path: Path
) -> None:
    start = f"model.weights={weights(shrunk(name, data))}"
    short = ["train.epochs=1", "model.width=0.125", start]
    if name.startswith("mobilenet"):
        small = shrunk(name, data, "model.width=0.125")
        short[2] = f"model.weights={weights(small)}"
    recipe = shrunk(name, data, *short, "data.workers=1")
    result = train(recipe, tmp_path / "run")
    splits = {"imagenet": ("val", 2), "visual_wake_words": ("minival (official ids)", 4)}
    assert (result.test.split, result.test.images) == splits[recipe.data.name]


def test_a_damaged_photograph_is_reported_and_left_out(
    data: Callable[[str], Path], weights: Callable[[Recipe], Path], tmp_path: Path
) -> None:
    make_imagenet(tmp_path / "imagenet")
    damaged = tmp_path / "imagenet" / "train" / "n01440764" / "n01440764_0.JPEG"
    damaged.write_bytes(damaged.read_bytes()[:100])
    small = shrunk("mobilenet_v1-fp", data, "model.width=0.125")
    recipe = load_recipe(
        "mobilenet_v1-fp",
        [
            *(f"data.directory={tmp_path / 'imagenet'}", "data.workers=0", "data.image_size=64"),
            *("train.epochs=1", "train.warmup=0", "train.batch=5", "model.width=0.125"),
            *("data.skip_unreadable=true", f"model.weights={weights(small)}"),
        ],
    )
    train(recipe, tmp_path / "run")
    row = json.loads((tmp_path / "run" / "metrics.jsonl").read_text())
    assert [Path(path).name for path in row["skipped"]] == ["n01440764_0.JPEG"]
