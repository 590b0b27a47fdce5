"""How fast a network runs on this machine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from dbq.deploy.engine import Net
from dbq.errors import EngineError

WARM_UP, FEWEST_CALLS = 3, 5
LONGEST = 86_400  # seconds
PROFILES = (3, 50)  # fewest and most runs that are timed layer by layer


def measure(net: Net, seconds: float = 2.0, batch: int = 1) -> dict[str, Any]:
    """Time whole calls on `batch` random images for about `seconds`, then each layer on one image."""
    if not 0 <= seconds <= LONGEST:
        raise EngineError(f"measuring for {seconds} seconds; expected 0 to {LONGEST}")
    shape = (batch, *net.input_shape)
    images = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    calls = _time(lambda: net(images), seconds)
    fewest, most = PROFILES
    profiles = [net.profile(images[0]) for _ in range(max(fewest, min(most, len(calls))))]
    layers = [statistics.median(times) for times in zip(*profiles, strict=True)]
    return {
        "network": net.name, "isa": net.isa, "threads": net.threads,
        "batch": batch, "calls": len(calls),
        "milliseconds": 1e3 * statistics.median(calls), "fastest_milliseconds": 1e3 * min(calls),
        "images_per_second": batch / statistics.median(calls),
        "peak_memory": net.peak_memory, "load_milliseconds": net.load_milliseconds,
        "layers": [
            {"name": layer.name, "kernel": layer.kernel, "microseconds": micros,
             "gmac_per_second": layer.macs / micros / 1e3 if micros else 0.0}
            for layer, micros in zip(net.describe().layers, layers, strict=True)
        ],
    }  # fmt: skip


def _time(call: Callable[[], object], seconds: float) -> list[float]:
    for _ in range(WARM_UP):
        call()
    times: list[float] = []
    begun = time.perf_counter()
    while time.perf_counter() - begun < seconds or len(times) < FEWEST_CALLS:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return times
