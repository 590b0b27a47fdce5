"""How the page opens: accuracy, size and cost of the quantized network against float, and its time."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from dbq.experiments.report.facts import RunFacts
from dbq.support.text import short


class Tile(NamedTuple):
    """A large number, what it is, and what it stands against."""

    what: str
    number: str
    against: str


def subject(runs: Sequence[RunFacts]) -> RunFacts:
    """The run that the page is about: the first quantized one, or the first."""
    return next((run for run in runs if not run.is_float), runs[0])


def opening(runs: Sequence[RunFacts]) -> str:
    """The HTML of the tiles."""
    about = subject(runs)
    tiles = "\n".join(
        f"<div><dt>{escape(tile.what)}</dt>"
        f'<dd class="large">{escape(tile.number)}</dd><dd>{escape(tile.against)}</dd></div>'
        for tile in tiles_of(about, _baseline(about, runs))
    )
    title = f"{about.name}: {about.network}, plan {about.plan}"
    return (
        f'<section aria-labelledby="h-opening">\n<h2 id="h-opening">{escape(title)}</h2>\n'
        f'<dl class="tiles">\n{tiles}\n</dl>\n</section>'
    )


def _baseline(about: RunFacts, runs: Sequence[RunFacts]) -> RunFacts | None:
    """The first float run of the same network on the same data, unless the subject is float."""
    if about.is_float:
        return None
    same = (run for run in runs if run.is_float)
    return next((r for r in same if (r.network, r.data) == (about.network, about.data)), None)


def tiles_of(about: RunFacts, base: RunFacts | None) -> list[Tile]:
    """Costs are counted, not measured; only the last tile is a time."""
    ours, theirs = about.result, base.result if base else None
    tiles = [
        Tile(
            "accuracy: top-1 on the test set",
            f"{ours.top1:.2f} %",
            f"float: {theirs.top1:.2f} %" if theirs else "",
        ),
        Tile(
            "size: weights, in bytes (C_M / 8)",
            f"{short(ours.cost.C_M / 8)}B",
            _times_less(ours.cost.C_M, theirs.cost.C_M) if theirs else "",
        ),
        Tile(
            "cost: full adders (C_S)",
            short(ours.cost.C_S),
            _times_less(ours.cost.C_S, theirs.cost.C_S) if theirs else "",
        ),
    ]
    if about.bench:
        threads = "1 thread" if about.bench["threads"] == 1 else f"{about.bench['threads']} threads"
        tiles.append(
            Tile(
                f"latency: one image, {about.bench['isa']}, {threads}",
                f"{about.bench['milliseconds']:.3g} ms",
                about.bench_source,
            )
        )
    elif about.bench_source:
        tiles.append(Tile("latency", "–", about.bench_source))
    return tiles


def _times_less(ours: float, theirs: float) -> str:
    """Two costs as one phrase; a cost of 0 has no ratio.

    >>> _times_less(2.0, 9.0), _times_less(9.0, 2.0), _times_less(0.0, 2.0)
    ('4.5 times less than float', '4.5 times more than float', '')
    """
    if not ours or not theirs:
        return ""
    ratio = max(ours, theirs) / min(ours, theirs)
    return f"{ratio:.1f} times {'less' if ours <= theirs else 'more'} than float"
