"""The figure of a comparison: accuracy against what a network costs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dbq.comparison import Comparison
from dbq.errors import DbqError

METRICS = {"C_C": "C_C, 1-bit full adders", "C_M": "C_M, bits of the model"}
OURS, OTHERS, REFERENCE = "#c0392b", "#34618f", "#777777"
LINE = 0.04  # height of a label's line, as a share of the axis
NEAR = 1.6  # points whose costs differ by less have labels above each other


def draw(comparison: Comparison, path: Path) -> Path:
    """Write accuracy against C_C and against C_M; the suffix of `path` says in which format."""
    try:
        import matplotlib
    except ImportError:
        raise DbqError("drawing needs matplotlib: pip install 'dbq[plots]'") from None
    matplotlib.use("agg")
    matplotlib.rcParams["svg.hashsalt"] = "dbq"  # the same figure is the same file
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(METRICS), figsize=(11, 5), sharey=True)
    for axis, (metric, label) in zip(axes, METRICS.items(), strict=True):
        points = {e.name: (getattr(e.cost, metric), e.top1) for e in comparison.entries}
        for name, height in label_heights(points).items():
            colour = REFERENCE if name == "float" else OURS if name.startswith("dbq") else OTHERS
            x, y = points[name]
            axis.plot(x, y, "o", color=colour)
            axis.annotate(name, (x, y), xytext=(x * 1.12, height), fontsize=8, color=colour,
                          va="center")  # fmt: skip
        axis.set_xscale("log")
        axis.margins(x=0.25)
        axis.set_xlabel(label)
        axis.grid(alpha=0.25, which="both")
    axes[0].set_ylabel("top-1 of the hard network, %")
    epochs = f"{comparison.epochs} epoch{'s' if comparison.epochs > 1 else ''}"
    figure.suptitle(f"{comparison.network} on {comparison.data}, {epochs} each")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    pyplot.close(figure)
    return path


def label_heights(points: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    """A height for each label, so that those of points one above the other do not overlap.

    >>> label_heights({"a": (1.0, 50.0), "b": (1.0, 50.1), "c": (9.0, 50.0), "d": (1.0, 90.0)})
    {'a': 50.0, 'c': 50.0, 'b': 51.6, 'd': 90.0}
    """
    heights = [y for _, y in points.values()]
    gap = LINE * (max(heights) - min(heights))
    found: dict[str, float] = {}
    for name, (x, y) in sorted(points.items(), key=lambda item: item[1][1]):
        below = [found[other] for other in found if NEAR > points[other][0] / x > 1 / NEAR]
        found[name] = max(y, max(below) + gap) if below else y
    return found
