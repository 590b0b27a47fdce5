"""Weight quantizers, one method a file. A new method is a new file and a line in QUANTIZERS."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from dbq.errors import PlanError, closest
from dbq.plan import LayerPlan
from dbq.precision import Kind
from dbq.quantizers.branch import BranchQuantizer
from dbq.quantizers.fixed import FixedPointQuantizer
from dbq.quantizers.weights import WeightQuantizer

# method name -> (the kind of precision it makes, its class)
QUANTIZERS: dict[str, tuple[Kind, Callable[..., WeightQuantizer]]] = {
    "dbq": ("ternary", BranchQuantizer),
    "fixed": ("fixed", FixedPointQuantizer),
}

# the method meant when a plan gives only a precision
USUAL_METHOD: dict[Kind, str] = {"ternary": "dbq", "fixed": "fixed"}


def weight_quantizer(layer_plan: LayerPlan, weight: Tensor) -> WeightQuantizer | None:
    """The quantizer a plan asks for, fitted to `weight`; None for float weights."""
    precision = layer_plan.weight
    if precision.is_float:
        return None
    method = layer_plan.method or USUAL_METHOD.get(precision.kind, "")
    if method not in QUANTIZERS:
        if not method:
            raise PlanError(f"{precision.kind} weights ({precision}) need a method in the plan")
        raise PlanError(f"no quantizer {method!r}; {closest(method, QUANTIZERS)}")
    kind, make = QUANTIZERS[method]
    if kind != precision.kind:
        raise PlanError(f"method {method!r} makes {kind} weights, the plan asks for {precision}")
    try:
        quantizer = make(precision, len(weight), **layer_plan.options)
    except TypeError as error:
        raise PlanError(f"method {method!r}: {error}") from None
    quantizer.to(weight.device)
    quantizer.initialise(weight)
    return quantizer
