"""Net.classify and dbq.export: names, sizes and resizing; what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import dbq
from dbq.deploy.file.fileformat import load_program, write_program
from dbq.deploy.pictures.images import read_image
from dbq.errors import DataError, EngineError, FileFormatError, LoweringError
from tests.photographs import write_photograph

SIDE, NAMES = 16, ["cat", "dog", "emu"]
MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)


def prepared(channels: int = 3) -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(1)
    model = nn.Sequential(
        nn.Conv2d(channels, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Conv2d(8, 8, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3),
    )  # fmt: skip
    images = torch.randn(4, channels, SIDE, SIDE)
    dbq.prepare(model, "dbq-2t-4", images)
    dbq.calibrate(model, [images])
    return model, images


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> dbq.Exported:
    model, images = prepared()
    path = tmp_path_factory.mktemp("exported") / "net.dbq"
    return dbq.export(
        model, images, path, mean=MEAN, std=STD, classes=NAMES, resize_length=20, name="tiny"
    )


def test_what_export_returns(exported: dbq.Exported) -> None:
    assert exported.bytes == exported.path.stat().st_size
    # 3x3x3x8 + 8x8 + 8x3 + 3 weights, and weight and bias of two batch norms
    assert exported.float_bytes == 4 * (216 + 64 + 24 + 3 + 2 * 16)
    macs = {"stem": 8 * 8 * 216, "pointwise": 8 * 8 * 64, "linear": 24}
    assert exported.ternary_share == pytest.approx(macs["pointwise"] / sum(macs.values()))
    assert exported.agreement.images == 4
    text = str(exported)
    for words in (str(exported.path), "times smaller", "ternary branches", "against torch"):
        assert words in text
    data = exported.to_json()
    assert data["agreement"]["images"] == 4
    assert "program" not in data


def test_the_file(exported: dbq.Exported) -> None:
    facts = load_program(exported.path).facts
    assert facts["classes"] == NAMES
    assert facts["resize_length"] == 20
    assert facts["mean"] == list(MEAN)
    assert exported.program.name == "tiny"


def test_a_file_of_another_size_is_read_as_dbq_run_reads_it(
    exported: dbq.Exported, tmp_path: Path
) -> None:
    photograph = write_photograph(tmp_path / "a.png", 60, 45)
    net = dbq.load(exported.path)
    pixels = read_image(photograph, (SIDE, SIDE, 3), 20)
    logits = net(pixels)[0]
    found = net.classify(photograph)
    assert [guess.index for guess in found] == np.argsort(-logits, kind="stable").tolist()
    assert [guess.logit for guess in found] == sorted(logits.tolist(), reverse=True)
    assert [guess.name for guess in found] == [NAMES[guess.index] for guess in found]
    assert net.classify(str(photograph), top=1) == found[:1]
    array = np.asarray(Image.open(photograph))
    assert net.classify(array) == found
    assert net.classify(pixels) == found


def test_without_facts_images_are_covered_and_classes_numbered(tmp_path: Path) -> None:
    model, images = prepared()
    program = dbq.lower(model, images, report=None)
    net = dbq.load(write_program(program))
    photograph = write_photograph(tmp_path / "a.png", 60, 45)
    found = net.classify(photograph)
    assert sorted(guess.name for guess in found) == ["0", "1", "2"]
    assert found[0].logit == net(read_image(photograph, (SIDE, SIDE, 3)))[0].max()


def test_grey(tmp_path: Path) -> None:
    model, images = prepared(channels=1)
    done = dbq.export(model, images, tmp_path / "net.dbq")
    grey = np.arange(400, dtype=np.uint8).reshape(20, 20)
    net = dbq.load(done.path)
    assert net.classify(grey) == net.classify(grey[:, :, None])
    assert net.classify(np.stack([grey] * 3, 2)) == net.classify(grey)


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((20, 20, 4), np.uint8), np.zeros((20, 20, 3)), np.zeros((0, 20, 3), np.uint8),
        np.zeros(7, np.uint8), np.zeros((1, 20, 20, 3), np.uint8), np.zeros((1, 200, 3), np.uint8),
    ],
)  # fmt: skip
def test_arrays_that_are_no_image(exported: dbq.Exported, array: np.ndarray) -> None:
    with pytest.raises(DataError):
        dbq.load(exported.path).classify(array)


def test_what_classify_refuses(exported: dbq.Exported, tmp_path: Path) -> None:
    net = dbq.load(exported.path)
    with pytest.raises(DataError, match=r"absent\.png"):
        net.classify(tmp_path / "absent.png")
    for top in (0, -1, 1.5):
        with pytest.raises(EngineError, match="classes"):
            net.classify(np.zeros((SIDE, SIDE, 3), np.uint8), top=top)  # type: ignore[arg-type]
    assert len(net.classify(np.zeros((SIDE, SIDE, 3), np.uint8), top=9)) == 3
    for facts in ({"classes": ["one"]}, {"resize_length": 5}, {"resize_length": 10**9}):
        other = dbq.load(write_program(exported.program.with_facts(**facts)))
        with pytest.raises(FileFormatError, match=next(iter(facts))):
            other.classify(np.zeros((20, 20, 3), np.uint8))


def test_an_output_for_each_pixel(tmp_path: Path) -> None:
    images = torch.randn(4, 3, SIDE, SIDE)
    pixels = nn.Sequential(
        nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 3, 1)
    )
    dbq.prepare(pixels, "dbq-2t-4", images)
    dbq.calibrate(pixels, [images])
    net = dbq.load(dbq.export(pixels, images, tmp_path / "net.dbq").path)
    with pytest.raises(EngineError, match="an output for each pixel"):
        net.classify(np.zeros((SIDE, SIDE, 3), np.uint8))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"classes": ["cat", "dog"]}, "3 different strings"),
        ({"classes": "cat"}, "3 different strings"),
        ({"classes": [1, 2, 3]}, "3 different strings"),
        ({"resize_length": 8}, "resize_length is 8; expected 16 to 64"),
        ({"resize_length": 20.5}, r"resize_length is 20\.5"),
        ({"mean": (0.5,)}, "mean"),
    ],
)
def test_what_export_refuses(tmp_path: Path, options: dict[str, object], message: str) -> None:
    model, images = prepared()
    with pytest.raises(LoweringError, match=message):
        dbq.export(model, images, tmp_path / "net.dbq", **options)  # type: ignore[arg-type]
    assert not (tmp_path / "net.dbq").exists()
