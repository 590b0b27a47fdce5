"""docs/tradeoff.md and its summary in README.md, from results/sweep_cifar10-vehicles.json.

The page checks what the paper says about Visual Wake Words (its section 4.5) on the sweep that was run
here. Every sentence about an outcome is computed from the rows: the page says so, whichever way it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from statistics import mean
from typing import Any

from dbq.experiments.report.pareto import front

WIDTH, PRECISION = "model.width", "quantize.precision"
TEST_IMAGES = 10_000
LONG = {"8b": "8 bit", "4b": "4 bit", "2b": "2 bit", "1T": "one branch", "2T": "two branches"}

Found = dict[str, Any]


@dataclass(frozen=True)
class Point:
    """Width and precision, the accuracy of each seed, costs as the mean over seeds."""

    width: float
    precision: str
    seeds: list[float]
    best: list[float]
    cost: dict[str, float]

    @property
    def top1(self) -> float:
        return mean(self.seeds)


def points(found: Found) -> list[Point]:
    return [
        Point(
            point["values"][WIDTH],
            point["values"].get(PRECISION, "float"),
            point["top1"],
            point["best_top1"],
            point["cost"],
        )
        for point in found["points"]
    ]


def table(every: list[Point]) -> Iterator[str]:
    yield (
        "| width | pointwise weights | top-1: mean (each seed) | best epoch | C_C, 10⁶ FA "
        "| C_S, 10⁶ FA | C_R, Mb | C_M, Mb |"
    )
    yield "|---|---|---|---|---|---|---|---|"
    for point in sorted(every, key=lambda p: p.width):  # stable: precisions stay in their order
        cost = point.cost
        numbers = " | ".join(f"{cost[key] / 1e6:.2f}" for key in ("C_C", "C_S", "C_R", "C_M"))
        final = ", ".join(f"{top1:.2f}" for top1 in point.seeds)
        each = f" ({final})" if len(point.seeds) > 1 else ""
        best = ", ".join(f"{top1:.2f}" for top1 in point.best)
        yield (
            f"| {point.width:g} | {LONG.get(point.precision, point.precision)} | {point.top1:.2f}{each} "
            f"| {best} | {numbers} |"
        )


def curve(every: list[Point], precision: str) -> list[Point]:
    """The points of one precision, narrow to wide."""
    return sorted((p for p in every if p.precision == precision), key=lambda p: p.width)


def at_cost(line: list[Point], metric: str, cost: float) -> float | None:
    """Accuracy of a precision at a cost between two of its widths, linear in the logarithm."""
    for low, high in pairwise(line):
        if low.cost[metric] <= cost <= high.cost[metric]:
            whole = math.log(high.cost[metric] / low.cost[metric])
            share = math.log(cost / low.cost[metric]) / whole
            return low.top1 + share * (high.top1 - low.top1)
    return None


def standard_error(top1: float) -> float:
    """Of the difference of two networks with about this accuracy, from the number of test images."""
    share = top1 / 100
    return 100 * math.sqrt(2 * share * (1 - share) / TEST_IMAGES)


def typical_error(every: list[Point]) -> float:
    return standard_error(mean(point.top1 for point in every))


def equal_cost(every: list[Point], metric: str) -> list[tuple[Point, float]]:
    """Two branches, and what one branch reaches at the same cost, where its widths enclose it."""
    ones, twos = curve(every, "1T"), curve(every, "2T")
    found = [(two, at_cost(ones, metric, two.cost[metric])) for two in twos]
    return [(two, one) for two, one in found if one is not None]


def verdict(every: list[Point], metric: str) -> str:
    """One sentence: does the narrower network with two branches win?"""
    gains = [(two.top1 - one, standard_error(two.top1)) for two, one in equal_cost(every, metric)]
    higher = sum(gain > 0 for gain, _ in gains)
    clearly = sum(abs(gain) > 2 * error for gain, error in gains)
    average = round(mean(gain for gain, _ in gains), 2) + 0.0  # no -0.00
    outcome = {0: "No", len(gains): "Yes"}.get(higher, "It depends")
    return (
        f"{outcome}: at equal {metric} two branches in a narrower network are more accurate than one "
        f"branch in a wider one in {higher} of {len(gains)} places, {average:+.2f} points on average; "
        f"{clearly or 'none'} of the differences is more than two standard errors of the test set."
    )


def question(every: list[Point]) -> Iterator[str]:
    """The paper's finding, at equal cost and against the next width."""
    yield "| 2T at width | top-1 | C_M, Mb | 1T at that C_M | difference | 1T at that C_S | difference |"
    yield "|---|---|---|---|---|---|---|"
    model, adders = dict_of(equal_cost(every, "C_M")), dict_of(equal_cost(every, "C_S"))
    for two in curve(every, "2T"):
        cells = []
        for line in (model, adders):
            one = line.get(two.width)
            cells += (
                ["beyond its widths", ""]
                if one is None
                else [f"{one:.2f}", f"{two.top1 - one:+.2f}"]
            )
        yield (
            f"| {two.width:g} | {two.top1:.2f} | {two.cost['C_M'] / 1e6:.2f} | {' | '.join(cells)} |"
        )


def dict_of(found: list[tuple[Point, float]]) -> dict[float, float]:
    return {two.width: one for two, one in found}


def neighbours(every: list[Point]) -> Iterator[str]:
    yield "| compared | top-1 | C_M | C_S | C_R |"
    yield "|---|---|---|---|---|"
    for two, one in zip(curve(every, "2T"), curve(every, "1T")[1:], strict=False):
        change = " | ".join(
            f"{100 * (two.cost[key] / one.cost[key] - 1):+.0f} %" for key in ("C_M", "C_S", "C_R")
        )
        yield (
            f"| 2T at {two.width:g} against 1T at {one.width:g} | {two.top1 - one.top1:+.2f} "
            f"| {change} |"
        )
    yield "| paper, Visual Wake Words: 2T at 0.25 against 1T at 0.375 | 0 | 0 | -26 % | -30 % |"


def papers_pair(every: list[Point]) -> str:
    """The one comparison that the paper puts in numbers, as a sentence."""
    two = next(p for p in curve(every, "2T") if p.width == 0.25)
    one = next(p for p in curve(every, "1T") if p.width == 0.375)
    less = [
        f"{100 * (1 - two.cost[k] / one.cost[k]):.0f} % less {k}" for k in ("C_M", "C_S", "C_R")
    ]
    return (
        f"Two branches at width 0.25 against one at 0.375: {two.top1 - one.top1:+.2f} points with "
        f"{less[0]}, {less[1]} and {less[2]} (the paper on Visual Wake Words: the same accuracy and "
        "C_M, 26 % less C_S and 30 % less C_R)."
    )


def against_fixed_point(every: list[Point]) -> Iterator[str]:
    yield "| width | C_S of 1T against 8 bit | top-1 | C_S of 2T against 8 bit | top-1 | paper, 1T |"
    yield "|---|---|---|---|---|---|"
    paper = {0.5: "-69 %, same accuracy", 0.125: "-45 %, -3"}
    for fixed, one, two in zip(
        curve(every, "8b"), curve(every, "1T"), curve(every, "2T"), strict=True
    ):
        cells = " | ".join(
            f"{100 * (p.cost['C_S'] / fixed.cost['C_S'] - 1):+.0f} % | {p.top1 - fixed.top1:+.2f}"
            for p in (one, two)
        )
        yield f"| {fixed.width:g} | {cells} | {paper.get(fixed.width, '')} |"


def on_front(every: list[Point], metric: str) -> str:
    quantized = {
        f"{LONG[p.precision]} at {p.width:g}": (p.cost[metric], p.top1)
        for p in every
        if p.precision in LONG
    }
    return ", ".join(front(quantized))


def span(every: list[Point], metric: str) -> tuple[float, float]:
    """How much a cost varies: over precisions at one width (mean), over widths at one precision."""
    quantized = [p for p in every if p.precision in LONG]
    by_width: dict[Any, list[float]] = {}
    by_precision: dict[Any, list[float]] = {}
    for p in quantized:
        by_width.setdefault(p.width, []).append(p.cost[metric])
        by_precision.setdefault(p.precision, []).append(p.cost[metric])
    ratio = [mean(max(c) / min(c) for c in group.values()) for group in (by_width, by_precision)]
    return ratio[0], ratio[1]


def width_buys(every: list[Point]) -> str:
    """How much accuracy there is to gain by width at all."""
    baselines = curve(every, "float")
    each = ", ".join(f"{point.top1:.2f} at {point.width:g}" for point in baselines)
    gain = max(p.top1 for p in baselines) - baselines[0].top1
    return (
        f"The float baselines reach {each}: {gain:.2f} points are all that width can buy here. They "
        "learn for a few epochs and see five halvings of a 32-pixel image; a task on which wider "
        "networks gain more would favour width more."
    )


def conditions(found: Found) -> str:
    facts = found["machine"]
    epochs = {bool(row["baseline"]): row["epochs"] for row in found["rows"]}
    return (
        f"CIFAR-10's 50,000 images as animals or vehicles, MobileNetV1 at 32x32 with all its strides; "
        f"float baselines {epochs[False]} epochs, quantized runs {epochs[True]} epochs from them, all "
        f"other weights and all activations 8 bit; seeds {', '.join(map(str, found['seeds']))}; top-1 "
        f"in % of the hard network on all 10,000 test images. Machine: {facts['cpu']}, "
        f"{facts['instructions']}, torch {facts['torch']}."
    )


def summary_section(found: Found) -> list[str]:
    every = points(found)
    return [
        "Width against precision (`dbq sweep cifar10-vehicles`, Visual Wake Words in small). Is it "
        "better to take a narrower network with two branches or a wider one with one? "
        f"{verdict(every, 'C_M')} {papers_pair(every)} All numbers, and what the paper finds: "
        "[docs/tradeoff.md](docs/tradeoff.md).",
        "",
        "![accuracy against cost by width and precision](results/sweep_cifar10-vehicles.svg)",
        "",
    ]


def sweep_page(found: Found) -> str:
    every = points(found)
    fixed, wide = span(every, "C_R")
    lines = [
        "# Width against precision",
        "",
        "Written by `benchmarks/pages.py` from `results/sweep_cifar10-vehicles.json`; do not edit. The "
        "paper studies on Visual Wake Words how the width of MobileNetV1 and the precision of its "
        "pointwise layers trade accuracy for cost. This is the same grid on a smaller task.",
        "",
        conditions(found),
        "",
        "```",
        found["command"],
        "```",
        "",
        "![accuracy against cost by width and precision](../results/sweep_cifar10-vehicles.svg)",
        "",
        "Points are means over seeds, lines go from the worst to the best seed, the grey steps are the "
        "Pareto front.",
        "",
        *table(every),
        "",
        "## Two branches in a narrower network, or one in a wider?",
        "",
        verdict(every, "C_M"),
        "",
        verdict(every, "C_S"),
        "",
        "One branch at a cost between two widths is interpolated, linear in the logarithm of the cost:",
        "",
        *question(every),
        "",
        f"Against the next width, as the paper compares. {papers_pair(every)}",
        "",
        *neighbours(every),
        "",
        "## Against fixed point",
        "",
        *against_fixed_point(every),
        "",
        f"On the front of C_S: {on_front(every, 'C_S')}.",
        "",
        f"On the front of C_M: {on_front(every, 'C_M')}.",
        "",
        f"The paper finds that C_R depends on the width far more than on the precision. Here it varies "
        f"{fixed:.1f}x over the precisions at one width, and {wide:.1f}x over the widths at one "
        "precision. Maps of 32-pixel images are small, so weights are a larger share of it than at 224.",
        "",
        "## How to read this",
        "",
        "- The task is easy and the budget short: it says how the choices compare on this network and "
        "data, not how accurate any of them can be. Rates and temperatures are the recipe's, the same "
        "for all widths and precisions.",
        f"- {width_buys(every)}",
        f"- A difference of two single networks has a standard error of {typical_error(every):.2f} "
        "points from the number of test images alone; the seeds vary the order of images and "
        "augmentation of the quantized runs, not their common float baseline.",
    ]
    return "\n".join(lines) + "\n"
