"""Draws the figures of docs/method.md: python docs/site/draw.py"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
GREY, TEAL, AMBER, RED = (
    "#888888",
    "#26a69a",
    "#ffa000",
    "#ef5350",
)  # readable on white and on black


def svg(name: str, width: int, height: int, body: list[str]) -> None:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
    style = 'font-family="sans-serif" font-size="13"'
    (HERE / name).write_text("\n".join([f"{head} {style}>", *body, "</svg>"]) + "\n")


def text(x: float, y: float, words: str, anchor: str = "middle", colour: str = GREY) -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" fill="{colour}">{words}</text>'


def line(points: list[tuple[float, float]], colour: str, width: float = 2) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"/>'


def place(u: float, v: float) -> tuple[float, float]:
    return 320 + 280 * u, 150 - 150 * v


def staircase() -> None:
    """Nine levels of two branches, hard, and at two temperatures."""
    scales = (0.55, 0.2)
    levels = sorted(
        {round(a * scales[0] + b * scales[1], 3) for a in (-1, 0, 1) for b in (-1, 0, 1)}
    )
    cuts = [(a + b) / 2 for a, b in pairwise(levels)]
    x = np.linspace(-1, 1, 400)
    body = [
        line([place(-1, 0), place(1, 0)], GREY, 0.5),
        line([place(0, -0.9), place(0, 0.9)], GREY, 0.5),
    ]
    for temperature, colour in ((12.0, AMBER), (60.0, TEAL)):
        steps = [(b - a) / (1 + np.exp(-temperature * (x - c)))
                 for a, b, c in zip(levels, levels[1:], cuts, strict=False)]  # fmt: skip
        y = levels[0] + np.sum(steps, axis=0)
        body.append(line([place(u, v) for u, v in zip(x, y, strict=True)], colour))
    hard = [levels[int(np.searchsorted(cuts, u))] for u in x]
    body.append(line([place(u, v) for u, v in zip(x, hard, strict=True)], RED, 1.2))
    body += [text(110, 40, "soft, T = 12", colour=AMBER), text(110, 60, "soft, T = 60", colour=TEAL),
             text(110, 80, "hard: nine levels", colour=RED), text(585, 168, "weight"),
             text(330, 22, "quantized weight", "start")]  # fmt: skip
    svg("staircase.svg", 640, 300, body)


def joined() -> None:
    """A kernel: two ternary branches, then one plane of integers."""
    first = [[1, 0, -1], [1, 1, 0], [0, -1, -1]]
    second = [[0, 1, 0], [-1, 1, 1], [1, 0, -1]]
    total = [
        [3 * a + 2 * b for a, b in zip(*rows, strict=True)]
        for rows in zip(first, second, strict=True)
    ]
    body = []
    for x, grid in ((40, first), (200, second), (420, total)):
        for i, row in enumerate(grid):
            for j, code in enumerate(row):
                colour = GREY if code == 0 else TEAL if code > 0 else RED
                left, top = x + 34 * j, 40 + 34 * i
                body.append(f'<rect x="{left}" y="{top}" width="30" height="30" rx="4" fill="none" '
                            f'stroke="{colour}"/>')  # fmt: skip
                body.append(text(left + 15, top + 20, f"{code:+d}" if code else "0", colour=colour))
    body += [text(22, 97, "α₁"), text(171, 97, "+  α₂"), text(350, 97, "≈  step  ·"),
             text(89, 165, "branch 1"), text(249, 165, "branch 2"),
             text(469, 165, "3 · branch 1 + 2 · branch 2: 4 bits"),
             text(320, 22, "α₁ : α₂ is rounded to 3 : 2, one multiplication for both")]  # fmt: skip
    svg("joined.svg", 640, 180, body)


def layer() -> None:
    """One layer of the integer engine."""
    boxes = [("input codes", "8 bit"), ("products and sums", "exact, 32 bit"),
             ("· scale + offset", "float32"), ("clamp, round", "ReLU: from 0"),
             ("output codes", "8 bit")]  # fmt: skip
    body = []
    for number, (head, below) in enumerate(boxes):
        x = 8 + 143 * number
        body.append(
            f'<rect x="{x}" y="30" width="124" height="56" rx="6" fill="none" stroke="{TEAL}"/>'
        )
        body += [text(x + 62, 54, head), text(x + 62, 74, below, colour=AMBER)]
        if number:
            body.append(line([(x - 18, 58), (x - 2, 58)], GREY))
            body.append(line([(x - 8, 53), (x - 2, 58), (x - 8, 63)], GREY))
    body.append(
        text(356, 112, "batch norm, weight scales and both grids are inside scale and offset")
    )
    svg("layer.svg", 712, 124, body)


if __name__ == "__main__":
    staircase()
    joined()
    layer()
