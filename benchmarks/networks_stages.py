"""One network of the survey, from float weights to ONNX, stage by stage.

    python benchmarks/networks_stages.py NETWORK FILE SECONDS

appends a line of JSON to FILE when a stage begins and when it ends, so that benchmarks/networks.py knows
how far a process came that used up its SECONDS or crashed. Stages that need what a failed one makes
are left out.
"""

from __future__ import annotations

import json
import resource
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from networks_catalogue import build
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

import dbq
from dbq.costs.census import LayerRow
from dbq.deploy import reference
from dbq.errors import first_line
from dbq.model.pixels import normalise
from dbq.quantizers.contract import InputQuantizer

PLAN = "dbq-2t-4"
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
IMAGES = 2  # compared; training takes twice as many
# Outputs may be off by this share of their spread, and by so many times what rounding does in torch.
OFF, TIMES = 0.02, 2
DRAWS = 8  # a single one may change no code at all

Array = npt.NDArray[Any]


class DifferenceError(Exception):
    """Two that should compute the same do not."""


@dataclass
class Survey:
    """What is known of a network so far; each method is a stage, and returns what it measured."""

    name: str
    found: dict[str, Array] = field(default_factory=dict)

    def build(self) -> dict[str, Any]:
        self.model, pixels = build(self.name)
        rng = np.random.default_rng(0)
        coarse = torch.from_numpy(rng.uniform(0, 255, (2 * IMAGES, 3, 8, 8)))
        smooth = nn.functional.interpolate(coarse, (pixels, pixels), mode="bilinear")
        noise = torch.from_numpy(rng.normal(0, 16, smooth.shape))
        codes = (smooth + noise).round().clamp(0, 255).to(torch.uint8)
        self.images = normalise(codes, MEAN, STD)
        self.pixels = codes.permute(0, 2, 3, 1).contiguous().numpy()
        parameters = sum(parameter.numel() for parameter in self.model.parameters())
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            self.model.eval()(self.images[:1])
        self.macs = counter.get_total_flops() // 2
        return {"pixels": pixels, "parameters": parameters, "macs": self.macs}

    def prepare(self) -> dict[str, Any]:
        dbq.prepare(self.model, PLAN, self.images[:1])
        return {}

    def calibrate(self) -> dict[str, Any]:
        dbq.calibrate(self.model, [self.images])
        return {}

    def step(self) -> dict[str, Any]:
        groups = dbq.param_groups(self.model, weight_decay=4e-5)
        optimizer = torch.optim.SGD(groups, lr=1e-3)
        outputs = tensors(self.model.train()(self.images))
        loss = torch.stack([output.square().mean() for output in outputs.values()]).sum()
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0, error_if_nonfinite=True)
        optimizer.step()
        self.model.zero_grad()
        return {}

    def cost(self) -> dict[str, Any]:
        cost = dbq.cost(self.model, self.images[:1])
        layers = [row for row in cost.rows if isinstance(row, LayerRow)]
        quantized = sum(row.N * row.D for row in layers if not row.weight.is_float)
        branched = sum(row.N * row.D for row in layers if row.weight.is_branched)
        shares = {"quantized": quantized / self.macs, "branched": branched / self.macs}
        return {**shares, "not_counted": list(cost.not_counted)}

    def lower(self) -> dict[str, Any]:
        images = self.images[:IMAGES]
        self.program = dbq.lower(self.model.eval(), images, mean=MEAN, std=STD, report=None)
        return {"operations": len(self.program.operations)}

    def torch(self) -> dict[str, Any]:
        """The numpy reference against the prepared network: what `lower` says of it is not asked."""
        self.found = self._by_name(reference.run(self.program, self.pixels[:IMAGES]))
        with torch.no_grad():
            expected = tensors(self.model.eval()(self.images[:IMAGES]))
        if len(expected) != len(self.found):
            raise DifferenceError(f"{len(expected)} outputs in torch, {len(self.found)} here")
        difference = relative_error(self.found, expected)
        agreement = self.program.facts["agreement"]
        rate = max(agreement["different"], 1) / agreement["codes"]
        noise = max(
            relative_error(moved_codes(self.model, self.images[:IMAGES], rate, draw), expected)
            for draw in range(DRAWS)
        )
        if not difference < OFF + TIMES * noise:
            raise DifferenceError(
                f"outputs off by {difference:.3f} of their spread; torch with moved codes: {noise:.3f}"
            )
        return {"difference": difference, "noise": noise}

    def engine(self) -> dict[str, Any]:
        with TemporaryDirectory() as directory:
            path = Path(directory, "net.dbq")
            dbq.save(self.program, path)
            with dbq.load(path) as net:
                outputs = self._by_name(net(self.pixels[:IMAGES]))
            if different := self._different(outputs):
                raise DifferenceError(f"{different} outputs differ from the reference")
            return {"bytes": path.stat().st_size}

    def onnx(self) -> dict[str, Any]:
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        # It would fold scales into weights, and round differently.
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 3
        with TemporaryDirectory() as directory:
            path = dbq.export_onnx(self.program, Path(directory, "net.onnx"), form="exact")
            session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        found = session.run(None, {session.get_inputs()[0].name: self.pixels[:IMAGES]})
        outputs = dict(zip(self.found, found, strict=True))
        for name, expected in self.found.items():
            if (outputs[name].argmax(1) != expected.argmax(1)).any():
                raise DifferenceError("another top-1 than the reference")
        return {"onnx_different": self._different(outputs)}

    def _by_name(self, outputs: Any) -> dict[str, Array]:
        return outputs if isinstance(outputs, dict) else {"": outputs}

    def _different(self, outputs: dict[str, Array]) -> int:
        """How many values are not those of the reference, bit for bit."""
        pairs = [(outputs[name], expected) for name, expected in self.found.items()]
        return sum(int((one.view(np.int32) != two.view(np.int32)).sum()) for one, two in pairs)


# A stage, and the stages it needs.
STAGES: dict[str, tuple[str, ...]] = {
    "build": (),
    "prepare": ("build",),
    "calibrate": ("prepare",),
    "step": ("prepare",),
    "cost": ("prepare",),
    "lower": ("prepare", "calibrate"),
    "torch": ("lower",),
    "engine": ("torch",),
    "onnx": ("torch",),
}


def tensors(output: Any) -> dict[str, Tensor]:
    """The tensors of whatever a network returns, by name or number."""
    if isinstance(output, Tensor):
        return {"": output}
    items = output.items() if isinstance(output, Mapping) else enumerate(output)
    return {
        f"{key}.{rest}".rstrip("."): tensor
        for key, value in items
        for rest, tensor in tensors(value).items()
    }


def moved_codes(model: nn.Module, images: Tensor, rate: float, draw: int) -> dict[str, Array]:
    """torch's outputs if a share of all codes that layers read, drawn at random, is off by one.

    That is what rounding does to an integer program: a sum near the middle between two codes may fall
    either way. In a network with random weights, such differences grow from layer to layer.
    """
    torch.manual_seed(draw)

    def move(quantizer: InputQuantizer, args: Any, output: Tensor) -> Tensor:
        grid = quantizer.grid()
        assert grid is not None
        chosen = torch.rand_like(output) < rate
        return output + grid.scale * chosen * torch.randn_like(output).sign()

    hooks = [
        m.register_forward_hook(move) for m in model.modules() if isinstance(m, InputQuantizer)
    ]
    with torch.no_grad():
        outputs = tensors(model.eval()(images))
    for hook in hooks:
        hook.remove()
    return {name: output.numpy() for name, output in outputs.items()}


def relative_error(found: dict[str, Array], expected: dict[str, Tensor]) -> float:
    """Root mean square of the difference as a share of the standard deviation, of the worst output."""
    errors = []
    for values, tensor in zip(found.values(), expected.values(), strict=True):
        target = tensor.double().numpy()
        difference = values.reshape(target.shape) - target
        errors.append(np.sqrt(np.square(difference).mean()) / max(target.std(), 1e-30))
    return float(max(errors))


def attempt(stage: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What a stage measured, with its seconds, or why it failed."""
    start = time.process_time()
    try:
        return {**stage(), "seconds": time.process_time() - start}
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        failure = {
            "error": type(error).__name__,
            "message": first_line(error),
            "named": isinstance(error, dbq.DbqError),
            "at": f"{Path(frame.filename).name}:{frame.lineno}",
        }
        return {"failure": failure, "seconds": time.process_time() - start}


def main() -> None:
    name, file, seconds = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 5))
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    survey, done = Survey(name), set[str]()
    with Path(file).open("a", encoding="utf-8") as out:
        for stage, needed in STAGES.items():
            if done.issuperset(needed):
                print(json.dumps({"begins": stage}), file=out, flush=True)
                result = attempt(getattr(survey, stage))
                print(json.dumps({"stage": stage, **result}), file=out, flush=True)
                if "failure" not in result:
                    done.add(stage)


if __name__ == "__main__":
    main()
