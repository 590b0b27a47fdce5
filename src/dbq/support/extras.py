"""Optional packages, and the extra of dbq that installs each. The base package needs numpy only."""

from __future__ import annotations

EXTRAS = {
    "PIL": "run",
    "typer": "run",
    "rich": "run",
    "torch": "train",
    "safetensors": "train",
    "tomli_w": "train",
    "sklearn": "train",
    "altair": "train",
    "vl_convert": "train",
    "onnx": "train",
}


def advice(error: ModuleNotFoundError, what: str) -> str:
    """What to install where `what` has failed for want of a package; empty if that is not dbq's to say.

    >>> advice(ModuleNotFoundError("No module named 'torch.nn'", name="torch.nn"), "dbq.prepare")
    "dbq.prepare needs torch: pip install 'dbq[train]'"
    """
    package = (error.name or "").partition(".")[0]
    extra = EXTRAS.get(package)
    return f"{what} needs {package}: pip install 'dbq[{extra}]'" if extra else ""
