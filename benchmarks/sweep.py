"""Width against precision, animals against vehicles: results/sweep_cifar10-vehicles.json and .svg.

python benchmarks/sweep.py [--data DIR] [--out DIR] [--workers N]

Runs the shipped sweep as `dbq sweep cifar10-vehicles` does. Finished runs are kept, so after that
command it only writes the results.
"""

from __future__ import annotations

import sys
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from machine import options, save
from tabular import RESULTS

from dbq.experiments.report.drawing import draw
from dbq.experiments.sweep.pictures import sweep_figure
from dbq.experiments.sweep.runner import Processes, run_sweep
from dbq.experiments.sweep.sweep import load_sweep

NAME = "cifar10-vehicles"


def main() -> None:
    parser = options(__doc__, data="data", out=Path("runs/vehicles"), workers=2)
    arguments = parser.parse_args()
    sweep = load_sweep(NAME, [f"data.directory={arguments.data}"])
    found = run_sweep(sweep, arguments.out, partial(Processes, count=arguments.workers))
    print(found)
    if not found.is_complete:
        sys.exit(f"{len(found.rows)} runs are finished; nothing was written")
    epochs = {run.name: run.recipe.train.epochs for run in sweep.runs(arguments.out)}
    facts = found.to_json() | {
        # The directory of a run means nothing on another machine.
        "rows": [{**asdict(replace(row, run="")), "epochs": epochs[row.name]} for row in found.rows]
    }
    command = f"dbq sweep {NAME} --out runs/vehicles --workers 2"
    path = save(f"sweep_{NAME}", command, seeds=list(sweep.seeds), **facts)
    print(path, draw(sweep_figure(found), RESULTS / f"sweep_{NAME}.svg"))


if __name__ == "__main__":
    main()
