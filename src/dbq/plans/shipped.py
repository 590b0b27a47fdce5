"""The shipped plans: the rows of the paper's tables, by name; and plans from files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dbq.errors import PlanError, UnknownPlanError
from dbq.plans.plan import FLOAT_LAYER, Clip, LayerPlan, Plan, Role
from dbq.support import toml


def load_plan(plan: Plan | str | Path) -> Plan:
    """A Plan as it is, a shipped plan by name, or a plan from a .toml file.

    >>> load_plan("dbq-2t-4").choose("anything", "pointwise")
    LayerPlan(weight=2T, input=8b)
    """
    if isinstance(plan, Plan):
        return plan
    if not isinstance(plan, str | Path):
        raise PlanError(f"a plan is a Plan, a name or a path, not a {type(plan).__name__}")
    if str(plan) in PLANS:
        return PLANS[str(plan)]
    toml.check_suffix(plan, "plan", PLANS, UnknownPlanError)
    return Plan.from_toml(toml.read_text(Path(plan), "plan", UnknownPlanError), str(plan))


def uniform_plan(
    name: str, weight: str | int, input: str | int, clip: Clip = "bn", method: str = ""
) -> Plan:
    """The same precision, by the same method, for every layer.

    >>> uniform_plan("rq-5", 5, 5).choose("conv1", "first")
    LayerPlan(weight=5b, input=5b)
    """
    return Plan(name, default=LayerPlan.of(weight, input, method), clip=clip)


def _mobilenet(
    name: str, first: LayerPlan, pointwise: LayerPlan, last: LayerPlan, clip: Clip = "bn"
) -> Plan:
    """Fixed point of 8 bits but for these roles."""
    roles: dict[Role, LayerPlan] = {"first": first, "pointwise": pointwise, "last": last}
    return Plan(name, default=LayerPlan.of(8, 8), roles=roles, clip=clip)


def _shipped() -> dict[str, Plan]:
    of = LayerPlan.of
    fp, fx8, fp_a8 = FLOAT_LAYER, of(8, 8), of("float", 8)
    plans = [
        # The rows of the paper's MobileNetV1 table. A float first layer reads the float image; a
        # float last layer in a network with 8-bit activations still reads 8-bit activations.
        Plan("fp"),
        _mobilenet("fx8-1", first=fp, pointwise=fx8, last=fp_a8, clip="relu6"),
        uniform_plan("fx8-2", 8, 8, clip="relu6"),
        uniform_plan("fx8-3", 8, 8),
        Plan("dbq-1t", roles={"pointwise": of("1T")}),
        Plan("dbq-2t-1", roles={"pointwise": of("2T")}),
        _mobilenet("dbq-2t-2", first=fp, pointwise=of("2T", 8), last=fp_a8, clip="relu6"),
        _mobilenet("dbq-2t-3", first=fp, pointwise=of("2T", 8), last=fp_a8),
        _mobilenet("dbq-2t-4", first=fx8, pointwise=of("2T", 8), last=fx8),
        # What deploys with one branch: dbq-2t-4 with 1T. Not in the paper.
        _mobilenet("dbq-1t-a8", first=fx8, pointwise=of("1T", 8), last=fx8),
        # ResNet-20: every convolution but the first is branched.
        Plan("resnet-1t", default=of("1T"), roles={"first": fp, "last": fp}),
        Plan("resnet-2t", default=of("2T"), roles={"first": fp, "last": fp}),
        Plan("resnet-1t-a8", default=of("1T", 8), roles={"first": fx8, "last": fx8}),
        Plan("resnet-2t-a8", default=of("2T", 8), roles={"first": fx8, "last": fx8}),
        # Other systems in the paper's tables: LQ-Net on ResNet-20, the rest on MobileNetV1.
        *(Plan(f"lqnet-{b}b", of(f"{b}B", method="lqnet"), {"first": fp, "last": fp})
          for b in (1, 2, 3)),
        uniform_plan("iao", 8, 8, "range", "iao"),
        *(uniform_plan(f"uniq-{b}", b, 8, "range", "uniq") for b in (4, 5, 8)),
        *(uniform_plan(f"rq-{b}", b, b, "range", "rq") for b in (5, 6)),
    ]  # fmt: skip
    return {plan.name: plan for plan in plans}


PLANS: dict[str, Plan] = _shipped()


def shipped_name(plan: Plan) -> str:
    """The name of the shipped plan that `plan` equals in all but its name, or its own name.

    >>> from dbq.plans.precision import Precision
    >>> plan = PLANS["resnet-2t"].with_method("ternary", "lqnet", weight=Precision("binary", 2))
    >>> plan.name, shipped_name(plan)
    ('resnet-2t with lqnet 2B', 'lqnet-2b')
    """
    equal = (name for name, other in PLANS.items() if replace(plan, name=name) == other)
    return next(equal, plan.name)
