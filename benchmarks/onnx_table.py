"""The forms of an ONNX export, as docs/onnx.md shows them."""

from __future__ import annotations

from collections.abc import Callable

from tabular import Row, result, table

PLANS = {"resnet-2t-a8": "two branches", "resnet-1t-a8": "one branch", "fx8-3": "8 bit"}
RUNTIMES = ("onnxruntime", "openvino")


def forms() -> str:
    """A row for each file: its size, and what each runtime makes of it."""
    rows: dict[tuple[str, str, int], dict[str, Row]] = {}
    for row in result("engine_onnx")["rows"]:
        rows.setdefault((row["plan"], row["form"], row["bits"]), {})[row["runtime"]] = row
    lines = []
    for (plan, form, bits), found in rows.items():
        any_row = next(iter(found.values()))
        cells = [PLANS[plan], form, str(bits or ""), f"{any_row['bytes'] / 1e3:.0f}",
                 f"{any_row['ratio']:.2f}"]  # fmt: skip
        columns = [found["dbq"], found["dbq"]] if form == "program" else map(found.get, RUNTIMES)
        for row in columns:
            assert row is not None
            cells += _cells(row)
        lines.append(cells)
    heads = ["ResNet-20", "form", "weight bits", "kB", "to .dbq"]
    for runtime in RUNTIMES:
        heads += [f"{runtime}: top-1", "different", "ms"]
    return table(heads, lines)


def _cells(row: Row) -> list[str]:
    if "refused" in row:
        return ["refused", "", ""]
    return [f"{row['top1']:.2f}", str(row["different"]), f"{row['ms']:.2f}"]


TABLES: dict[str, Callable[[], str]] = {"onnx forms": forms}
