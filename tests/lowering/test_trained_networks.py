"""Networks of three kinds, trained for a few steps, deployed and run: torch, numpy and engine agree."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import dbq
from dbq.deploy import reference
from dbq.model.pixels import normalise

pytestmark = [pytest.mark.slow, pytest.mark.native]


class UNet(nn.Module):
    """Down by pooling, up by a transposed convolution and by resizing, with shortcuts."""

    def __init__(self) -> None:
        super().__init__()

        def block(inside: int, outside: int) -> nn.Sequential:
            return nn.Sequential(
                nn.Conv2d(inside, outside, 3, padding=1, bias=False),
                nn.BatchNorm2d(outside),
                nn.SiLU(),
                nn.Conv2d(outside, outside, 1, bias=False),
                nn.BatchNorm2d(outside),
                nn.LeakyReLU(0.1),
            )

        self.down, self.middle, self.bottom = block(3, 8), block(8, 16), block(16, 24)
        self.up = nn.ConvTranspose2d(24, 16, 2, stride=2)
        self.first, self.second = block(32, 16), block(24, 8)
        self.classes = nn.Conv2d(8, 3, 1)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        fine = self.down(x)
        coarse = self.middle(nn.functional.max_pool2d(fine, 2))
        x = self.up(self.bottom(nn.functional.max_pool2d(coarse, 2)))
        x = self.first(torch.cat([x, coarse], 1))
        x = nn.functional.interpolate(x, scale_factor=2.0, mode="bilinear")
        return {"out": self.classes(self.second(torch.cat([x, fine], 1)))}


def foreign(module: str, name: str) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        network: nn.Module = getattr(import_module(f"pytorchcv.models.{module}"), name)()
        return network

    return build


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "mobilenet_v3_small": foreign("mobilenetv3", "mobilenetv3_small_w7d20"),
    "efficientnet_b0": foreign("efficientnet", "efficientnet_b0"),
    "unet": UNet,
}


@pytest.mark.parametrize("name", list(NETWORKS))
def test_trained_deployed_and_run(name: str, tmp_path: Path) -> None:
    torch.manual_seed(2)
    side = 224 if name != "unet" else 32
    pixels = torch.randint(256, (2, 3, side, side), dtype=torch.uint8)
    x = normalise(pixels, (0.5,) * 3, (0.25,) * 3)
    model = NETWORKS[name]()
    dbq.prepare(model, "dbq-2t-4", x[:1])
    optimizer = torch.optim.SGD(dbq.param_groups(model, weight_decay=4e-5), lr=0.01, momentum=0.9)
    schedule = dbq.TemperatureSchedule(model, start=20, increment=20)
    for _ in range(3):
        output = model.train()(x)
        scores = output["out"] if isinstance(output, dict) else output
        loss = nn.functional.cross_entropy(scores, scores.detach().argmin(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    dbq.calibrate(model, [x])

    # lower compares every operation with torch, and raises beyond one code or 2^-9.
    program = dbq.lower(model.eval(), x, mean=(0.5,) * 3, std=(0.25,) * 3, report=None)
    found = program.facts["agreement"]
    assert found["codes"] > 10_000
    # Both round to float32 in unlike order, which moves a code in some ten thousand, by one.
    assert found["different"] <= 1e-3 * found["codes"]
    dbq.save(program, tmp_path / "net.dbq")
    net = dbq.load(tmp_path / "net.dbq", threads=2)
    images = pixels.permute(0, 2, 3, 1).contiguous().numpy()
    assert np.array_equal(net(images), reference.run(program, images)), "bit for bit"
