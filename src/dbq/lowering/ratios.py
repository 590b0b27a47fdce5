"""A model in eval() as it is deployed: with branch scales in whole ratios (quantizers/ratios.py)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn

from dbq.quantizers.contract import WeightQuantizer
from dbq.quantizers.frozen import Branches
from dbq.quantizers.ratios import can_be_whole, whole_ratios


@contextmanager
def weights_with_whole_ratios(model: nn.Module, enabled: bool = True) -> Iterator[list[Tensor]]:
    """The model with rounded scales in eval(); yields how far the weights of each layer moved.

    That is a share of the norm of each kernel, [K], and known once the layer ran.
    """
    moved: dict[nn.Module, Tensor] = {}
    shares: list[Tensor] = []

    def replace(quantizer: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor | None:
        assert isinstance(quantizer, WeightQuantizer)
        frozen = quantizer.freeze(args[0])
        if not can_be_whole(frozen):
            return None
        assert isinstance(frozen, Branches)
        scales = whole_ratios(frozen).scales.to(frozen.scales)
        rounded = Branches(frozen.codes, scales).weight.to(output)
        if quantizer not in moved:
            before, after = output.flatten(1).double(), rounded.flatten(1).double()
            norm = before.norm(dim=1).clamp_min(1e-30)
            moved[quantizer] = (after - before).norm(dim=1) / norm
            shares.append(moved[quantizer].cpu())
        return rounded

    with ExitStack() as hooks:
        for module in model.modules() if enabled else ():
            if isinstance(module, WeightQuantizer) and module.precision.is_branched:
                hooks.callback(module.register_forward_hook(replace).remove)
        yield shares
