"""Folders for model hubs that another process has read, as docs/elsewhere.md shows them."""

from __future__ import annotations

from collections.abc import Callable

from tabular import result, table


def folders() -> str:
    heads = ["network", "plan", "test images", "with the same logits"]
    rows = result("pretrained")["rows"]
    return table(heads, [[row["network"], f"`{row['plan']}`", f"{row['images']:,}",
                          f"{row['same']:,}"] for row in rows])  # fmt: skip


TABLES: dict[str, Callable[[], str]] = {"pretrained": folders}
