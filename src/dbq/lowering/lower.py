"""lower: a trained, quantized network to an integer program. The only bridge between the halves.

reading.py      a recorded run (model/reading/recording.py) again, on operands instead of tensors;
                handlers/ know the functions
operands.py     a value, or a value seen through padding, views and slices
values.py       what a value is, and the operation that computes it
emission.py     which values are read in which representations; then tensors and operations
ratios.py       scales of branches rounded to whole multiples of one
agreement.py    the program against the network
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from dbq.deploy.program import Program
from dbq.deploy.tensors import Grid, Shape
from dbq.errors import LoweringError
from dbq.lowering.agreement import compare
from dbq.lowering.emission import emit
from dbq.lowering.ratios import weights_with_whole_ratios
from dbq.lowering.reading import read
from dbq.lowering.values import Image
from dbq.model.pixels import denormalise, normalise
from dbq.model.reading.recording import record
from dbq.support.toml import shown
from dbq.version import __version__

# Images that torch and program are compared on: every tensor of both is in memory at once.
MOST_COMPARED = 8


def lower(
    model: nn.Module,
    example_input: Tensor,
    *,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    name: str = "",
    classes: Sequence[str] = (),
    whole_ratios: bool = True,
    report: Callable[[str], None] | None = print,
) -> Program:
    """The integer program of a prepared, trained network.

    It reads uint8 images [N, H, W, C]. `mean` and `std` (0 and 1 by default) turn them into the input of
    the network, (pixel / 255 - mean) / std for each channel, and become part of the program. The program
    is compared with the network on the first images of `example_input` [N, C, H, W], such a normalised
    input, at most MOST_COMPARED of them; `report` gets the outcome as a line of text.
    `classes` names the outputs, for `dbq run` and `dbq eval`.

    With `whole_ratios`, the scales of a kernel's branches are rounded to whole multiples of one step,
    such as 3 : 2, which is much faster (ratios.py). The program is then compared with the network so
    rounded, and the report says how far its weights moved.

    >>> import dbq
    >>> model = dbq.create_model("mobilenet_v1", num_classes=10, width=0.25, small_input=True)
    >>> images = torch.rand(2, 3, 32, 32)
    >>> _ = dbq.prepare(model, "dbq-2t-4", images), dbq.calibrate(model, [images])
    >>> lower(model, images, report=None)
    Program('MobileNetV1', image 3x32x32, 30 operations)
    """
    if example_input.ndim != 4:
        raise LoweringError(
            f"the example input is {list(example_input.shape)}, expected [N, C, H, W]"
        )
    channels = example_input.shape[1]
    mean = tuple(mean) if mean is not None else (0.0,) * channels
    std = tuple(std) if std is not None else (1.0,) * channels
    if not len(mean) == len(std) == channels or min(std) <= 0:
        raise LoweringError(
            f"mean {mean} and std {std}: expected {channels} numbers each, std over 0"
        )
    was_training, device = model.training, example_input.device
    model.eval()
    try:
        images = denormalise(example_input[:MOST_COMPARED], mean, std)
        x = normalise(torch.from_numpy(images).permute(0, 3, 1, 2), mean, std).to(device)
        with weights_with_whole_ratios(model, whole_ratios) as moved:
            recording = record(model, torch.cat([x[:1], x[-1:]]))
            values = read(recording, _image(Shape(*x.shape[1:]), mean, std), whole_ratios)
            facts = {"mean": list(mean), "std": list(std), "made_by": f"dbq {__version__}"}
            emitted = emit(name or type(model).__name__, values, facts)
            named = _class_names(emitted.program, classes)
            agreement = compare(model, recording, emitted, x, images, moved)
    finally:
        model.train(was_training)
    if report is not None:
        report(str(agreement))
    return emitted.program.with_facts(agreement=agreement.to_json(), **named)


def _class_names(program: Program, classes: Sequence[str]) -> dict[str, list[str]]:
    """The fact that names the outputs, unless no names are given."""
    if not classes:
        return {}
    count = program.tensors[program.output].shape.channels
    wrong = isinstance(classes, str) or any(type(name) is not str for name in classes)
    if wrong or len(classes) != count or len(set(classes)) != count:
        raise LoweringError(f"classes {shown(classes)}: expected {count} different strings")
    return {"classes": list(classes)}


def _image(shape: Shape, mean: Sequence[float], std: Sequence[float]) -> Image:
    def table(grid: Grid) -> npt.NDArray[np.uint8]:
        """What the input quantizer makes of each pixel value, by torch's own arithmetic."""
        pixels = torch.arange(256, dtype=torch.uint8).expand(shape.channels, 1, 256)
        x = normalise(pixels, mean, std)
        codes = (x / torch.tensor(grid.scale)).clamp(grid.low, grid.high).round()
        return codes.to(torch.int16).numpy()[:, 0].astype(np.uint8)

    # (byte / 255 - mean) / std
    scales, offsets = 1 / (255 * np.array(std)), -np.array(mean) / np.array(std)
    return Image(shape, table, scales, offsets)
