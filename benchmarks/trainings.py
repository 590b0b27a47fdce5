"""The trainings of a benchmark: each a `dbq train` in a directory of its own.

Finished ones are kept and interrupted ones resumed, so a benchmark may be stopped at any time, and two
of them may run side by side with different shell patterns (one that matches nothing trains nothing).
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from machine import save
from tabular import RESULTS, Row, result

from dbq.training.record.rundir import RunDir

KEPT = ("top1", "top5", "best_top1", "best_epoch", "epochs", "seconds", "seed", "plan", "recipe",
        "revision", "machine", "cost", "test")  # fmt: skip
Lines = Mapping[str, list[str]]  # the `dbq train` line of each training, by its name


def train_line(recipe: str, out: Path, settings: list[str]) -> list[str]:
    """A `dbq train` that continues where it was interrupted."""
    sets = [part for item in settings for part in ("--set", item)]
    return ["dbq", "train", recipe, "--out", str(out), "--resume", *sets]


def train_all(lines: Lines, runs: Path, only: str) -> None:
    """Run those whose names match, in their order, unless they are finished."""
    for name, line in lines.items():
        if fnmatchcase(name, only) and not RunDir(runs / name).is_finished:
            print(name, file=sys.stderr)
            done = subprocess.run([sys.executable, "-m", "dbq", *line[1:]], check=False)
            if done.returncode:
                sys.exit(f"{name} ended with status {done.returncode}")


def collect(
    benchmark: str,
    usual_lines: Lines,
    runs: Path,
    name_of: Callable[[Row], str],
    describe: Callable[[str, RunDir], dict[str, Any]],
) -> None:
    """Write what is finished to results/BENCHMARK.json; rows of runs that are not here stay.

    `usual_lines` are recorded: the same trainings, with files where the benchmark has them by default,
    since where they lie on one machine says nothing to others.
    `name_of` gives the name of the training that a row is of, `describe` what a row says besides KEPT.
    """
    exists = (RESULTS / f"{benchmark}.json").exists()
    known = {name_of(row): row for row in (result(benchmark)["rows"] if exists else [])}
    rows: list[Row] = []
    for name, line in usual_lines.items():
        run = RunDir(runs / name)
        if run.is_finished:
            found = run.result().to_json()
            recorded = {key: found[key] for key in KEPT}
            rows.append({**describe(name, run), "command": shlex.join(line), **recorded})
        elif name in known:
            rows.append(known[name])
    missing = sorted(usual_lines.keys() - {name_of(row) for row in rows})
    saved = save(benchmark, missing=missing, rows=rows)
    print(f"{len(rows)} of {len(usual_lines)} trainings in {saved}")
    if missing:
        print(f"not finished: {', '.join(missing)}", file=sys.stderr)
