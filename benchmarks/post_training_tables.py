"""Tables of networks quantized without labels."""

from __future__ import annotations

from collections.abc import Callable

from tabular import Row, result, table

NETWORKS = {
    "resnet20": "ResNet-20, CIFAR-10",
    "mobilenet_v2": "MobileNetV2, ImageNet",
    "mobilenet_v1": "MobileNetV1, ImageNet",
}
UNIFORM = {"rounded": "to the nearest, min-max", "fitted": "by `dbq.quantize`, no distillation"}


PEERS = {
    "rounded": "Brevitas, to the nearest, min-max",
    "rounded by error": "Brevitas, scales by squared error, biases corrected",
    "gptq": "Brevitas, GPTQ, biases corrected",
    "qronos": "Brevitas, Qronos, biases corrected",
}


def _rows(name: str) -> list[Row]:
    order = list(NETWORKS)
    rows: list[Row] = result(name)["rows"]
    return sorted(rows, key=lambda row: (order.index(row["network"]), row["plan"]))


def post_training() -> str:
    return table(
        ["network", "plan", "float", "quantized", "difference", "images tested",
         "steps of distillation", "processor seconds"],
        [[NETWORKS[row["network"]], f"`{row['plan']}`", f"{row['float']:.2f}",
          f"**{row['top1']:.2f}**", f"{row['difference']:+.2f}", f"{row['tested']:,}",
          str(row["steps"]), f"{row['seconds']:.0f}"]
         for row in _rows("post_training") if row["what"] == "all"],
    )  # fmt: skip


def deployed() -> str:
    """Deployed files against torch, and against the int8 peers if they have raced."""
    return table(
        ["network", "plan", "torch", "libdbq", "separate branches", "bytes", "int8 peer's bytes",
         "ms, one thread", "best int8 peer"],
        [[NETWORKS[row["network"]], f"`{row['plan']}`", f"{row['torch']:.2f}", f"{row['joined']:.2f}",
          f"{row['separate']:.2f}", f"{row['bytes']:,}", *_race(row)]
         for row in _rows("post_training_deployed")],
    )  # fmt: skip


def _race(row: Row) -> list[str]:
    if "ms" not in row:
        return ["", "", ""]
    peer = f"{row['peer_ms']:.2f} ms, {row['peer']}"
    return [
        f"{row['peer_bytes']:,}",
        f"{row['ms']:.2f}",
        f"{peer} ({row['peer_ms'] / row['ms']:.2f}x)",
    ]


def ablation() -> str:
    """One part left out at a time, without distillation."""
    rows = [row for row in _rows("post_training") if row["what"] not in ("all", *UNIFORM)]
    return table(
        ["network", "plan", "what", "top-1", "difference to float", "images tested"],
        [[NETWORKS[row["network"]], f"`{row['plan']}`", row["what"], f"{row['top1']:.2f}",
          f"{row['difference']:+.2f}", f"{row['tested']:,}"] for row in rows],
    )  # fmt: skip


def uniform() -> str:
    """Plain fixed point in place of branches."""
    rows = [row for row in _rows("post_training") if row["what"] in UNIFORM]
    return table(
        ["network", "weights", "how", "top-1", "difference to float", "images tested"],
        [[NETWORKS[row["network"]], f"`{row['plan']}`", UNIFORM[row["what"]], f"{row['top1']:.2f}",
          f"{row['difference']:+.2f}", f"{row['tested']:,}"] for row in rows],
    )  # fmt: skip


def peers() -> str:
    """Another tool's weights of as many bits, and ours."""
    heads = [
        "weights of pointwise layers",
        "by",
        "top-1",
        "difference to float",
        "processor seconds",
    ]
    theirs = result("post_training_peers")["rows"]
    wanted = ("mobilenet_v2", "dbq-2t-4", "all")
    ours = [r for r in _rows("post_training") if (r["network"], r["plan"], r["what"]) == wanted]
    lines = [(f"{row['bits']} bits", PEERS[row["method"]], row) for row in theirs]
    lines += [("two branches, 3.2 bits", "`dbq.quantize`", row) for row in ours]
    return table(heads, (
        [weights, method, f"**{row['top1']:.2f}**", f"{row['difference']:+.2f}", f"{row['seconds']:.0f}"]
        for weights, method, row in sorted(lines, key=lambda line: line[2]["top1"])
    ))  # fmt: skip


def starts() -> str:
    """Training from two starts."""
    return table(
        ["start", "epochs", "top-1, mean", "each seed"],
        [[f"`{row['start']}`", str(row["epochs"]), f"**{row['top1']:.2f}**",
          ", ".join(f"{each:.2f}" for each in row["each"])]
         for row in result("training_start")["rows"]],
    )  # fmt: skip


TABLES: dict[str, Callable[[], str]] = {
    "post-training": post_training,
    "post-training ablation": ablation,
    "post-training deployed": deployed,
    "post-training peers": peers,
    "post-training uniform": uniform,
    "training start": starts,
}
