"""Points of cost and accuracy: which nobody beats in both, and where their labels go."""

from __future__ import annotations

from collections.abc import Mapping

LINE = 0.045  # height of a label's line, as a share of the range of accuracies
NEAR = 1.6  # points whose costs differ by less have labels above each other


def front(points: Mapping[str, tuple[float, float]]) -> list[str]:
    """Names on the front of (cost, accuracy) points, cheapest first.

    A point is on it if no other costs at most as much and is at least as accurate, one of the two
    strictly. Of equal points all are.

    >>> front({"a": (1.0, 50.0), "b": (2.0, 40.0), "c": (3.0, 60.0)})
    ['a', 'c']
    """
    names: list[str] = []
    best = float("-inf")
    reached = float("inf")  # the cost at which `best` was reached
    for name, (cost, accuracy) in sorted(points.items(), key=lambda p: (p[1][0], -p[1][1], p[0])):
        if accuracy > best or (accuracy == best and cost == reached):
            names.append(name)
            best, reached = accuracy, cost
    return names


def label_heights(points: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    """A height for each label, so that those of points one above the other do not overlap.

    >>> label_heights({"a": (1.0, 50.0), "b": (1.0, 50.1), "c": (9.0, 50.0), "d": (1.0, 90.0)})
    {'a': 50.0, 'c': 50.0, 'b': 51.8, 'd': 90.0}
    """
    heights = [accuracy for _, accuracy in points.values()]
    gap = LINE * (max(heights) - min(heights)) if heights else 0.0
    found: dict[str, float] = {}
    for name, (cost, accuracy) in sorted(points.items(), key=lambda item: item[1][1]):
        below = [found[other] for other in found if NEAR > points[other][0] / cost > 1 / NEAR]
        found[name] = max(accuracy, max(below) + gap) if below else accuracy
    return found
