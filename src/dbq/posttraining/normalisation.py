"""Whether images are normalised as those of training were: the first batch norm remembers.

Its running variance is that of the training images, behind a convolution. On images scaled otherwise it
sees another: pixels from 0 to 255 vary some fifty times as much, pixels from 0 to 1 a quarter as much.
"""

from __future__ import annotations

from torch import Tensor, nn

from dbq.errors import DataError
from dbq.model.statistics import Statistics
from dbq.posttraining.agreement import run
from dbq.quantizers.contract import BatchNorm

IMAGES = 32
NOTED, REFUSED = 2.0, 10.0  # times as much, or as little


def check_normalised(model: nn.Module, images: Tensor) -> tuple[str, ...]:
    """A note if the images vary otherwise than those of training did; an error if by far.

    A network without batch norms, or with one that was never trained, says nothing.
    """
    found = spread(model, images[:IMAGES])
    if found is None or 1 / NOTED <= found[1] <= NOTED:
        return ()
    name, times = found
    problem = (
        f"the images vary {times:.2g} times as much as those of training, judged by batch norm {name}: "
        "are they normalised in the same way?"
    )
    if not 1 / REFUSED <= times <= REFUSED:
        raise DataError(problem)
    return (problem,)


def spread(model: nn.Module, images: Tensor) -> tuple[str, float] | None:
    """The first batch norm, and how much more its input varies than in training (the median channel)."""
    names = {m: name for name, m in model.named_modules() if isinstance(m, BatchNorm)}
    first: list[BatchNorm] = []
    seen = Statistics()

    def hook(norm: BatchNorm, args: tuple[Tensor, ...]) -> None:
        if not first:
            first.append(norm)
        if norm is first[0]:
            seen.add(args[0])

    handles = [norm.register_forward_pre_hook(hook) for norm in names]
    try:
        run(model, images)
    finally:
        for handle in handles:
            handle.remove()
    if not first or first[0].running_var is None or not _is_trained(first[0]):
        return None
    ratio = seen.var / (first[0].running_var.double() + first[0].eps)
    return names[first[0]], float(ratio.median().sqrt())


def _is_trained(norm: BatchNorm) -> bool:
    assert norm.running_mean is not None
    assert norm.running_var is not None
    return bool((norm.running_mean != 0).any() or (norm.running_var != 1).any())
