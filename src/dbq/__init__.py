"""dbq: ternary-branch quantization for lightweight CNNs.

    import dbq
    summary = dbq.prepare(model, "dbq-2t-4", example_input)
    dbq.calibrate(model, batches)
    print(dbq.cost(model, example_input))

Names are imported when first used, so that `import dbq` is cheap and the deployment half of the package
works with numpy alone.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dbq.version import __version__

if TYPE_CHECKING:
    from dbq.costs.bit_search import search_plan
    from dbq.costs.rules import Cost, cost
    from dbq.deploy.csource.files import export_c
    from dbq.deploy.engine import Net, load
    from dbq.deploy.file.fileformat import load_program, save
    from dbq.deploy.onnx.export import export_onnx
    from dbq.deploy.program import Program
    from dbq.errors import DbqError
    from dbq.experiments.own_loop import Exported, export
    from dbq.experiments.photographs import read_images
    from dbq.lowering.lower import lower
    from dbq.model.calibration import calibrate
    from dbq.model.decomposition import branches
    from dbq.model.param_groups import param_groups
    from dbq.model.preparation import Summary, prepare
    from dbq.model.schedule import TemperatureSchedule, set_progress
    from dbq.networks.pretrained import from_pretrained, save_pretrained
    from dbq.networks.table import create_model
    from dbq.plans.plan import LayerPlan, Plan
    from dbq.plans.shipped import PLANS, load_plan
    from dbq.posttraining.quantize import quantize
    from dbq.posttraining.summary import Quantization
    from dbq.quantizers.frozen import Branches

_HOME = {
    "Branches": "dbq.quantizers.frozen",
    "branches": "dbq.model.decomposition",
    "search_plan": "dbq.costs.bit_search",
    "calibrate": "dbq.model.calibration",
    "Cost": "dbq.costs.rules",
    "cost": "dbq.costs.rules",
    "DbqError": "dbq.errors",
    "load_program": "dbq.deploy.file.fileformat",
    "save": "dbq.deploy.file.fileformat",
    "Exported": "dbq.experiments.own_loop",
    "export": "dbq.experiments.own_loop",
    "lower": "dbq.lowering.lower",
    "create_model": "dbq.networks.table",
    "export_c": "dbq.deploy.csource.files",
    "from_pretrained": "dbq.networks.pretrained",
    "save_pretrained": "dbq.networks.pretrained",
    "export_onnx": "dbq.deploy.onnx.export",
    "param_groups": "dbq.model.param_groups",
    "PLANS": "dbq.plans.shipped",
    "LayerPlan": "dbq.plans.plan",
    "Plan": "dbq.plans.plan",
    "load_plan": "dbq.plans.shipped",
    "Summary": "dbq.model.preparation",
    "prepare": "dbq.model.preparation",
    "Program": "dbq.deploy.program",
    "Quantization": "dbq.posttraining.summary",
    "quantize": "dbq.posttraining.quantize",
    "read_images": "dbq.experiments.photographs",
    "Net": "dbq.deploy.engine",
    "load": "dbq.deploy.engine",
    "TemperatureSchedule": "dbq.model.schedule",
    "set_progress": "dbq.model.schedule",
}

__all__ = [
    "PLANS",
    "Branches",
    "Cost",
    "DbqError",
    "Exported",
    "LayerPlan",
    "Net",
    "Plan",
    "Program",
    "Quantization",
    "Summary",
    "TemperatureSchedule",
    "__version__",
    "branches",
    "calibrate",
    "cost",
    "create_model",
    "export",
    "export_c",
    "export_onnx",
    "from_pretrained",
    "load",
    "load_plan",
    "load_program",
    "lower",
    "param_groups",
    "prepare",
    "quantize",
    "read_images",
    "save",
    "save_pretrained",
    "search_plan",
    "set_progress",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'dbq' has no attribute {name!r}")
    try:
        value = getattr(import_module(_HOME[name]), name)
    except ModuleNotFoundError as error:
        from dbq.support.extras import advice

        if not (message := advice(error, f"dbq.{name}")):
            raise
        raise ModuleNotFoundError(message, name=error.name) from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
