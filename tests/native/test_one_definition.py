"""No two headers may define types of one name: the linker would mix their member functions.

Two structs called Block, of different sizes, once shared std::vector's code: whichever copy the linker
kept wrote beyond the other's memory. Compilers see one file at a time and say nothing.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

NATIVE = Path(__file__).parents[2] / "native"
# At the beginning of a line, with a body, and no specialisation of a template: `struct Tile<0> {`.
DEFINITION = re.compile(r"^(?:struct|class)\s+(\w+)(?:\s+final)?\s*(?::[^{;]*)?\{", re.M)


def test_every_type_of_a_header_has_a_name_of_its_own() -> None:
    found = defaultdict(list)
    for path in sorted(NATIVE.rglob("*.h")):
        for name in DEFINITION.findall(path.read_text()):
            found[name].append(path.name)
    assert len(found) > 30, "the headers are where they were"
    assert {name: where for name, where in found.items() if len(where) > 1} == {}
