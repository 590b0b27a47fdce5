"""calibrate: batch-norm statistics and activation ranges of the hard network, without labels."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from dbq.errors import DbqError
from dbq.model.modes import evaluating
from dbq.model.statistics import PairedNorms
from dbq.quantizers.contract import BatchNorm, InputQuantizer

HowNorms = Literal["pairs", "estimate", "keep"]


@torch.no_grad()
def calibrate(
    model: nn.Module, batches: Iterable[Any], inputs: int = 1, *, statistics: HowNorms = "pairs"
) -> int:
    """Fit batch-norm statistics and running ranges to the hard network; returns the number of batches.

    A batch is an input tensor, or a tuple or list whose first `inputs` elements are the arguments
    of the model (what follows, such as labels, is ignored).
    Quantizing shifts what each batch norm sees. By "pairs", its statistics are moved by the difference
    between the quantized and the float network on these images: right after `prepare`, whatever the
    images. By "estimate", they become those of the images: after training, which has moved weights and
    codes apart on purpose, and on images augmented as in training. "keep" leaves them as they are: only
    ranges are fitted.
    Ranges are plain averages over the batches, weights are hard. A layer that no batch reaches keeps
    its statistics, and an error leaves everything as it was.

    >>> net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    >>> batches = [torch.randn(16, 3, 8, 8), torch.randn(16, 3, 8, 8)]
    >>> calibrate(net, batches), net[1].running_mean  # nothing is quantized
    (2, tensor([0., 0., 0., 0.]))
    >>> _ = calibrate(net, batches, statistics="estimate")
    >>> net[1].running_mean.abs().max() > 0
    tensor(True)
    """
    if isinstance(batches, Tensor):
        raise DbqError("calibrate takes batches, not one tensor: give a list of them, [images]")
    if statistics not in get_args(HowNorms):
        raise DbqError(f"calibrate: no statistics {statistics!r}; expected pairs, estimate or keep")
    norms = [m for m in model.modules() if isinstance(m, BatchNorm) and m.track_running_stats]
    quantizers = [m for m in model.modules() if isinstance(m, InputQuantizer)]
    before = [(m, copy.deepcopy(m.state_dict()), m.momentum) for m in (*norms, *quantizers)]
    count = 0
    try:
        with evaluating(model):
            for quantizer in quantizers:
                if not quantizer.is_learned:
                    quantizer.reset()
                quantizer.train()
            pairs = PairedNorms(model, norms) if statistics == "pairs" else None
            if statistics == "estimate":
                _let_estimate(norms)
            for count, batch in enumerate(batches, start=1):
                for quantizer in quantizers:
                    quantizer.momentum = 1 / count  # a plain average here too
                (model if pairs is None else pairs.run)(*_arguments(batch, inputs))
            if not count:
                raise DbqError("calibrate got no batches: give at least one")
            if pairs is not None:
                pairs.finish()
    except BaseException:
        for module, state, _ in before:
            module.load_state_dict(state)
        raise
    finally:
        for module, state, momentum in before:
            module.momentum = momentum
            if not _reached(module, statistics):
                module.load_state_dict(state)
    return count


def _reached(module: nn.Module, statistics: HowNorms) -> bool:
    """Whether a batch has come by, so that there is a new state to keep."""
    if isinstance(module, InputQuantizer):
        return module.has_seen
    return statistics != "estimate" or bool(module.num_batches_tracked)


def _let_estimate(norms: Iterable[BatchNorm]) -> None:
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # None means: a plain average
        norm.train()


def _arguments(batch: Any, inputs: int) -> list[Tensor]:
    arguments = list(batch[:inputs]) if isinstance(batch, tuple | list) else [batch]
    for argument in arguments:
        if not isinstance(argument, Tensor):
            raise DbqError(f"calibrate: found a {type(argument).__name__}, expected a tensor")
    return arguments
