"""calibrate: batch-norm statistics and activation ranges of the hard network, without labels."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from dbq.errors import DbqError
from dbq.model.modes import evaluating
from dbq.quantizers.contract import BatchNorm, InputQuantizer


@torch.no_grad()
def calibrate(model: nn.Module, batches: Iterable[Any], inputs: int = 1) -> int:
    """Estimate batch-norm statistics and running ranges again; returns the number of batches.

    A batch is an input tensor, or a tuple or list whose first `inputs` elements are the arguments
    of the model (what follows, such as labels, is ignored).
    Quantizing shifts what each batch norm sees; re-estimating undoes the shift without training.
    Statistics and ranges are plain averages over the batches, weights are hard. A layer that no batch
    reaches keeps its statistics, and an error leaves everything as it was.

    >>> net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    >>> calibrate(net, [torch.randn(16, 3, 8, 8), torch.randn(16, 3, 8, 8)])
    2
    >>> net[1].running_mean.abs().max() > 0
    tensor(True)
    """
    if isinstance(batches, Tensor):
        raise DbqError("calibrate takes batches, not one tensor: give a list of them, [images]")
    norms = [m for m in model.modules() if isinstance(m, BatchNorm) and m.track_running_stats]
    quantizers = [m for m in model.modules() if isinstance(m, InputQuantizer)]
    before = [(m, copy.deepcopy(m.state_dict()), m.momentum) for m in (*norms, *quantizers)]
    count = 0
    try:
        with evaluating(model):
            for norm in norms:
                norm.reset_running_stats()
                norm.momentum = None  # None means: a plain average
                norm.train()
            for quantizer in quantizers:
                if not quantizer.is_learned:
                    quantizer.reset()
                quantizer.train()
            for count, batch in enumerate(batches, start=1):
                for quantizer in quantizers:
                    quantizer.momentum = 1 / count  # a plain average here too
                model(*_arguments(batch, inputs))
            if not count:
                raise DbqError("calibrate got no batches: give at least one")
    except BaseException:
        for module, state, _ in before:
            module.load_state_dict(state)
        raise
    finally:
        for module, state, momentum in before:
            module.momentum = momentum
            is_norm = isinstance(module, BatchNorm)
            if not (module.num_batches_tracked if is_norm else module.has_seen):
                module.load_state_dict(state)
    return count


def _arguments(batch: Any, inputs: int) -> list[Tensor]:
    arguments = list(batch[:inputs]) if isinstance(batch, tuple | list) else [batch]
    for argument in arguments:
        if not isinstance(argument, Tensor):
            raise DbqError(f"calibrate: found a {type(argument).__name__}, expected a tensor")
    return arguments
