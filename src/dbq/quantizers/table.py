"""All quantizers by name. A new method is one module plus one entry in QUANTIZERS."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping

from torch import Tensor, nn

from dbq.errors import PlanError, closest
from dbq.plans.plan import USUAL_METHOD, LayerPlan, Option
from dbq.plans.precision import Kind, Precision
from dbq.quantizers.contract import InputQuantizer, WeightQuantizer
from dbq.quantizers.dbq.branch import BranchQuantizer
from dbq.quantizers.fixed import FixedPointQuantizer
from dbq.quantizers.methods.abcnet import AbcNetQuantizer
from dbq.quantizers.methods.bnn import BnnQuantizer
from dbq.quantizers.methods.iao import IaoQuantizer
from dbq.quantizers.methods.lqnet import LqNetInputQuantizer, LqNetQuantizer
from dbq.quantizers.methods.lsq import LsqInputQuantizer, LsqQuantizer
from dbq.quantizers.methods.mixed import MixedQuantizer
from dbq.quantizers.methods.pact import PactInputQuantizer
from dbq.quantizers.methods.qnet import QNetQuantizer
from dbq.quantizers.methods.rq import RelaxedQuantizer
from dbq.quantizers.methods.ttq import TtqQuantizer
from dbq.quantizers.methods.twn import TwnQuantizer
from dbq.quantizers.methods.uniq import UniqQuantizer
from dbq.quantizers.methods.xnor import XnorQuantizer

# method name -> (the kind of precision it makes, its class)
QUANTIZERS: dict[str, tuple[Kind, Callable[..., WeightQuantizer]]] = {
    "dbq": ("ternary", BranchQuantizer),
    "fixed": ("fixed", FixedPointQuantizer),
    "iao": ("fixed", IaoQuantizer),
    "lqnet": ("binary", LqNetQuantizer),
    "abcnet": ("binary", AbcNetQuantizer),
    "bnn": ("binary", BnnQuantizer),
    "xnor": ("binary", XnorQuantizer),
    "twn": ("ternary", TwnQuantizer),
    "ttq": ("ternary", TtqQuantizer),
    "lsq": ("fixed", LsqQuantizer),
    "qnet": ("ternary", QNetQuantizer),
    "rq": ("fixed", RelaxedQuantizer),
    "mixed": ("fixed", MixedQuantizer),
    "uniq": ("fixed", UniqQuantizer),
}

# the plan's rule for activations -> the method's quantizer of a layer's input
INPUT_QUANTIZERS: dict[str, Callable[[Precision, bool], InputQuantizer]] = {
    "pact": PactInputQuantizer,
    "lsq": LsqInputQuantizer,
    "lqnet": LqNetInputQuantizer,
}


def weight_quantizer(
    layer_plan: LayerPlan, weight: Tensor, batch_norm: nn.Module | None = None, fit: bool = True
) -> WeightQuantizer | None:
    """The quantizer a plan asks for, fitted to `weight` if `fit`; None for float weights.

    `batch_norm` is the one that reads the layer's output, for methods that fold it.
    """
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
    _check_options(method, make, layer_plan.options)
    quantizer = make(precision, len(weight), **layer_plan.options).to(weight.device)
    quantizer.follow(batch_norm)
    if fit:
        quantizer.initialise(weight)
    return quantizer if weight.requires_grad else quantizer.requires_grad_(False)  # stays frozen


def _check_options(
    method: str, make: Callable[..., WeightQuantizer], options: Mapping[str, Option]
) -> None:
    """An option must be a keyword of the constructor that has a default, and of its default's type."""
    signature = inspect.signature(make).parameters
    known = {k: p.default for k, p in signature.items() if p.default is not p.empty}
    for name, value in options.items():
        if name not in known:
            raise PlanError(f"method {method!r} has no option {name!r}; {closest(name, known)}")
        wanted = type(known[name])
        if type(value) is not wanted:
            raise PlanError(f"option {name} = {value!r} of {method!r}: expected {wanted.__name__}")
