"""Fill in the tables of README.md and docs/ from results/.

    python benchmarks/pages.py [--check]

The prose of a page is written by hand. A table stands between `<!-- table:NAME -->` and
`<!-- /table -->`; NAME is a key of TABLES. --check writes nothing, and fails if a table differs from
what results/ says.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import partial

import accuracy_tables
import comparison_tables
import engine_tables
import instructions_table
import mcu_table
import networks_tables
import onnx_table
import post_training_tables
import pretrained_table
import summary_table
import sweep_tables
import tflm_table
import tiny_imagenet_tables
import torture_table
import web_tables
from tabular import RESULTS, ROOT, measured

TABLES: dict[str, Callable[[], str]] = {
    **summary_table.TABLES,
    **accuracy_tables.TABLES,
    **comparison_tables.TABLES,
    **engine_tables.TABLES,
    **instructions_table.TABLES,
    **mcu_table.TABLES,
    **networks_tables.TABLES,
    **onnx_table.TABLES,
    **sweep_tables.TABLES,
    **tflm_table.TABLES,
    **tiny_imagenet_tables.TABLES,
    **torture_table.TABLES,
    **post_training_tables.TABLES,
    **pretrained_table.TABLES,
    **web_tables.TABLES,
    **{f"measured {path.stem}": partial(measured, path.stem)
       for path in sorted(RESULTS.glob("*.json"))},
}  # fmt: skip
BLOCK = re.compile(r"<!-- table:(.+?) -->\n.*?<!-- /table -->", re.S)


def filled(text: str) -> str:
    """A page with every table as results/ has it."""

    def block(match: re.Match[str]) -> str:
        name = match[1]
        if name not in TABLES:
            sys.exit(f"no table {name!r}; there are: {', '.join(TABLES)}")
        return f"<!-- table:{name} -->\n{TABLES[name]()}\n<!-- /table -->"

    return BLOCK.sub(block, text)


def main() -> None:
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        text = path.read_text(encoding="utf-8")
        if filled(text) == text:
            continue
        if "--check" in sys.argv:
            sys.exit(f"{path.name} is not what results/ says: run python benchmarks/pages.py")
        path.write_text(filled(text), encoding="utf-8")


if __name__ == "__main__":
    main()
