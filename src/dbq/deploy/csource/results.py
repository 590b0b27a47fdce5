"""How the codes of a result are made of sums, as the fields of result_t in kernels/results.c."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dbq.deploy.csource.ctext import bits
from dbq.deploy.csource.exact.lines import Lines, Longs
from dbq.deploy.tensors import Array, Result, Type

WIDE_SUM = 2**24  # smaller ones are floats as they are, which put_wide relies on


class Form(NamedTuple):
    """Lines where they exist, else floats; 32-bit codes of one small sum have their own function."""

    type: Type
    lines: Lines | None
    is_wide: bool


def is_wide(type: Type, exact: tuple[Longs, Longs] | None) -> bool:
    """Whether sums from `exact[0]` to `exact[1]`, if there is one sum, become codes by put_wide."""
    return (
        type == "i32"
        and exact is not None
        and bool(max(-exact[0].min(), exact[1].max()) < WIDE_SUM)
    )


def result_fields(
    result: Result, form: Form, number: int, data: Callable[[str, Array], str]
) -> list[tuple[str, Any]]:
    """Names and values; `data` writes an array of the layer, and returns its name."""
    lines, limits = form.lines, (("low", result.low), ("high", result.high))
    has_integers = lines is not None or form.is_wide
    fields: list[tuple[str, Any]] = [
        ("to", f"&tensor_{result.tensor}"),
        *((name, int(np.float32(limit)) if has_integers else bits(limit).view(np.int32).item())
          for name, limit in limits),
        ("has_clamp", int(form.type != "f32" or result.clamps_floats)),
        ("is_wide", int(form.is_wide)),
    ]  # fmt: skip
    floats = np.concatenate([result.scales, result.offsets[:, None]], axis=1)
    is_shared = bool((floats == floats[:1]).all()) and not (lines and lines.odd_count)
    fields.append(("is_shared", int(is_shared)))
    rows = slice(1) if is_shared else slice(None)
    if lines is None:
        return [*fields, ("floats", data(f"floats{number}", bits(floats[rows])))]
    halves = lines.halves().reshape(len(floats), -1)[rows]
    fields += [
        ("multipliers", data(f"multipliers{number}", halves)),
        ("form", lines.form.number),
    ]
    if lines.odd_count:
        first = np.cumsum([0, *map(len, lines.odd)]).astype(np.uint16)
        pairs = np.array([pair for odd in lines.odd for pair in odd])
        fields += [
            ("odd_first", data(f"odd_first{number}", first)),
            ("odd_sums", data(f"odd_sums{number}", pairs[:, 0].astype(np.int32))),
            ("odd_codes", data(f"odd_codes{number}", pairs[:, 1].astype(np.int16))),
        ]
    return fields
