"""MobileNetV2 with weights of a few bits by a public tool, Brevitas, on the same images.

    python benchmarks/post_training_peers.py [--only METHOD] [--bits 3] [--images 256] [--tested N]
                                             [--imagenet DIR] [--weights DIR]

Weights of pointwise layers get 3 and 4 bits, one scale for each kernel; all others get 8, and so do
activations: what plan dbq-2t-4 has, with fixed point where it has branches. Images for the fit are the
first 256 of benchmarks/post_training.py: Brevitas runs all of them again for every layer. Needs it in an
environment beside dbq; what is missing is named and skipped:

    pip install -c constraints.txt brevitas

A row is saved when it is measured and kept by later calls for other rows.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
from machine import headline, options, save
from post_training import CASES, earlier, some_images, top1
from tabular import RESULTS, ROOT, result, show
from torch import Tensor, nn

import dbq
from dbq.data.options import DataOptions
from dbq.data.split import Split
from dbq.data.table import load_data
from dbq.training.processes.memory import keep_freed_memory

NETWORK = "mobilenet_v2"
BATCH = 50
RANGE_IMAGES = 200  # percentiles of all pixels take long, and ReLU6 bounds most of them
COLUMNS = {"method": "{method}", "bits": "{bits}", "top-1": "{top1:.2f}",
           "difference": "{difference:+.2f}", "seconds": "{seconds:.0f}"}  # fmt: skip


def batches(images: Tensor, size: int = BATCH) -> list[tuple[Tensor, Tensor]]:
    """With labels of zero: loaders of these tools give pairs, and the fit does not read them."""
    return [(part, torch.zeros(len(part), dtype=torch.long)) for part in torch.split(images, size)]


def quantized(model: nn.Module, images: Tensor, bits: int, by_error: bool) -> nn.Module:
    """By Brevitas: batch norms merged, weights rounded, ranges of activations calibrated.

    Scales of kernels from the largest weight, or `by_error` from the least squared one.
    """
    from brevitas.core.scaling.standalone import ParameterFromStatsFromParameterScaling as Fixed
    from brevitas.graph.calibrate import calibration_mode
    from brevitas.graph.quantize import layerwise_quantize, preprocess_for_quantize
    from brevitas.nn import QuantConv2d, QuantLinear
    from brevitas.quant import (
        Int8WeightPerChannelFloat,
        Int8WeightPerChannelFloatMSE,
        ShiftedUint8ActPerTensorFloat,
    )

    model = preprocess_for_quantize(model, relu6_to_relu=False)
    layers = {name: m for name, m in model.named_modules() if isinstance(m, nn.Conv2d | nn.Linear)}
    pointwise = {name for name, layer in layers.items() if is_pointwise(layer)}
    weight = Int8WeightPerChannelFloatMSE if by_error else Int8WeightPerChannelFloat
    for width, others in ((bits, set(layers) - pointwise), (8, pointwise)):
        how = {"input_quant": ShiftedUint8ActPerTensorFloat, "return_quant_tensor": False,
               "weight_quant": weight.let(bit_width=width, scaling_impl=Fixed)}  # fmt: skip
        table = {nn.Conv2d: (QuantConv2d, how), nn.Linear: (QuantLinear, how)}
        model = layerwise_quantize(model, table, name_blacklist=sorted(others))
    model.eval()
    with torch.no_grad(), calibration_mode(model):
        for part, _ in batches(images[:RANGE_IMAGES]):
            model(part)
    with torch.no_grad():
        model(
            images[:1]
        )  # calibration leaves weights alone: the first pass after it finds their scales
    return model


def is_pointwise(layer: nn.Module) -> bool:
    return isinstance(layer, nn.Conv2d) and layer.kernel_size == (1, 1)


@torch.no_grad()
def correct_biases(model: nn.Module, images: Tensor) -> None:
    from brevitas.graph.calibrate import bias_correction_mode

    with bias_correction_mode(model):
        for part, _ in batches(images):
            model(part)


def rounded(model: nn.Module, images: Tensor, bits: int) -> nn.Module:
    return quantized(model, images, bits, by_error=False)


def rounded_by_error(model: nn.Module, images: Tensor, bits: int) -> nn.Module:
    model = quantized(model, images, bits, by_error=True)
    correct_biases(model, images)
    return model


@torch.no_grad()
def gptq(model: nn.Module, images: Tensor, bits: int) -> nn.Module:
    """Columns rounded one by one with the error handed on (Frantar et al., 2023)."""
    from brevitas.graph.gptq import gptq_mode

    model = quantized(model, images, bits, by_error=True)
    with pointwise_only(gptq_mode)(model, act_order=True, use_quant_activations=True) as fit:
        _layer_by_layer(fit, images)
    correct_biases(model, images)
    return model


@torch.no_grad()
def qronos(model: nn.Module, images: Tensor, bits: int) -> nn.Module:
    """The same against the outputs that the float network has (Zhang et al., 2025)."""
    from functools import partial

    from brevitas.graph.gpfq import gpfq_mode
    from brevitas.graph.qronos import Qronos

    model = quantized(model, images, bits, by_error=True)
    mode, method = pointwise_only(gpfq_mode), partial(Qronos, alpha=1e-6)
    with mode(model, act_order=True, algorithm_impl=method) as fit:
        _layer_by_layer(fit, images)
    correct_biases(model, images)
    return model


def pointwise_only(mode: Any) -> Any:
    """Layers of 8 bits stay rounded: to unfold depthwise ones channel by channel would take hours."""

    class Pointwise(mode):  # type: ignore[misc]
        def _is_module_supported(self, module: nn.Module) -> bool:
            return is_pointwise(module) and super()._is_module_supported(module)

    return Pointwise


def _layer_by_layer(fit: Any, images: Tensor) -> None:
    for _ in range(fit.num_layers):
        for part, _ in batches(images):
            fit.model(part)
        fit.update()


@torch.no_grad()
def tested(model: nn.Module, test: Split, chosen: Tensor) -> float:
    """Top-1, with weights quantized once."""
    from brevitas.export.inference import quant_inference_mode

    with quant_inference_mode(model):
        model(next(iter(test.batches([chosen[:1]]))).images)
        return top1(model, test, chosen)


METHODS: dict[str, Callable[[nn.Module, Tensor, int], nn.Module]] = {
    "rounded": rounded,
    "rounded by error": rounded_by_error,
    "gptq": gptq,
    "qronos": qronos,
}


def main() -> None:
    arguments = options(
        __doc__, only="", bits=0, images=256, tested=0, imagenet=ROOT / "data/imagenet",
        weights=ROOT / "data",
    ).parse_args()  # fmt: skip
    keep_freed_memory()
    torch.set_num_threads(1)
    print(headline())
    try:
        versions = {"brevitas": version("brevitas")}
    except PackageNotFoundError:
        print("skipped: Brevitas is not installed (see --help)")
        return
    case = CASES[NETWORK]
    try:
        weights = arguments.weights / case.file
        train, test = load_data(DataOptions(case.data, str(arguments.imagenet), *case.pixels))
        network = dbq.create_model(NETWORK, weights=weights, **case.options).eval()
    except dbq.DbqError as problem:
        print(f"skipped: {problem}")
        return
    chosen = torch.arange(0, len(test), max(1, len(test) // (arguments.tested or len(test))))
    images = some_images(train, arguments.images)
    known = [r["float"] for r in earlier() if (r["network"], r["tested"]) == (NETWORK, len(chosen))]
    of_float = known[0] if known else top1(network, test, chosen)
    for method, quantize in METHODS.items():
        if arguments.only not in (method, ""):
            continue
        for bits in [arguments.bits] if arguments.bits else [3, 4]:
            start = time.process_time()
            model = quantize(copy.deepcopy(network), images, bits)
            seconds = time.process_time() - start
            right = tested(model, test, chosen)
            row = {"method": method, "bits": bits, "images": len(images), "tested": len(chosen),
                   "float": of_float, "top1": right, "difference": right - of_float,
                   "seconds": seconds}  # fmt: skip
            keep(row, versions)
            print(show(COLUMNS, [row]), flush=True)


def keep(row: dict[str, Any], versions: dict[str, str]) -> None:
    """Save the row among those of earlier calls."""
    path = RESULTS / "post_training_peers.json"
    rows = result(path.stem)["rows"] if path.exists() else []
    rows = [old for old in rows if any(old[k] != row[k] for k in ("method", "bits"))] + [row]
    save(path.stem, versions=versions, rows=rows)


if __name__ == "__main__":
    main()
