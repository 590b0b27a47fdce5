"""Networks from recipes: the one to train, and the float teacher it learns from."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dbq.data.split import Split
from dbq.data.table import image_side
from dbq.errors import RecipeError, TrainingError
from dbq.model.calibration import calibrate
from dbq.model.preparation import prepare
from dbq.networks.foreign import check_outputs, find_builder, is_foreign
from dbq.networks.table import create_model
from dbq.networks.weights import put_state, put_weights, read_weights
from dbq.posttraining.quantize import quantize
from dbq.training.order import derive
from dbq.training.recipe import Recipe
from dbq.training.record.rundir import RunDir

CALIBRATION_BATCH = 500


def quantized_network(recipe: Recipe, classes: int, images: Tensor | None = None) -> nn.Module:
    """The network a recipe trains, prepared by its plan, with its starting weights.

    Quantizers are fitted to float weights, with `images` so that the outputs for these stay what they
    were. Weights of a quantized run come with their quantizers; only layers that the run did not
    quantize are fitted.
    """
    path = weights_file(recipe.model.weights)
    state = None if _is_random(recipe) else read_weights(path)
    if state is not None and _is_quantized(state):
        model = empty_network(recipe, classes)
        put_state(model, state, str(path))
        return model
    model = _untrained(recipe, classes, pretrained=state is None)
    if state is not None:
        put_weights(model, state, str(path), new_classifier=recipe.model.new_classifier)
    if images is None:
        prepare(model, recipe.plan, example_image(recipe))
    else:
        quantize(model, recipe.plan, images, steps=0, seed=recipe.train.seed)
    return model


def empty_network(recipe: Recipe, classes: int) -> nn.Module:
    """The same network, waiting for a state dict: nothing is fitted to its random weights."""
    model = _untrained(recipe, classes, pretrained=False)
    prepare(model, recipe.plan, example_image(recipe), fit=False)
    return model


def class_count(recipe: Recipe, state: dict[str, Tensor]) -> int:
    """The number of classes of a network of ours that has this state: rows of its only linear layer.

    Files that record no number of classes are from the time when there were only such networks.
    """
    if is_foreign(recipe.model.name):
        raise TrainingError(f"{recipe.model.name}: the file records no number of classes")
    network = _untrained(recipe, classes=1)  # not on the meta device, whose first use takes seconds
    linear = [name for name, module in network.named_modules() if isinstance(module, nn.Linear)]
    return len(state[f"{linear[-1]}.weight"])


def teacher_network(recipe: Recipe, classes: int) -> nn.Module | None:
    """The float network whose outputs are distilled, if the recipe asks for that."""
    if not (recipe.extra.distill or recipe.extra.features):
        return None
    weights = recipe.extra.teacher or recipe.model.weights
    if not weights:
        raise RecipeError(
            f"recipe {recipe.name}: extra.distill and extra.features need a trained float network: "
            "give it by --set model.weights=FILE or --set extra.teacher=FILE"
        )
    path = weights_file(weights)
    state = read_weights(path)
    if _is_quantized(state):
        raise RecipeError(
            f"{weights} is a quantized network, and a float one is needed to learn from: "
            "give it by --set extra.teacher=FILE"
        )
    model = _untrained(recipe, classes, pretrained=False)
    put_weights(model, state, str(path))
    return model.eval().requires_grad_(False)


def _is_quantized(state: dict[str, Tensor]) -> bool:
    return any(".weight_quantizer." in key for key in state)


def _untrained(recipe: Recipe, classes: int, *, pretrained: bool = True) -> nn.Module:
    """The network before it is prepared; without `pretrained`, no package fetches weights for it."""
    chosen = recipe.model
    torch.manual_seed(derive(recipe.train.seed, "weights"))
    if is_foreign(chosen.name):
        return _foreign(recipe, classes, pretrained)
    if chosen.classes:
        raise RecipeError(f"model.classes = {chosen.classes!r}: {chosen.name} is a network of ours")
    options: dict[str, Any] = dict(chosen.options)
    for name in ("num_classes", "width", "weights"):
        if name in options:
            raise RecipeError(
                f"model.options.{name}: classes follow the data, width is model.width"
            )
    return create_model(chosen.name, num_classes=classes, width=chosen.width, **options)


def _foreign(recipe: Recipe, classes: int, pretrained: bool) -> nn.Module:
    """A network that is not ours, which has been seen to give a logit for each class."""
    chosen, builder = recipe.model, find_builder(recipe.model.name)
    given: dict[str, Any] = {} if chosen.width == 1 else {"width": chosen.width}
    if chosen.classes not in ("", "none"):
        given[chosen.classes] = classes
    elif not chosen.classes and builder.takes("num_classes"):
        given["num_classes"] = classes
    options: dict[str, Any] = dict(chosen.options)
    for name in given.keys() & options.keys():
        raise RecipeError(f"model.options.{name}: classes follow the data, width is model.width")
    if not pretrained:
        options.pop({"timm": "pretrained", "torchvision": "weights"}.get(builder.package, ""), None)
    model = builder.build({**options, **given}, "model.options")
    remedy = "model.classes names the parameter of the function that takes their number"
    check_outputs(model, example_image(recipe), classes, chosen.name, remedy)
    return model


def _is_random(recipe: Recipe) -> bool:
    """True if the recipe starts from random weights; an error if it must not."""
    if recipe.model.weights_from and not recipe.model.weights:
        raise RecipeError(
            f"recipe {recipe.name} starts from trained weights: give them by "
            f"--set model.weights=FILE, or train them: dbq train {recipe.model.weights_from}"
        )
    return not recipe.model.weights


def reestimate(
    model: nn.Module, split: Split, images: int, seed: int, device: torch.device
) -> None:
    """Re-estimate batch-norm statistics and ranges of the hard network from training images.

    They are augmented as in training: a float ResNet-20 loses three points of accuracy if its
    statistics come from images without the black borders of random crops.
    """
    chosen, draw = some_images(split, images, seed)
    groups = torch.split(chosen, CALIBRATION_BATCH)
    batches = (batch.images.to(device) for batch in split.batches(groups, draw))
    calibrate(model, batches, statistics="estimate")


def images_to_fit(recipe: Recipe, split: Split) -> Tensor | None:
    """The training images by which codes are chosen, as they are seen in use, not augmented."""
    if not recipe.quantize.fit:
        return None
    chosen, _ = some_images(split, recipe.quantize.fit, recipe.train.seed)
    groups = torch.split(chosen, CALIBRATION_BATCH)
    return torch.cat([batch.images.cpu() for batch in split.batches(groups)])


def some_images(split: Split, count: int, seed: int) -> tuple[Tensor, int]:
    """Indices of random images, and the seed of their augmentation."""
    draw = derive(seed, "calibration")
    generator = torch.Generator().manual_seed(draw)
    return torch.randperm(len(split), generator=generator)[:count], draw


def example_image(recipe: Recipe) -> Tensor:
    """A black image of the size the recipe's network sees."""
    side = image_side(recipe.data)
    return torch.zeros(1, 3, side, side)


def weights_file(path: str) -> Path:
    """The file itself, or the final network if `path` is the directory of a run."""
    return RunDir(Path(path)).final if os.path.isdir(path) else Path(path)
