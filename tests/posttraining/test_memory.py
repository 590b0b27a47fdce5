"""`memory` bounds what is kept: measured as the largest size of a process, since torch's own memory
is seen by no Python tool. The kernel's VmHWM starts anew with a program; getrusage's maximum does not,
and may be that of the process which started it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

# A network whose first layers see large images: 128 of them are 512 MB in front of one layer.
SCRIPT = """
import gc, json, re, sys
from pathlib import Path
import torch
from torch import nn
import dbq

torch.set_num_threads(1)
torch.manual_seed(0)
net = nn.Sequential(
    nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
    nn.Conv2d(64, 64, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
    nn.MaxPool2d(8), nn.Conv2d(64, 64, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
).eval()
images = torch.randn(160, 3, 128, 128)
peak = lambda: int(re.search(r"VmHWM:\\s*(\\d+) kB", Path("/proc/self/status").read_text())[1]) << 10
with torch.no_grad():
    for part in torch.split(images, 16):
        net(part)  # what running costs anyway, in the batches that are judged by
gc.collect()
before = peak()
summary = dbq.quantize(net, "dbq-2t-4", images, budget="fast", memory=int(sys.argv[1]) << 20)
print(json.dumps([peak() - before, {row.name: row.images for row in summary.layers}]))
"""


def quantized(megabytes: int) -> tuple[float, dict[str, int]]:
    """Megabytes that quantizing took beyond running, and the images each layer was fitted to."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(megabytes)], check=True, capture_output=True, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"}, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    taken, images = json.loads(done.stdout)
    return taken / 2**20, images


@pytest.mark.skipif(sys.platform != "linux", reason="VmHWM is Linux's")
def test_less_memory_is_taken_and_fewer_images_seen() -> None:
    plenty, all_images = quantized(8192)
    little, fewer = quantized(700)
    assert set(all_images.values()) == {128}
    assert fewer["0"] == fewer["3"] == 24  # 4 MB of activations an image lie in front of it
    assert fewer["7"] == fewer["10"] == 128  # later layers see them all
    assert little < 700 < plenty
