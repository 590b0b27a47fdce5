"""torchao: `quantize_` with a plan of dbq. Needs torchao.

    quantize_(model, DbqConfig("dbq-2t-4", images), whole_model)

torchao hands its handlers one module at a time, linear layers unless a filter says otherwise. A plan
asks where a layer stands in the network, so the module that is handed over has to be the network.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torchao.core.config import AOBaseConfig
from torchao.quantization import register_quantize_module_handler

from dbq.errors import LayerError
from dbq.model.roles import WeightLayer
from dbq.plans.plan import Plan
from dbq.posttraining.quantize import Budget, quantize
from dbq.posttraining.summary import Quantization


@dataclass
class DbqConfig(AOBaseConfig):  # type: ignore[misc, unused-ignore]  # untyped where it is absent
    """A plan, and images [N, C, H, W] without labels, as `dbq.quantize` takes them.

    `done` is what `dbq.quantize` reports, once `quantize_` has run.
    """

    plan: Plan | str | Path
    images: Tensor
    budget: Budget = "default"
    done: Quantization | None = field(default=None, init=False)


def whole_model(module: nn.Module, name: str) -> bool:
    """The filter that hands the network itself to the handler."""
    return name == ""


@register_quantize_module_handler(DbqConfig)  # type: ignore[untyped-decorator, unused-ignore]
def _quantize(module: nn.Module, config: Any) -> nn.Module:
    if isinstance(module, WeightLayer):
        raise LayerError(
            f"torchao handed over a single {type(module).__name__}, and plan {config.plan} has to see "
            "the network: quantize_(model, config, dbq.experiments.bridges.torchao.whole_model)"
        )
    config.done = quantize(module, config.plan, config.images, budget=config.budget)
    return module
