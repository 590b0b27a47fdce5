"""Tables of networks quantized without labels."""

from __future__ import annotations

from collections.abc import Callable

from tabular import Row, result, table

NETWORKS = {
    "resnet20": "ResNet-20, CIFAR-10",
    "mobilenet_v2": "MobileNetV2, ImageNet",
    "mobilenet_v1": "MobileNetV1, ImageNet",
}


def _rows() -> list[Row]:
    order = list(NETWORKS)
    rows: list[Row] = result("post_training")["rows"]
    return sorted(rows, key=lambda row: (order.index(row["network"]), row["plan"]))


def post_training() -> str:
    return table(
        ["network", "plan", "float", "quantized", "difference", "images tested",
         "steps of distillation", "processor seconds"],
        [[NETWORKS[row["network"]], f"`{row['plan']}`", f"{row['float']:.2f}",
          f"**{row['top1']:.2f}**", f"{row['difference']:+.2f}", f"{row['tested']:,}",
          str(row["steps"]), f"{row['seconds']:.0f}"]
         for row in _rows() if row["what"] == "all"],
    )  # fmt: skip


TABLES: dict[str, Callable[[], str]] = {"post-training": post_training}
