"""Tables of methods side by side, from results/comparison_*.json."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tabular import result, table

# What each name stands for; the files in src/dbq/quantizers/methods have the equations and the sources.
NAMES = {
    "float": "float, fine-tuned",
    "xnor": "XNOR-Net's binary weights",
    "twn": "TWN",
    "ttq": "TTQ",
    "qnet": "Quantization Networks",
    "lqnet": "LQ-Net",
    "abcnet": "ABC-Net",
    "lsq": "LSQ",
    "uniq": "UNIQ",
    "dbq": "**DBQ**",
}

Entry = dict[str, Any]


def _amount(metric: str, unit: float, digits: int) -> Callable[[Entry], str]:
    return lambda entry: f"{entry['cost'][metric] / unit:.{digits}f}"


def _if_known(key: str, form: str = ".2f") -> Callable[[Entry], str]:
    return lambda entry: "" if entry.get(key) is None else f"{entry[key]:{form}}"


COLUMNS: dict[str, Callable[[Entry], str]] = {
    "method": lambda entry: NAMES[entry["name"].partition("-")[0]],
    "weights": lambda entry: entry["name"].partition("-")[2] or "32b",
    "top-1": _if_known("top1"),
    "best epoch": _if_known("best_top1"),
    "rate": _if_known("rate", "g"),
    "paper": _if_known("paper_top1"),
    "C_C, 10⁹ FA": _amount("C_C", 1e9, 3),
    "C_S, 10⁹ FA": _amount("C_S", 1e9, 3),
    "C_R, Mb": _amount("C_R", 1e6, 2),
    "C_M, Mb": _amount("C_M", 1e6, 2),
    "training step x float": _if_known("step_ratio"),
}


def comparison(network: str) -> str:
    """Every method; columns without any entry are left out."""
    entries = result(f"comparison_{network}")["entries"]
    columns = {head: cell for head, cell in COLUMNS.items() if any(map(cell, entries))}
    return table([*columns], ([cell(entry) for cell in columns.values()] for entry in entries))


TABLES: dict[str, Callable[[], str]] = {
    f"comparison {network}": partial(comparison, network)
    for network in ("resnet20", "mobilenet_v1")
}
