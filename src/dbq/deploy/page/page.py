"""`dbq page`: a network and the engine in one HTML file, which opens from disk and asks for nothing."""

from __future__ import annotations

import base64
import html
import json
import re
from importlib import resources
from pathlib import Path

from dbq.deploy.engine import load
from dbq.errors import DataError, DbqError
from dbq.support.atomic import write_atomically

PACKAGE = Path(__file__).parents[2]
CHECKOUT = PACKAGE.parents[1]
WASM = CHECKOUT / "build" / "wasm"


def write_page(network: Path, out: Path, labels: Path | None = None, *, draw: bool = False) -> int:
    """Write the page of a .dbq file to `out`; returns its size.

    `labels`: a class name for each line. `draw`: small colour images can be drawn too, not only grey
    ones, because the network knows white strokes on black.
    """
    content = network.read_bytes()
    with load(network) as net:  # refuses what is damaged here, not in somebody's browser
        title, classes = net.name, net.output_shape[0]
    names = None
    if labels is not None:
        names = labels.read_text("utf-8").splitlines()
        if len(names) != classes:
            raise DataError(
                f"{labels} has {len(names)} lines, expected a name for each of {classes} classes"
            )
    page = page_of(content, title, names, draw)
    write_atomically(out, page.encode())
    return len(page.encode())


def can_write_pages() -> bool:
    """Whether this installation has the engine for browsers."""
    return _find("dbq.wasm", WASM) is not None


def browser_engine() -> bytes:
    """dbq.wasm; without it, an error says how to get it."""
    return _web_file("dbq.wasm", WASM)


def page_of(network: bytes, title: str, labels: list[str] | None = None, draw: bool = False) -> str:
    """The page of the bytes of a .dbq file, whatever they are."""
    parts = {
        "title": html.escape(title or "A dbq network"),
        "draw": "always" if draw else "grey",
        "css": _template("page.css"),
        "engine": base64.b64encode(browser_engine()).decode(),
        "network": base64.b64encode(network).decode(),
        "labels": json.dumps(labels).replace("<", "\\u003c"),
        "library": _inlined(_web_file("dbq.js", CHECKOUT / "web").decode()),
        "script": _template("page.js"),
    }
    return re.sub(r"\{(\w+)\}", lambda match: parts[match[1]], _template("page.html"))


def _template(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text("utf-8")


def _inlined(module: str) -> str:
    """A module's text for a script that has the names of another in it."""
    return re.sub(r"^export ", "", module, flags=re.MULTILINE)


def _find(name: str, in_checkout: Path) -> Path | None:
    """A file for browsers: of the installed package, or of the checkout that it runs from."""
    places = (PACKAGE / "web" / name, in_checkout / name)
    return next((path for path in places if path.is_file()), None)


def _web_file(name: str, in_checkout: Path) -> bytes:
    if path := _find(name, in_checkout):
        return path.read_bytes()
    raise DbqError(
        f"this installation has no {name}, which pages need: pip install ziglang, then install dbq "
        "again (in a clone that it runs from: cmake --preset page && cmake --build --preset page)"
    )
