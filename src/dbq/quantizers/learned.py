"""What methods that learn a step or a range share."""

from __future__ import annotations

import torch
from torch import Tensor

from dbq.quantizers.contract import straight_through


def positive(parameter: Tensor, smallest: float) -> Tensor:
    """|p|, at least `smallest`; its gradient is the sign of p (1 at zero), below `smallest` too.

    Nothing keeps an optimizer from stepping over zero, and where a gradient vanished the parameter
    would stay for ever.

    >>> positive(torch.tensor([-2.0, 0.0, 3.0]), smallest=0.5)
    tensor([2.0000, 0.5000, 3.0000])
    """
    size = torch.where(parameter < 0, -parameter, parameter)
    return straight_through(size, size.detach().clamp(min=smallest))
