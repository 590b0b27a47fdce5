"""dbq: ternary-branch quantization for lightweight CNNs.

    import dbq
    summary = dbq.prepare(model, "dbq-2t-4", example_input)
    dbq.calibrate(model, batches)
    print(dbq.cost(model, example_input))

Names are imported when first used, so that `import dbq` costs nothing and the deployment half of the
package works without torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dbq.version import __version__

if TYPE_CHECKING:
    from dbq.bit_search import search_plan
    from dbq.calibration import calibrate
    from dbq.costs import Cost, cost
    from dbq.decomposition import Branches, branches
    from dbq.errors import DbqError
    from dbq.fileformat import load_program, save
    from dbq.lowering import lower
    from dbq.models import create_model
    from dbq.onnx_export import export_onnx
    from dbq.optimizer import param_groups
    from dbq.plan import PLANS, LayerPlan, Plan, load_plan
    from dbq.preparation import Summary, prepare
    from dbq.program import Program
    from dbq.runtime.native import Net, load
    from dbq.schedule import TemperatureSchedule, set_progress

_HOME = {
    "Branches": "dbq.decomposition",
    "branches": "dbq.decomposition",
    "search_plan": "dbq.bit_search",
    "calibrate": "dbq.calibration",
    "Cost": "dbq.costs",
    "cost": "dbq.costs",
    "DbqError": "dbq.errors",
    "load_program": "dbq.fileformat",
    "save": "dbq.fileformat",
    "lower": "dbq.lowering",
    "create_model": "dbq.models",
    "export_onnx": "dbq.onnx_export",
    "param_groups": "dbq.optimizer",
    "PLANS": "dbq.plan",
    "LayerPlan": "dbq.plan",
    "Plan": "dbq.plan",
    "load_plan": "dbq.plan",
    "Summary": "dbq.preparation",
    "prepare": "dbq.preparation",
    "Program": "dbq.program",
    "Net": "dbq.runtime.native",
    "load": "dbq.runtime.native",
    "TemperatureSchedule": "dbq.schedule",
    "set_progress": "dbq.schedule",
}

__all__ = [
    "PLANS",
    "Branches",
    "Cost",
    "DbqError",
    "LayerPlan",
    "Net",
    "Plan",
    "Program",
    "Summary",
    "TemperatureSchedule",
    "__version__",
    "branches",
    "calibrate",
    "cost",
    "create_model",
    "export_onnx",
    "load",
    "load_plan",
    "load_program",
    "lower",
    "param_groups",
    "prepare",
    "save",
    "search_plan",
    "set_progress",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'dbq' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
