"""Charts as files: SVG or PNG of a Vega-Lite specification, without a browser."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from dbq.errors import DbqError
from dbq.support.atomic import write_atomically

PIXELS_PER_POINT = 2.0
WIDTH = 640  # of charts that a page stretches to the width of their container


def draw(spec: dict[str, Any], path: Path) -> Path:
    """Write a chart in the format given by the suffix of `path`, .svg or .png."""
    if path.suffix not in (".svg", ".png"):
        raise DbqError(f"a figure is .svg or .png, not {path.name}")
    converter = vega()
    fixed = {**spec, "background": "white"}
    if fixed.get("width") == "container":
        fixed["width"] = WIDTH
    if path.suffix == ".svg":
        data = converter.vegalite_to_svg(fixed).encode()
    else:
        data = converter.vegalite_to_png(fixed, scale=PIXELS_PER_POINT)
    write_atomically(path, data)
    return path


def vega() -> ModuleType:
    """The package that bundles Vega: it draws charts, and holds the script that pages need."""
    try:
        return import_module("vl_convert")
    except ImportError:
        raise DbqError(
            "figures and reports need vl-convert-python: pip install 'dbq[train]'"
        ) from None
