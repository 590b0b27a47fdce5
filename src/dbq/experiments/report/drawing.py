"""Charts as files: SVG or PNG of a Vega-Lite specification, without a browser."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

from dbq.errors import DbqError
from dbq.support.atomic import write_atomically

PIXELS_PER_POINT = 2.0
# A page says `container` for charts as wide as their place; a file has no place.
WIDTH = 640


def draw(spec: dict[str, Any], path: Path) -> Path:
    """Write a chart; the suffix of `path`, .svg or .png, says in which format."""
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
    """The package that carries Vega: draws charts, and has the script that pages need."""
    try:
        import vl_convert
    except ImportError:
        raise DbqError(
            "figures and reports need vl-convert-python: pip install 'dbq[report]'"
        ) from None
    module: ModuleType = vl_convert
    return module
