"""The networks of benchmarks/engine.py in every runtime's own form, made once into a directory.

NAME-PLAN.dbq         ours, for each plan
NAME-float32.onnx     the float network, by torch's exporter
NAME-int8.onnx        the same, quantized by onnxruntime: static, QDQ, per channel, reduced range
NAME-nncf.xml, .bin   the same, quantized by NNCF for openvino
"""

from __future__ import annotations

import logging
import sys
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

import dbq

CALIBRATION_IMAGES = 8
SEED = 0

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Network:
    """A network at a size, and the plans to run it with."""

    model: str  # of ours, or "pytorchcv:NAME"
    pixels: int
    options: dict[str, Any] = field(default_factory=dict)
    plans: tuple[str, ...] = ("dbq-2t-4", "dbq-1t-a8", "fx8-3")
    # Least correlation of a peer's logits with their float emulation. Random deep networks amplify every
    # rounding; full-range weights, whose sums saturate, gave 0.2 to 0.3 (ResNet-20: 0.87 to 0.91).
    least_correlation: float = 0.7


NETWORKS = {
    "mobilenet_v1-1.0": Network("mobilenet_v1", 224),
    "mobilenet_v1-0.25": Network("mobilenet_v1", 224, {"width": 0.25}),
    "mobilenet_v2-1.0": Network("mobilenet_v2", 224),
    "shufflenet_v2-1.0": Network("shufflenet_v2", 224),
    "mobilenet_v3-small": Network("pytorchcv:mobilenetv3_small_w1", 224),
    "resnet20": Network(
        "resnet20", 32, plans=("resnet-2t-a8", "resnet-1t-a8", "fx8-3"), least_correlation=0.95
    ),
}


def make(name: str, directory: Path, kinds: tuple[str, ...] = ("dbq", "onnx", "xml")) -> None:
    """Make those of the network's files that do not exist yet; `kinds`: how their names end."""
    network = NETWORKS[name]
    float32 = directory / f"{name}-float32.onnx"
    writers: dict[str, Callable[[Path], object]] = {
        **{f"{plan}.dbq": partial(_save_program, network, plan) for plan in network.plans},
        "float32.onnx": partial(_export_float, network),
        "int8.onnx": partial(_quantize_onnx, network, float32),
        "nncf.xml": partial(_quantize_openvino, network, float32),
    }
    directory.mkdir(parents=True, exist_ok=True)
    for form, write in writers.items():
        path = directory / f"{name}-{form}"
        if not path.exists() and form.endswith(kinds):
            say(f"{path.name} ...")
            write(path)


def inputs(network: Network, count: int, seed: int = SEED) -> tuple[npt.NDArray[np.uint8], Floats]:
    """Random images, uint8 [N, H, W, C], and the same as float planes, [N, C, H, W]."""
    rng = np.random.default_rng(seed)
    # Blocks of colour with noise: white noise alone would look the same to every filter.
    coarse = rng.uniform(0, 255, (count, 4, 4, 3))
    zoom = network.pixels // 4
    pixels = coarse.repeat(zoom, axis=1).repeat(zoom, axis=2)
    pixels = np.clip(pixels + rng.normal(0, 25, pixels.shape), 0, 255)
    images = pixels.astype(np.uint8)
    return images, np.ascontiguousarray((images / np.float32(255)).transpose(0, 3, 1, 2))


def zeros(path: Path) -> list[float]:
    """Share of zeros in each branch of the ternary layers of a .dbq file."""
    program = dbq.load_program(path)
    ternary = [op for op in program.convolutions if op.bits is None]
    branches = max((len(op.codes) for op in ternary), default=0)
    return [
        sum(int((op.codes[j] == 0).sum()) for op in ternary)
        / sum(op.codes[j].size for op in ternary)
        for j in range(branches)
    ]


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _network(network: Network, plan: str) -> tuple[nn.Module, torch.Tensor]:
    """Random weights, calibrated batch norms, quantized by `plan`."""
    torch.manual_seed(SEED)
    model = _create(network)
    examples = torch.from_numpy(inputs(network, CALIBRATION_IMAGES)[1])
    dbq.prepare(model, plan, examples[:1])
    dbq.calibrate(model, [examples])
    return model.eval(), examples


def _create(network: Network) -> nn.Module:
    library, _, name = network.model.rpartition(":")
    if not library:
        return dbq.create_model(network.model, **network.options)
    from pytorchcv.model_provider import get_model

    model: nn.Module = get_model(name, pretrained=False)
    return model


def _save_program(network: Network, plan: str, path: Path) -> None:
    model, examples = _network(network, plan)
    dbq.save(dbq.lower(model, examples[:2], report=None), path)


def _export_float(network: Network, path: Path) -> None:
    model, examples = _network(network, "fp")
    with (
        mock.patch("torch.nn.functional.channel_shuffle", _channel_shuffle),
        warnings.catch_warnings(),
    ):  # this exporter is deprecated; the new one needs one more package
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model, (examples[:1],), str(path), dynamo=False, opset_version=17,
            input_names=["x"], output_names=["y"], dynamic_axes={"x": {0: "N"}, "y": {0: "N"}},
        )  # fmt: skip


def _channel_shuffle(x: torch.Tensor, groups: int) -> torch.Tensor:
    """In operations that the exporter knows."""
    n, c, h, w = x.shape
    return x.view(n, groups, c // groups, h, w).transpose(1, 2).reshape(n, c, h, w)


def _quantize_onnx(network: Network, float32: Path, path: Path) -> None:
    from onnxruntime import quantization as q
    from onnxruntime.quantization.shape_inference import quant_pre_process

    feeds = iter([{"x": batch} for batch in inputs(network, CALIBRATION_IMAGES)[1][:, None]])

    class Reader(q.CalibrationDataReader):  # type: ignore[misc]
        def get_next(self) -> dict[str, Floats] | None:
            return next(feeds, None)

    logging.getLogger().setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as temporary:
        prepared = str(Path(temporary) / "prepared.onnx")
        quant_pre_process(str(float32), prepared, skip_symbolic_shape=True)
        q.quantize_static(
            prepared, str(path), Reader(), quant_format=q.QuantFormat.QDQ, per_channel=True,
            reduce_range=True, activation_type=q.QuantType.QUInt8, weight_type=q.QuantType.QInt8,
        )  # fmt: skip


def _quantize_openvino(network: Network, float32: Path, path: Path) -> None:
    import nncf
    import openvino
    from nncf.quantization.advanced_parameters import AdvancedQuantizationParameters, OverflowFix

    nncf.set_log_level(logging.ERROR)
    model = openvino.Core().read_model(float32)
    dataset = nncf.Dataset(inputs(network, CALIBRATION_IMAGES)[1][:, None])
    quantized = nncf.quantize(
        model, dataset, subset_size=CALIBRATION_IMAGES,
        # Reduced range: 16-bit sums of pairs must not saturate on processors without VNNI.
        advanced_parameters=AdvancedQuantizationParameters(overflow_fix=OverflowFix.ENABLE),
    )  # fmt: skip
    openvino.save_model(quantized, path, compress_to_fp16=False)
