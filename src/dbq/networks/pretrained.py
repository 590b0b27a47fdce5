"""A quantized network as a folder that model hubs understand, and back.

    config.json               which network, which plan, which images: all that rebuilds it
    model.safetensors         its state dict, keys as they are
    preprocessor_config.json  how pixels become its input, in the words of other libraries
    README.md                 the model card: what it is, what was measured, how to load it

Nothing in it runs code. The one exception is a network that is a function of the user's: loading it
imports that, and says so.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dbq.costs.rules import cost
from dbq.errors import DbqError, WeightsError
from dbq.model.modes import evaluating
from dbq.model.preparation import prepare
from dbq.networks.card import card
from dbq.networks.table import create_model
from dbq.networks.tensorfile import tensor_bytes
from dbq.networks.weights import put_state, read_weights
from dbq.plans.plan import Plan
from dbq.plans.shipped import load_plan
from dbq.support.atomic import write_atomically
from dbq.support.imports import announce_code, is_function_name
from dbq.version import __version__

FORMAT = 1
CONFIG, WEIGHTS, PIXELS, CARD = (
    "config.json", "model.safetensors", "preprocessor_config.json", "README.md"
)  # fmt: skip


def save_pretrained(
    model: nn.Module,
    directory: str | os.PathLike[str],
    *,
    network: str,
    plan: Plan | str | Path,
    example_input: Tensor,
    options: Mapping[str, Any] | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    classes: Sequence[str] = (),
    measured: Mapping[str, Any] | None = None,
) -> Path:
    """Write a quantized `model` as a folder that `from_pretrained` reads without knowing it.

    `network` and `options` are what `dbq.create_model` made it from, `plan` what it was quantized by.
    `example_input` [N, C, H, W] shows the size of its images, which were made from pixels by `mean` and
    `std`. `measured` stands on the model card, beside costs and size, which are counted here: what it
    is called and its value, such as {"top-1, CIFAR-10 test": "91.3 %"}. The folder is read back once,
    and an error says so if the network in it is not this one.

    >>> import tempfile
    >>> model, images = create_model("resnet20", width=0.25), torch.rand(2, 3, 32, 32)
    >>> _ = prepare(model, "resnet-2t", images)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = save_pretrained(model, folder, network="resnet20", plan="resnet-2t",
    ...                         options={"width": 0.25}, example_input=images)
    ...     torch.equal(from_pretrained(folder)(images), model.eval()(images))
    True
    """
    folder, chosen = Path(directory), load_plan(plan)
    config = {
        "library_name": "dbq",
        "dbq_version": __version__,
        "format": FORMAT,
        "network": network,
        "options": dict(options or {}),
        "plan": chosen.to_table(),
        "image": list(example_input.shape[1:]),
        "id2label": {str(number): name for number, name in enumerate(classes)},
    }
    texts = {
        CONFIG: json.dumps(config, indent=2),
        PIXELS: json.dumps(_pixels(example_input, mean, std), indent=2),
    }
    weights = tensor_bytes(model.state_dict(), {"network": network, "plan": chosen.name})
    with evaluating(model):
        counted = cost(model, example_input[:1])
    texts[CARD] = card(config, counted, len(weights), measured or {})
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / WEIGHTS, weights)
    for name, text in texts.items():
        write_atomically(folder / name, (text + "\n").encode())
    _check(model, folder, example_input)
    return folder


def from_pretrained(directory: str | os.PathLike[str]) -> nn.Module:
    """The network that `save_pretrained` wrote, in eval mode. Nothing is trained, fitted or unpickled.

    >>> from_pretrained("absent")
    Traceback (most recent call last):
    ...
    dbq.errors.WeightsError: absent: no config.json; expected a folder of dbq.save_pretrained
    """
    folder = Path(directory)
    config = _config(folder)
    source = str(folder / CONFIG)
    if is_function_name(config["network"]):
        announce_code(folder, config["network"])
    model = create_model(config["network"], **config["options"])
    plan = Plan.from_table(config["plan"], source)
    prepare(model, plan, torch.zeros(1, *config["image"]), fit=False)
    put_state(model, read_weights(folder / WEIGHTS), str(folder / WEIGHTS))
    return model.eval()


TYPES = {"network": str, "options": dict, "plan": dict, "image": list}


def _config(folder: Path) -> dict[str, Any]:
    """config.json, with the types that are relied on."""
    expected = "expected a folder of dbq.save_pretrained"
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except OSError:
        raise WeightsError(f"{folder}: no {CONFIG}; {expected}") from None
    except (ValueError, RecursionError) as error:
        raise WeightsError(f"{folder / CONFIG}: not JSON ({error}); {expected}") from None
    if not isinstance(config, dict) or config.get("library_name") != "dbq":
        raise WeightsError(f"{folder / CONFIG} is of another library; {expected}")
    if config.get("format") != FORMAT:
        raise WeightsError(
            f"{folder / CONFIG} has format {config.get('format')!r}, this version reads {FORMAT}"
        )
    for key, type in TYPES.items():
        if not isinstance(config.get(key), type):
            raise WeightsError(f"{folder / CONFIG}: {key} is not a {type.__name__}")
    sizes = config["image"]
    if len(sizes) != 3 or not all(isinstance(n, int) and 0 < n <= 2**14 for n in sizes):
        raise WeightsError(f"{folder / CONFIG}: image {sizes} is not channels, height and width")
    return config


def _pixels(
    images: Tensor, mean: Sequence[float] | None, std: Sequence[float] | None
) -> dict[str, Any]:
    """What image processors of other libraries call it; pixels / 255 if there is no mean."""
    channels, height, width = images.shape[1:]
    if (mean is None) != (std is None):
        raise DbqError("mean and std belong together: give both or none")
    for name, numbers in (("mean", mean), ("std", std)):
        if numbers is not None and len(numbers) != channels:
            raise DbqError(f"{name} has {len(numbers)} numbers for {channels} channels")
    return {
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": mean is not None,
        "image_mean": list(mean or [0.0] * channels),
        "image_std": list(std or [1.0] * channels),
        "do_resize": True,
        "size": {"height": height, "width": width},
    }


@torch.no_grad()
def _check(model: nn.Module, folder: Path, images: Tensor) -> None:
    """Raise unless the folder gives the outputs that the model gives, bit for bit."""
    again = from_pretrained(folder).to(images.device)
    with evaluating(model):
        same = torch.equal(again(images), model(images))
    if not same:
        raise DbqError(
            f"{folder} was written, but the network in it gives other outputs than this one: are "
            "network, options and plan those it was made from?"
        )
