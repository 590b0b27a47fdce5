"""Batch-norm statistics corrected by pairs: moved by what quantization changed, and by nothing else.

Images are never quite those of training: crops, mirroring and augmentation of a foreign network
are unknown, so statistics taken from images alone harm even a float network. The float and the
quantized network on the same images differ by quantization only:

    mean += mean_q - mean_f        var *= var_q / var_f

A network without quantized layers stays as it is, to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from dbq.model.floating import floating
from dbq.quantizers.contract import BatchNorm


class Statistics:
    """Mean and variance of each channel, over batches of any size, in float64."""

    def __init__(self) -> None:
        self.count = 0.0  # of values, or the sum of their weights
        self.mean: Tensor = torch.zeros(())
        self.square: Tensor = torch.zeros(())

    def add(self, x: Tensor, weight: Tensor | None = None) -> None:
        """A batch; `weight` says how much each of its places counts, without the channels."""
        if not x.numel():
            return
        n: float = x.numel() // x.shape[1]
        if weight is None:
            var, mean = torch.var_mean(x, [0, *range(2, x.ndim)], correction=0)
            mean, square = mean.double(), var.double() + mean.double().square()
        else:
            n, flat = float(weight.sum()), x.movedim(1, -1).reshape(-1, x.shape[1]).double()
            shares = weight.flatten().double() / n
            mean, square = shares @ flat, shares @ flat.square()
        share = n / (self.count + n)
        # Not lerp: from nothing, the first batch must arrive exactly.
        self.mean = mean if not self.count else self.mean + share * (mean - self.mean)
        self.square = square if not self.count else self.square + share * (square - self.square)
        self.count += n

    @property
    def var(self) -> Tensor:
        return (self.square - self.mean.square()).clamp(min=0)


def move_statistics(
    norm: BatchNorm, of_float: Statistics, of_quantized: Statistics, variance: bool = True
) -> None:
    """Move running statistics by a pair; a channel that is constant in either keeps its variance."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    if not of_float.count or not of_quantized.count:
        return
    norm.running_mean += (of_quantized.mean - of_float.mean).to(norm.running_mean)
    if not variance:
        return
    before, after = of_float.var, of_quantized.var
    ratio = torch.where((before > 0) & (after > 0), after / before, 1.0)
    norm.running_var *= ratio.to(norm.running_var)


class PairedNorms:
    """The norms of a quantized model, corrected in the order a pass reaches them.

    For the rest of a batch's own pass a norm has the statistics corrected by this batch, so that later
    ones see what they will see. At the end each is moved by the statistics of all batches.
    """

    def __init__(self, model: nn.Module, norms: Iterable[BatchNorm]) -> None:
        self.model = model
        self.before = {norm: self._state(norm) for norm in norms}
        self.pairs = {norm: (Statistics(), Statistics()) for norm in self.before}

    @staticmethod
    def _state(norm: BatchNorm) -> tuple[Tensor, Tensor]:
        assert norm.running_mean is not None
        assert norm.running_var is not None
        return norm.running_mean.clone(), norm.running_var.clone()

    def run(self, *arguments: Tensor) -> None:
        """One batch through the float and through the quantized network."""
        self.restore()
        of_batch = {norm: Statistics() for norm in self.before}
        with floating(self.model):
            self._watched(arguments, lambda norm, x: of_batch[norm].add(x))
        for norm, pair in self.pairs.items():
            _join(pair[0], of_batch[norm])
        quantized = {norm: Statistics() for norm in self.before}

        def correct(norm: BatchNorm, x: Tensor) -> None:
            quantized[norm].add(x)
            self._restore(norm)
            move_statistics(norm, of_batch[norm], quantized[norm])

        self._watched(arguments, correct)
        for norm, pair in self.pairs.items():
            _join(pair[1], quantized[norm])

    def _watched(
        self, arguments: tuple[Tensor, ...], see: Callable[[BatchNorm, Tensor], None]
    ) -> None:
        def hook(norm: Any, args: tuple[Tensor, ...]) -> None:
            see(norm, args[0])

        handles = [norm.register_forward_pre_hook(hook) for norm in self.before]
        try:
            self.model(*arguments)
        finally:
            for handle in handles:
                handle.remove()

    def _restore(self, norm: BatchNorm) -> None:
        assert norm.running_mean is not None
        assert norm.running_var is not None
        mean, var = self.before[norm]
        norm.running_mean.copy_(mean)
        norm.running_var.copy_(var)

    def restore(self) -> None:
        for norm in self.before:
            self._restore(norm)

    def finish(self) -> None:
        """Move every norm by all batches."""
        self.restore()
        for norm, pair in self.pairs.items():
            move_statistics(norm, *pair)


def _join(total: Statistics, part: Statistics) -> None:
    if not part.count:
        return
    share = part.count / (total.count + part.count)
    first = not total.count
    total.mean = part.mean if first else total.mean + share * (part.mean - total.mean)
    total.square = part.square if first else total.square + share * (part.square - total.square)
    total.count += part.count
