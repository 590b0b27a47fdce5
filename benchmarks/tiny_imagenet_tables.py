"""Tables of the paper's ablation on Tiny-ImageNet, from results/tiny_imagenet.json."""

from __future__ import annotations

from collections.abc import Callable
from statistics import mean

from tabular import Row, recipe_link, result, table

from dbq.experiments.paper import printed

PRINTED = {row.label.lower(): row for row in printed.MOBILENET_V1.rows}
FLOAT, LONGER = "fp", "fp-longer"
NAMES = {
    FLOAT: "float",
    LONGER: "float, as long as the others",
    "dbq-1t": "one branch, float elsewhere",
    "dbq-2t-4": "two branches, 8 bits elsewhere",
}


def runs_by_row(
    network: str = "mobilenet_v1", prepared: bool = False, tripled: bool = False
) -> dict[str, list[Row]]:
    """Runs by the name of the paper's row, or fp-longer; seeds in order."""
    runs: dict[str, list[Row]] = {}
    for row in result("tiny_imagenet")["rows"]:
        if (row["network"], row["prepared"], row["tripled"]) == (network, prepared, tripled):
            runs.setdefault(row["row"], []).append(row)
    return runs


def against(runs: list[Row], of: Row) -> float:
    """Points that the mean of some runs lies above a run; below, if negative."""
    return float(mean(run["top1"] for run in runs) - of["top1"])


def _line(name: str, runs: list[Row], base: Row) -> list[str]:
    top1 = ", ".join(f"{run['top1']:.2f}" for run in runs)
    points = "" if runs[0] is base else f"{against(runs, base):+.2f}"
    paper, paper_points = "", ""
    if name in PRINTED:
        paper = PRINTED[name].top1
        paper_points = f"{float(paper) - float(PRINTED[FLOAT].top1):+.2f}" if name != FLOAT else ""
    cost = runs[0]["cost"]
    link = f"[{name.upper()}](../src/dbq/training/recipes/{runs[0]['recipe']}.toml)"
    return [link, str(runs[0]["epochs"]),
            f"**{mean(run['top1'] for run in runs):.2f}** ({top1})", points, paper, paper_points,
            f"{cost['C_S'] / 1e10:.2f}", f"{cost['C_M'] / 1e7:.2f}"]  # fmt: skip


def rows() -> str:
    runs = runs_by_row()
    base = runs[LONGER][0] if LONGER in runs else runs[FLOAT][0]
    heads = ["", "epochs", "top-1: mean (each seed)", "against FP-LONGER", "the paper, ImageNet",
             "against its FP", "C_S, 10¹⁰ FA", "C_M, 10⁷ b"]  # fmt: skip
    order = [FLOAT, LONGER, *(name for name in PRINTED if name != FLOAT)]
    return table(heads, (_line(name, runs[name], base) for name in order if name in runs))


def zeros() -> str:
    """Zeros of the pointwise layers, beside those printed for networks trained on ImageNet."""
    runs = runs_by_row()
    ours = {"FX8": "fx8-3", "DBQ-1T": "dbq-1t", "DBQ-2T": "dbq-2t-4"}
    found = {name: runs[row][0] for name, row in ours.items() if row in runs}
    heads = [
        "pointwise layer",
        *(f"{name}: {whose}" for name in found for whose in ("paper", "ours")),
    ]
    lines = [
        [str(layer + 1), *(cell for name, run in found.items()
                           for cell in (f"{printed.BRANCH_SPARSITY[name][layer]:.1f}",
                                        f"{100 * run['zeros'][layer]:.1f}"))]
        for layer in range(13)
    ]  # fmt: skip
    means = [cell for name, run in found.items()
             for cell in (printed.SPARSITY_AVERAGE[name], f"{100 * run['mean_zeros']:.2f}")]  # fmt: skip
    return table(heads, [*lines, ["all weights", *means]])


def ratios() -> str:
    heads = ["", "median of alpha_1 / alpha_2", "share in 1.2 to 1.7"]
    ours = (
        [f"`{name}`, Tiny-ImageNet", f"{runs[0]['median_ratio']:.2f}",
         f"{100 * runs[0]['usual_ratios']:.0f} %"]
        for name, runs in runs_by_row().items() if runs[0]["median_ratio"] is not None
    )  # fmt: skip
    return table(heads, [["`dbq-2t-4`, the paper, ImageNet", "1.48", "more than 99 %"], *ours])


def mobilenet_v2() -> str:
    runs = runs_by_row("mobilenet_v2")
    heads = ["", "recipe", "epochs", "top-1", "against float", "C_S, 10¹⁰ FA", "C_M, 10⁷ b"]
    return table(heads, (
        [NAMES[name], recipe_link(run["recipe"]), str(run["epochs"]), f"**{run['top1']:.2f}**",
         "" if name in (FLOAT, LONGER) else f"{against([run], runs[LONGER][0]):+.2f}",
         f"{run['cost']['C_S'] / 1e10:.2f}", f"{run['cost']['C_M'] / 1e7:.2f}"]
        for name, (run,) in runs.items()
    ))  # fmt: skip


def starts() -> str:
    """The same training from what `prepare` found and from codes by output error."""
    fitted = runs_by_row()
    heads = [
        "MobileNetV1",
        "from `prepare`, batch norms re-estimated",
        "from codes by output error",
    ]
    return table(heads, (
        [NAMES[name], f"{run['top1']:.2f}", f"**{fitted[name][0]['top1']:.2f}**"]
        for name, (run,) in runs_by_row(prepared=True).items() if name in fitted
    ))  # fmt: skip


def tripled() -> str:
    """Rows trained for three epochs instead of one, against the float network they start from."""
    short = runs_by_row()
    (start,) = short[FLOAT]
    heads = ["MobileNetV1", "one epoch", "three epochs", "three epochs against FP"]
    return table(heads, (
        [NAMES[name], f"{short[name][0]['top1']:.2f}", f"**{runs[0]['top1']:.2f}**",
         f"{against(runs, start):+.2f}"]
        for name, runs in runs_by_row(tripled=True).items()
    ))  # fmt: skip


TABLES: dict[str, Callable[[], str]] = {
    "tiny-imagenet": rows,
    "tiny-imagenet-tripled": tripled,
    "tiny-imagenet-mobilenet-v2": mobilenet_v2,
    "tiny-imagenet-starts": starts,
    "tiny-imagenet-zeros": zeros,
    "tiny-imagenet-ratios": ratios,
}
