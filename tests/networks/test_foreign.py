"""Networks that are not ours: by function, from timm and from torchvision, and what can go wrong."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import dbq
from dbq.errors import DbqError, UnknownModelError, UserCodeError
from dbq.networks.foreign import check_outputs, find_builder

MINE = """
from torch import nn

class Tiny(nn.Module):
    input_size = 16

    def __init__(self, num_classes, channels=4):
        super().__init__()
        self.conv = nn.Conv2d(3, channels, 3)
        self.fc = nn.Linear(channels, num_classes)

    def forward(self, x):
        return self.fc(self.conv(x).mean((2, 3)))

def tiny(num_classes=3, width=1.0):
    return Tiny(num_classes, int(8 * width))

def nothing():
    return None

def two():
    return nn.Linear(1, 1), nn.Linear(1, 1)
"""
# The functions of timm and torchvision that are used, with their signatures.
TIMM = """
from torch import nn

def list_models():
    return ["lcnet_050", "tiny_net"]

def create_model(model_name, pretrained=False, **kwargs):
    if pretrained:
        raise OSError("a download")
    net = nn.Linear(2, kwargs.pop("num_classes", 1000), **kwargs)
    net.name = model_name
    return net
"""
TORCHVISION_MODELS = """
from torch import nn

def list_models():
    return ["mobilenet_v2", "regnet_y_400mf"]

def get_model(name, **config):
    net = nn.Linear(2, config.pop("num_classes", 1000), **config)
    net.name = name
    return net
"""


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module of the user's, and packages with the names and functions of timm and torchvision."""
    (tmp_path / "foreign_mine.py").write_text(MINE)
    (tmp_path / "timm.py").write_text(TIMM)
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision" / "__init__.py").write_text("")
    (tmp_path / "torchvision" / "models.py").write_text(TORCHVISION_MODELS)
    names = ("foreign_mine", "timm", "torchvision", "torchvision.models")
    before = {name: sys.modules.pop(name, None) for name in names}
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    importlib.invalidate_caches()
    yield tmp_path
    for name, module in before.items():
        sys.modules.pop(name, None)
        if module is not None:
            sys.modules[name] = module


def test_a_function_and_a_class(packages: Path) -> None:
    net = dbq.create_model("foreign_mine:tiny", num_classes=5, width=0.5)
    assert net(torch.zeros(1, 3, 16, 16)).shape == (1, 5)
    assert net.conv.out_channels == 4
    assert dbq.create_model("foreign_mine:Tiny", num_classes=2, channels=7).conv.out_channels == 7


def test_what_is_not_given_is_not_passed(packages: Path) -> None:
    assert dbq.create_model("foreign_mine:tiny").fc.out_features == 3
    with pytest.raises(UserCodeError, match="takes no width"):
        dbq.create_model("foreign_mine:Tiny", num_classes=2, width=0.5)


def test_weights_of_a_file(packages: Path, tmp_path: Path) -> None:
    net: Any = dbq.create_model("foreign_mine:tiny")
    torch.save(net.state_dict(), tmp_path / "net.pth")
    again: Any = dbq.create_model("foreign_mine:tiny", weights=tmp_path / "net.pth")
    assert torch.equal(net.fc.weight, again.fc.weight)


def test_timm(packages: Path) -> None:
    net: Any = dbq.create_model("timm:tiny_net", num_classes=4, bias=False)
    assert (net.name, net.out_features, net.bias) == ("tiny_net", 4, None)
    assert dbq.create_model("timm:tiny_net.in1k").name == "tiny_net.in1k"
    with pytest.raises(UnknownModelError, match=r"'timm:tiny_nett'; closest: tiny_net"):
        dbq.create_model("timm:tiny_nett")
    with pytest.raises(UnknownModelError, match="hf-hub"):
        dbq.create_model("timm:hf-hub:somebody/tiny_net")


def test_torchvision(packages: Path) -> None:
    net: Any = dbq.create_model("torchvision:regnet_y_400mf", num_classes=4)
    assert (net.name, net.out_features) == ("regnet_y_400mf", 4)
    with pytest.raises(UnknownModelError, match=r"closest: mobilenet_v2"):
        dbq.create_model("torchvision:mobilenet_v3")
    with pytest.raises(
        UserCodeError, match=r"torchvision:mobilenet_v2 raised TypeError: .*'depth'"
    ):
        dbq.create_model("torchvision:mobilenet_v2", depth=3)


@pytest.mark.parametrize("package", ["timm", "torchvision"])
def test_a_package_that_is_not_installed(
    package: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    find = importlib.import_module

    def absent(name: str, *rest: str) -> object:
        if name.split(".")[0] == package:
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)
        return find(name, *rest)

    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(UserCodeError, match=f"{package} is not installed; pip install {package}"):
        dbq.create_model(f"{package}:mobilenet_v2")


def test_a_package_that_does_not_import(packages: Path) -> None:
    (packages / "timm.py").write_text("raise RuntimeError('operator nms does not exist')")
    with pytest.raises(UserCodeError, match="timm failed: RuntimeError: operator nms"):
        dbq.create_model("timm:tiny_net")


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("foreign_mine:nothing", UserCodeError, "returned a NoneType; expected a torch.nn.Module"),
        ("foreign_mine:two", UserCodeError, "returned a tuple"),
        ("foreign_mine:tyni", UserCodeError, "has no tyni; closest: tiny"),
        ("foreign_none:tiny", UserCodeError, "no module foreign_none"),
        ("foreign mine:tiny", UnknownModelError, "expected package.module:function"),
        ("foreign_mine:", UnknownModelError, "expected package.module:function"),
    ],
)
def test_what_gives_no_network(
    packages: Path, name: str, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind) as caught:
        dbq.create_model(name)
    assert message in str(caught.value)


def test_the_side_of_a_networks_images() -> None:
    from dbq.networks.table import input_size

    net: Any = nn.Linear(1, 1)
    for side in (None, "224", (224, 224), 0):
        net.input_size = side
        with pytest.raises(DbqError, match=r"Linear has no input_size .*--size"):
            input_size(net)
    net.input_size = 48
    assert input_size(net) == 48


class Gives(nn.Module):
    def __init__(self, make: Callable[[torch.Tensor], object]) -> None:
        super().__init__()
        self.make = make

    def forward(self, x: torch.Tensor) -> object:
        return self.make(x)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda x: torch.zeros(1, 4),
            r"gives \[1, 4\] for 1 image, expected \[1, 3\].*; the remedy",
        ),
        (lambda x: torch.zeros(1, 3, 2), r"gives \[1, 3, 2\]"),
        (lambda x: {"out": torch.zeros(1, 3)}, "gives a dict for an image"),
        (
            lambda x: x.reshape(7),
            r"fails on an image \[1x3x8x8\]: RuntimeError: shape .*test_foreign",
        ),
    ],
)
def test_outputs_that_are_no_logits(make: Callable[[torch.Tensor], object], message: str) -> None:
    net = Gives(make).train()
    with pytest.raises(UserCodeError, match=message):
        check_outputs(net, torch.zeros(1, 3, 8, 8), 3, "mine:net", "the remedy")
    assert net.training


def test_a_builder_knows_its_parameters(packages: Path) -> None:
    assert find_builder("foreign_mine:tiny").takes("num_classes")
    assert not find_builder("foreign_mine:nothing").takes("num_classes")
    assert find_builder("timm:tiny_net").takes("num_classes")
