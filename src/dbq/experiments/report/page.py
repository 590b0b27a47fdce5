"""The page: one HTML file with everything in it, which opens from disk and loads nothing else.

Text from a run (names, layers, messages) reaches the page in two ways only: escaped by `html.escape`,
or inside one block of JSON in which every `<` is escaped. The script inserts it as text, never as
HTML.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from types import MappingProxyType
from typing import Any

from dbq.errors import DbqError
from dbq.experiments.report import charts
from dbq.experiments.report.drawing import vega
from dbq.experiments.report.facts import METRICS, RunFacts, read_run
from dbq.experiments.report.opening import opening, subject
from dbq.support.atomic import write_atomically
from dbq.support.text import counted, short
from dbq.version import __version__

LAYER_COLUMNS = {
    "layer": "layer",
    "role": "role",
    "shape": "shape",
    "weights": "weights",
    "input": "input",
    "error": "weight error",
    "zeros": "zeros",
    **{metric: f"{metric} share" for metric in METRICS},
}


def write_report(
    directories: Sequence[Path], out: Path, title: str = "", links: Mapping[str, str] | None = None
) -> list[RunFacts]:
    """Write one page about one or more runs; returns what it says. `links`: addresses by their text."""
    if not directories:
        raise DbqError("a report needs at least one run: give its directory")
    names = run_names(directories)
    runs = [read_run(path, name)[0] for path, name in zip(directories, names, strict=True)]
    write_atomically(out, page(runs, title or "dbq report", links or {}).encode())
    return runs


def run_names(directories: Sequence[Path]) -> list[str]:
    """The shortest trailing parts of their paths that tell runs apart.

    >>> run_names([Path("runs/a/2t"), Path("runs/b/2t")])
    ['a/2t', 'b/2t']
    """
    paths = [path.resolve().parts for path in directories]
    if len(set(paths)) < len(paths):
        raise DbqError("the same run was given twice")
    for count in range(1, max(map(len, paths)) + 1):
        names = ["/".join(parts[-count:]) for parts in paths]
        if len(set(names)) == len(names):
            break
    return names


def page(
    runs: Sequence[RunFacts], title: str, links: Mapping[str, str] = MappingProxyType({})
) -> str:
    """The HTML."""
    kinds = sorted({f"{run.network} on {run.data}" for run in runs})
    return Template(_part("page.html")).substitute(
        title=escape(title),
        style=_part("page.css"),
        subtitle=escape(f"{counted(len(runs), 'run')}: {'; '.join(kinds)}"),
        links="".join(
            f'<p><a href="{escape(to)}">{escape(text)}</a></p>' for text, to in links.items()
        ),
        opening=opening(runs),
        headline=_headline(runs),
        layer_heads="".join(_head(key, text) for key, text in LAYER_COLUMNS.items()),
        facts=_json(_facts(runs)),
        library=vega().javascript_bundle().replace("</script", "<\\/script"),
        script=_part("page.js"),
        version=escape(__version__),
    )


def _part(name: str) -> str:
    return files("dbq.experiments.report").joinpath(name).read_text(encoding="utf-8")


def _headline(runs: Sequence[RunFacts]) -> str:
    heads = ["run", "network", "plan", "top-1", "best epoch", "epochs", "seed", *METRICS]
    lines = ["<tr>" + "".join(f'<th scope="col">{escape(head)}</th>' for head in heads) + "</tr>"]
    for run in runs:
        result = run.result
        accuracies = [f"{result.top1:.2f}", f"{result.best_top1:.2f}"]
        costs = map(short, result.cost.metrics.values())
        numbers = [*accuracies, result.epochs, result.seed, *costs]
        cells = [f'<th scope="row">{escape(run.name)}</th>']
        cells += [f"<td>{escape(text)}</td>" for text in (run.network, run.plan)]
        cells += [f'<td class="number">{number}</td>' for number in numbers]
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return "\n".join(lines)


def _head(key: str, text: str) -> str:
    return f'<th scope="col" data-key="{escape(key)}"><button type="button">{escape(text)}</button></th>'


def _facts(runs: Sequence[RunFacts]) -> dict[str, Any]:
    """What the script needs: charts, and data for the tables it fills when a run or layer is picked."""
    branched = [run for run in runs if run.ratios]
    points = [{"run": run.name, "top1": run.result.top1, **run.result.cost.metrics} for run in runs]
    return {
        "curves": charts.accuracy_curves(runs),
        "temperature": charts.schedule_curve(runs, "temperature", "temperature"),
        "rate": charts.schedule_curve(runs, "rate", "learning rate"),
        "costs": {m: charts.accuracy_against_cost(points, m) for m in METRICS},
        "subject": subject(runs).name,
        "layers": {run.name: run.layers for run in runs},
        "kernels": {run.name: run.kernels for run in runs},
        "kernelChart": charts.kernel_chart(),
        "times": {run.name: charts.layer_times(run.bench) for run in runs if run.bench},
        **({"ratios": charts.scale_ratios(branched)} if branched else {}),
    }


def _json(data: Any) -> str:
    """JSON that cannot end the script element it is in, whatever its strings are."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
