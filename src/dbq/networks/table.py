"""Plain float networks, by name: ours, and any other that a function makes (foreign.py).

Each entry of MODELS is a class: its constructor takes `num_classes`, `width` and perhaps options of
its own, and its `input_size` is the side of the square images it was designed for.
"""

from __future__ import annotations

import os
from typing import Any, get_type_hints

from torch import nn

from dbq.errors import DbqError, UnknownModelError, closest
from dbq.networks.foreign import find_builder, is_foreign
from dbq.networks.mobilenet_v1 import MobileNetV1
from dbq.networks.mobilenet_v2 import MobileNetV2
from dbq.networks.resnet import ResNet20
from dbq.networks.shufflenet_v2 import ShuffleNetV2
from dbq.networks.weights import load_weights

Network = ResNet20 | MobileNetV1 | MobileNetV2 | ShuffleNetV2

MODELS: dict[str, type[Network]] = {
    "resnet20": ResNet20,
    "mobilenet_v1": MobileNetV1,
    "mobilenet_v2": MobileNetV2,
    "shufflenet_v2": ShuffleNetV2,
}

MAX_WIDTH = 100  # ResNet-20 then takes 10 GB
MAX_CLASSES = 1_000_000


def create_model(
    name: str,
    *,
    num_classes: int | None = None,
    width: float = 1.0,
    weights: str | os.PathLike[str] | None = None,
    **options: Any,
) -> nn.Module:
    """A float network by name, with random weights or those of a file.

    `num_classes` is 10 for resnet20 and 1000 for the others unless given; `options` are the
    network's own, such as `small_input=True` of mobilenet_v1. A name "package.module:function",
    "timm:NAME" or "torchvision:NAME" stands for a network of your own or of that package, which gets
    `num_classes` and `width` only if they are given.

    >>> model = create_model("mobilenet_v1", num_classes=10, width=0.25, small_input=True)
    >>> model.fc
    Linear(in_features=256, out_features=10, bias=True)
    """
    if not (isinstance(width, int | float) and 0 < width <= MAX_WIDTH):
        raise DbqError(f"{name}: width {width!r}; expected a positive number up to {MAX_WIDTH}")
    if num_classes is not None:
        if not (isinstance(num_classes, int) and 0 < num_classes <= MAX_CLASSES):
            raise DbqError(
                f"{name}: num_classes {num_classes!r}; expected a positive integer up to {MAX_CLASSES}"
            )
        options["num_classes"] = num_classes
    model = _foreign(name, width, options) if is_foreign(name) else _own(name, width, options)
    if weights is not None:
        load_weights(model, weights)
    return model


def _foreign(name: str, width: float, options: dict[str, Any]) -> nn.Module:
    given = {} if width == 1 else {"width": width}
    if given.keys() & options.keys():
        raise DbqError(f"{name}: width is given twice, by itself and among the options")
    return find_builder(name).build({**options, **given})


def _own(name: str, width: float, options: dict[str, Any]) -> nn.Module:
    network = _find(name)
    known = get_type_hints(network.__init__)
    known.pop("return")
    for option, value in options.items():
        if option not in known:
            raise DbqError(f"{name} has no option {option!r}; {closest(option, known)}")
        if type(value) is not known[option]:
            raise DbqError(f"{name}: {option} = {value!r}; expected a {known[option].__name__}")
    return network(width=width, **options)


def input_size(network: str | nn.Module) -> int:
    """The side of the images a network is meant for, which ours state as an attribute.

    >>> input_size("resnet20"), input_size("mobilenet_v2")
    (32, 224)
    """
    known = _find(network) if isinstance(network, str) else network
    side = getattr(known, "input_size", None)
    if type(side) is not int or side < 1:
        raise DbqError(
            f"{type(known).__name__} has no input_size that says how large its images are: give --size"
        )
    return side


def _find(name: str) -> type[Network]:
    if name not in MODELS:
        raise UnknownModelError(f"no network named {name!r}; {closest(name, MODELS)}")
    return MODELS[name]
