"""Networks that are not ours, by name.

| name                        | called                                              |
|-----------------------------|-----------------------------------------------------|
| "package.module:function"   | function(**options); a class is a function, too     |
| "timm:NAME"                 | timm.create_model(NAME, **options)                  |
| "torchvision:NAME"          | torchvision.models.get_model(NAME, **options)       |

The number of classes is given as `num_classes` wherever the function takes a parameter of that name (or
any). Names of timm and torchvision are looked up in their tables, so that none of them is a download.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from dbq.errors import UnknownModelError, UserCodeError, closest
from dbq.support.imports import blame, call, import_function, import_module, is_function_name
from dbq.support.imports import parameters as parameters_of


@dataclass(frozen=True)
class Builder:
    """A function that makes a network; `name` is what the user calls it."""

    name: str
    function: Callable[..., Any]

    @property
    def package(self) -> str:
        return self.name.partition(":")[0]

    def takes(self, parameter: str) -> bool:
        """Whether `parameter` can be given: it is named, or the function takes any."""
        taken = parameters_of(self.function)
        return taken is None or parameter in taken[0] or taken[1]

    def build(self, arguments: Mapping[str, Any], where: str = "its options") -> nn.Module:
        """The network; UserCodeError if there is none. `where` is where the arguments are given."""
        made = call(self.function, arguments, self.name, where)
        if not isinstance(made, nn.Module):
            kind = type(made).__name__
            raise UserCodeError(f"{self.name} returned a {kind}; expected a torch.nn.Module")
        return made


def is_foreign(name: str) -> bool:
    """Whether a network's name stands for code that is not ours.

    >>> is_foreign("timm:lcnet_050"), is_foreign("resnet20")
    (True, False)
    """
    return ":" in name


def find_builder(name: str) -> Builder:
    """What makes the network of this name.

    >>> find_builder("torch.nn:Linear").build({"in_features": 2, "out_features": 1})
    Linear(in_features=2, out_features=1, bias=True)
    >>> find_builder("keras:1")
    Traceback (most recent call last):
    ...
    dbq.errors.UnknownModelError: keras:1: expected package.module:function, timm:NAME, torchvision:NAME
    """
    package, _, inner = name.partition(":")
    if package == "timm":
        timm = _package("timm", name)
        architecture = inner.partition(".")[0]  # a tag, such as ".in1k", follows it
        _require(architecture, timm.list_models(), name)
        return Builder(name, partial(timm.create_model, inner))
    if package == "torchvision":
        models = _package("torchvision.models", name)
        _require(inner, models.list_models(), name)
        return Builder(name, partial(models.get_model, inner))
    if not is_function_name(name):
        raise UnknownModelError(
            f"{name}: expected package.module:function, timm:NAME, torchvision:NAME"
        )
    return Builder(name, import_function(name))


def check_outputs(model: nn.Module, image: Tensor, classes: int, name: str, remedy: str) -> None:
    """Run a network that is not ours once; UserCodeError unless it gives `classes` logits an image."""
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            found = model(image)
    except Exception as error:
        shape = "x".join(map(str, image.shape))
        raise UserCodeError(f"{name} fails on an image [{shape}]: {blame(error)}") from error
    finally:
        model.train(was_training)
    if not isinstance(found, Tensor):
        kind = type(found).__name__
        raise UserCodeError(f"{name} gives a {kind} for an image; expected a tensor of logits")
    if tuple(found.shape) != (len(image), classes):
        raise UserCodeError(
            f"{name} gives {list(found.shape)} for {len(image)} image, expected "
            f"{[len(image), classes]}, a logit for each class; {remedy}"
        )


def _package(module: str, wanted: str) -> Any:
    package = module.partition(".")[0]
    try:
        return import_module(module, wanted)
    except UserCodeError as error:
        cause = error.__cause__
        if isinstance(cause, ModuleNotFoundError) and cause.name == package:
            raise UserCodeError(
                f"{wanted}: {package} is not installed; pip install {package}"
            ) from error
        raise


def _require(inner: str, known: Iterable[str], name: str) -> None:
    known = list(known)
    if inner not in known:
        raise UnknownModelError(f"no network named {name!r}; {closest(inner, known)}")
