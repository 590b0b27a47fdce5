"""The float and the quantized network side by side, waiting at the same module."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from dbq.model.roles import WeightLayer
from dbq.model.statistics import Statistics, move_statistics
from dbq.posttraining.fitting.residuals import repair
from dbq.posttraining.fitting.stepping import Pass
from dbq.posttraining.fitting.trust import trust
from dbq.quantizers.contract import BatchNorm


@dataclass(frozen=True)
class Stop:
    """A module in the order of execution, with the size of its input.

    `corrects` is the weight layer whose output a batch norm reads, if it is one and reads it directly.
    """

    name: str
    bytes_per_image: int
    corrects: str | None


def execution_order(model: nn.Module, example: Tensor, names: set[str]) -> list[Stop]:
    """The modules of `names` in the order they run; those that run several times are left out.

    >>> net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)).eval()
    >>> [(s.name, s.corrects) for s in execution_order(net, torch.zeros(1, 1, 4, 4), {"0", "1"})]
    [('0', None), ('1', '0')]
    """
    stops: list[Stop] = []
    latest: list[tuple[str, Tensor]] = []  # the weight layer that ran last, and its output
    handles = []

    def before(name: str) -> Any:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            x = args[0] if args else next(iter(kwargs.values()))
            reads = isinstance(module, BatchNorm) and latest and latest[0][1] is x
            size = x.numel() * x.element_size() // max(1, len(x))
            stops.append(Stop(name, size, latest[0][0] if reads else None))

        return hook

    def after(name: str) -> Any:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            latest[:] = [(name, output)]

        return hook

    for name, module in model.named_modules():
        if name in names:
            handles.append(module.register_forward_pre_hook(before(name), with_kwargs=True))
        if isinstance(module, WeightLayer):
            handles.append(module.register_forward_hook(after(name)))
    try:
        with torch.no_grad():
            model(example)
    finally:
        for handle in handles:
            handle.remove()
    called = [stop.name for stop in stops]
    return [stop for stop in stops if called.count(stop.name) == 1]


class Pairs:
    """Passes of both networks on the same batches, all at the same stop.

    Early layers see large images and need few of them; later layers have many inputs and see few pixels
    of each. So batches may be added on the way: they run through what is fitted already.
    """

    def __init__(
        self,
        teacher: nn.Module,
        student: nn.Module,
        images: Tensor,
        order: Sequence[Stop],
        batch: int,
        keep: Sequence[str] = (),
    ) -> None:
        self.keep = keep
        self.teacher, self.student, self.images, self.batch = teacher, student, images, batch
        self.stops = [stop.name for stop in order]
        self.passes: list[tuple[Pass, Pass]] = []
        self.count = 0  # images under way

    def move_to(self, index: int, images: int) -> None:
        """Move on to stop number `index`, the next one, with at least this many images if there are."""
        for both in self.passes:
            for each in both:
                each.advance()
        while self.count < min(images, len(self.images)):
            part = self.images[self.count : self.count + self.batch]
            teacher = Pass(self.teacher, part, self.stops, self.keep)
            both = teacher, Pass(self.student, part, self.stops, self.keep)
            self.passes.append(both)
            self.count += len(part)
            for each in both:
                for _ in range(index + 1):
                    each.advance()
        assert all(each.name == self.stops[index] for both in self.passes for each in both)

    def inputs(self) -> Iterator[tuple[Tensor, Tensor]]:
        """What the module gets in the float and in the quantized network, batch by batch."""
        for teacher, student in self.passes:
            yield teacher.input, student.input

    def kept(self, name: str) -> Iterator[tuple[Tensor, Tensor]]:
        """What a module that is running got in both networks, batch by batch; it is in `keep`."""
        for teacher, student in self.passes:
            yield teacher.kept[name], student.kept[name]

    def close(self) -> None:
        for both in self.passes:
            for each in both:
                each.abandon()


def correct_norm(
    norm: BatchNorm, pairs: Pairs, variance: bool, shortcut: str | None = None
) -> None:
    """Move the running statistics by what quantization changed in the norm's input.

    At the end of a residual block, `shortcut`, the mean makes up for the shortcut's as well. The
    variance does not: most of the shortcut's error cannot be repaired, and would be made up for by
    noise.
    """
    of_float, of_quantized, change = Statistics(), Statistics(), Statistics()
    trusted = [trust(x, x_float) for x_float, x in pairs.inputs()]
    for (x_float, x), weight in zip(pairs.inputs(), trusted, strict=True):
        of_float.add(x_float, weight)
        of_quantized.add(x, weight)
    move_statistics(norm, of_float, of_quantized, variance)
    if shortcut is not None:
        assert norm.running_mean is not None
        for both, weight in zip(pairs.kept(shortcut), trusted, strict=True):
            change.add(repair(norm, *both), weight)
        norm.running_mean -= change.mean.to(norm.running_mean)
