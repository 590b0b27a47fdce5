"""The contenders of benchmarks/engine.py: each loads a file and runs a batch, as fast as it can.

With `emulate` an 8-bit network is computed in float, rounding where the network says so: the result that
its 8-bit kernels should give.

    python benchmarks/engine_runtimes.py RUNTIME FILE THREADS PIXELS

measures one of them in a process of its own and prints load time and resident memory as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Run = Callable[[], Array]


def dbq(path: Path, threads: int, images: Array, floats: Array, emulate: bool = False) -> Run:
    from dbq.deploy.engine import load

    net = load(path, threads=threads)  # nothing to emulate: the result is specified to the bit
    return lambda: net(images)


def onnxruntime(
    path: Path, threads: int, images: Array, floats: Array, emulate: bool = False
) -> Run:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    if emulate:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_free_dimension_override_by_name("N", len(floats))
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    feed = {session.get_inputs()[0].name: floats}
    return lambda: session.run(None, feed)[0]


def openvino(path: Path, threads: int, images: Array, floats: Array, emulate: bool = False) -> Run:
    import openvino as ov

    core = ov.Core()
    model = core.read_model(path)
    model.reshape(list(floats.shape))
    settings: dict[str, Any] = {
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": 1,
        "ENABLE_CPU_PINNING": False,  # it would pin this thread, which all contenders share
        "INFERENCE_PRECISION_HINT": "f32",
    }
    if emulate:
        settings["LP_TRANSFORMS_MODE"] = "NO"
    request = core.compile_model(model, "CPU", settings).create_infer_request()
    request.set_input_tensor(ov.Tensor(floats, shared_memory=True))

    def run() -> Array:
        request.infer()
        return request.get_output_tensor().data  # type: ignore[no-any-return]

    return run


RUNTIMES: dict[str, Callable[..., Run]] = {
    "dbq": dbq,
    "onnxruntime": onnxruntime,
    "openvino": openvino,
}
# What loads a runtime's libraries; openvino's plugin comes with the first question about the processor.
LIBRARIES: dict[str, Callable[[], object]] = {
    "dbq": lambda: import_module("dbq.deploy.engine").library(),
    "onnxruntime": lambda: import_module("onnxruntime"),
    "openvino": lambda: import_module("openvino").Core().get_property("CPU", "FULL_DEVICE_NAME"),
}


def resident() -> float:
    """MB of this process in memory, now."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def footprint(runtime: str, path: Path, threads: int, pixels: int) -> dict[str, float]:
    """Milliseconds to the first result; MB of the library, and of the network after three images."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (1, pixels, pixels, 3), dtype=np.uint8)
    floats = np.ascontiguousarray((images / np.float32(255)).transpose(0, 3, 1, 2))
    bare = resident()
    LIBRARIES[runtime]()
    with_library = resident()
    start = time.perf_counter()
    run = RUNTIMES[runtime](path, threads, images, floats)
    run()
    load_ms = 1e3 * (time.perf_counter() - start)
    run(), run()
    megabytes = {"library_mb": with_library - bare, "network_mb": resident() - with_library}
    return {"load_ms": load_ms, **megabytes}


if __name__ == "__main__":
    name, file, count, size = sys.argv[1:]
    print(json.dumps(footprint(name, Path(file), int(count), int(size))))
