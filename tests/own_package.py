"""A user's package: a network, a data set, a folder of images and a recipe, as files in a directory."""

from __future__ import annotations

from pathlib import Path

from PIL import Image
from sklearn.datasets import load_digits

NETWORKS = '''
from torch import nn


def separable(inputs, outputs, stride):
    return [
        nn.Conv2d(inputs, inputs, 3, stride, 1, groups=inputs, bias=False),
        nn.BatchNorm2d(inputs), nn.ReLU(),
        nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(),
    ]


def tiny(num_classes, channels=8):
    """A network whose last layer is a convolution: no Linear tells its number of classes."""
    return nn.Sequential(
        nn.Conv2d(3, channels, 3, 2, 1, bias=False), nn.BatchNorm2d(channels), nn.ReLU(),
        *separable(channels, 2 * channels, 2),
        nn.AdaptiveAvgPool2d(1), nn.Conv2d(2 * channels, num_classes, 1), nn.Flatten(),
    )


def other(outputs, **options):
    return tiny(outputs, **options)


def fixed():
    return tiny(4)


def tuples(num_classes):
    class Auxiliary(nn.Sequential):
        def forward(self, x):
            y = super().forward(x)
            return (y, y) if self.training else y

    return Auxiliary(tiny(num_classes))


def fails(num_classes):
    raise ValueError("no such network")
'''

DATA = """
import torch
from sklearn.datasets import load_digits
from torch.utils.data import Dataset


class Digits(Dataset):
    classes = ["nought", "one", "two", "three"]

    def __init__(self, test):
        digits = load_digits(n_class=4)
        self.items = [
            (torch.from_numpy(image * 15).byte()[None], int(label))
            for number, (image, label) in enumerate(zip(digits.images, digits.target))
            if (number % 5 == 0) == test
        ]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


def digits(directory=""):
    return Digits(False), Digits(True)
"""

RECIPE = """
[model]
name = "bring.networks:tiny"
[data]
name = "bring.data:digits"
image_size = 16
normalise = "none"
augment = "crop"
workers = 0
[train]
epochs = 2
batch = 96
rate = 0.1
[quantize]
plan = "dbq-2t-4"
calibrate = 96
[temperature]
start = 20
increment = 20
[machine]
device = "cpu"
"""


def write_package(folder: Path) -> Path:
    """The package `bring` and recipe.toml in `folder`; returns the recipe's path."""
    package = folder / "bring"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "networks.py").write_text(NETWORKS)
    (package / "data.py").write_text(DATA)
    recipe = folder / "recipe.toml"
    recipe.write_text(RECIPE)
    return recipe


def write_digits(folder: Path, classes: int = 4, each: int = 30) -> Path:
    """Folders of PNG files, one for each of the first digits."""
    names = ["nought", "one", "two", "three"]
    digits = load_digits(n_class=classes)
    counts = dict.fromkeys(range(classes), 0)
    for image, label in zip(digits.images, digits.target, strict=True):
        number = counts[int(label)]
        if number < each:
            path = folder / names[label] / f"{number:03}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray((image * 15).astype("uint8")).save(path)
        counts[int(label)] += 1
    return folder
