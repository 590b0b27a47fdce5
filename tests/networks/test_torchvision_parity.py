"""mobilenet_v2 and shufflenet_v2 are torchvision's: same keys, same shapes, same outputs.

The golden files were made by torchvision's own model code (loaded without its compiled part), with
weights and images by the formulas in this file: the same on every machine, no random numbers.
Both sides run in double precision, so that 1e-5 is far above any difference between two CPUs.
"""

from __future__ import annotations

import hashlib
import json
import math
import zlib
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from dbq.networks.table import create_model

GOLDEN = Path(__file__).parent / "golden"
NETWORKS = ("mobilenet_v2", "shufflenet_v2")
CASES = {
    (name, float(width)): entry
    for name in NETWORKS
    for width, entry in json.loads((GOLDEN / f"{name}.json").read_text())["widths"].items()
}


def fill(model: nn.Module) -> None:
    """Set every parameter and buffer to values that depend on its key, shape and position only."""
    for key, tensor in model.state_dict().items():
        if not tensor.is_floating_point():
            continue
        values = noise(tensor.numel(), zlib.crc32(key.encode())).reshape(tensor.shape)
        if tensor.dim() > 1:  # uniform with the variance 2 / fan-in
            tensor.copy_(values * math.sqrt(6 / tensor[0].numel()))
        elif key.endswith(("running_var", "weight")):
            tensor.copy_(1 + 0.5 * values)
        else:
            tensor.copy_(0.5 * values)


def images(size: int) -> Tensor:
    return 2 * noise(2 * 3 * size * size, 1).reshape(2, 3, size, size)


def noise(count: int, seed: int) -> Tensor:
    """Numbers in [-1, 1) by multiplicative hashing, in integers below 2^32 * 2^31 < 2^63."""
    x = torch.arange(1, count + 1, dtype=torch.int64) + seed
    for _ in range(2):  # after a single round neighbours are still correlated
        x = (x * 1597334677) % 2**32
        x = x ^ (x >> 15)
    return x.double() / 2**31 - 1


def key_lines(model: nn.Module) -> list[str]:
    return sorted(f"{key} {list(tensor.shape)}" for key, tensor in model.state_dict().items())


def digest(lines: list[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


@pytest.mark.parametrize("name", NETWORKS)
def test_keys_and_shapes_at_width_one(name: str) -> None:
    expected = (GOLDEN / f"{name}-1.0.txt").read_text().splitlines()
    assert key_lines(create_model(name)) == expected


@pytest.mark.parametrize(("name", "width"), CASES)
def test_keys_shapes_and_outputs(name: str, width: float) -> None:
    golden = CASES[name, width]
    model = create_model(name, width=width).double().eval()
    assert sum(p.numel() for p in model.parameters()) == golden["parameters"]
    assert digest(key_lines(model)) == golden["keys_sha256"]
    fill(model)
    with torch.no_grad():
        logits = model(images(64))
    assert logits.shape == (2, 1000)
    expected = torch.tensor(golden["logits"], dtype=torch.float64)
    torch.testing.assert_close(logits[:, :5], expected, rtol=0, atol=1e-5)


def test_published_parameter_counts() -> None:
    counts = {case: entry["parameters"] for case, entry in CASES.items()}
    assert counts["mobilenet_v2", 1.0] == 3_504_872
    assert counts["shufflenet_v2", 0.5] == 1_366_792
    assert counts["shufflenet_v2", 1.0] == 2_278_604
    assert counts["shufflenet_v2", 1.5] == 3_503_624
    assert counts["shufflenet_v2", 2.0] == 7_393_996


def test_mobilenet_v2_drops_out_only_in_training() -> None:
    model = create_model("mobilenet_v2", width=0.35)
    classifier = model.classifier
    assert isinstance(classifier, torch.nn.Sequential)
    dropout, _ = classifier
    assert dropout.p == 0.2
    pooled = torch.ones(1, 1280)
    assert (dropout.train()(pooled) == 0).any()
    assert torch.equal(dropout.eval()(pooled), pooled)
