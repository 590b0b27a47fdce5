"""Training from a network that `dbq.quantize` made, against one that `prepare` and `calibrate` made.

    python benchmarks/training_start.py [--runs DIR] [--seeds 3]

Handwritten digits, one branch (recipe digits-1t), a few epochs, everything but the start equal. The
float network is trained first. Finished runs are kept, so the script may be stopped at any time.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from statistics import mean

from machine import options, save
from tabular import show

from dbq.training.record.rundir import RunDir

EPOCHS = (1, 2)
STARTS = {
    "prepare": ("quantize.calibrate=1000",),
    "quantize": ("quantize.calibrate=0", "quantize.fit=1000"),
}
COLUMNS = {"start": "{start}", "epochs": "{epochs}", "top-1": "{top1:.2f}", "each": "{each}"}


def train(recipe: str, out: Path, *changes: str) -> float:
    """Top-1 of a run, which is made if it is not there."""
    if not RunDir(out).is_finished:
        sets = [part for change in changes for part in ("--set", change)]
        line = [sys.executable, "-m", "dbq", "train", recipe, "--out", str(out), "--resume", *sets]
        subprocess.run(line, check=True, stdout=subprocess.DEVNULL)
    return float(RunDir(out).result().to_json()["top1"])


def main() -> None:
    arguments = options(__doc__, runs=Path("runs/start"), seeds=3).parse_args()
    of_float = train("digits-fp", arguments.runs / "fp")
    rows = []
    for epochs in EPOCHS:
        # The same temperatures in however many epochs.
        same = (f"train.epochs={epochs}", "temperature.start=20", "temperature.end=180",
                f"model.weights={arguments.runs / 'fp'}")  # fmt: skip
        for start, changes in STARTS.items():
            each = [train("digits-1t", arguments.runs / f"{start}-{epochs}-{seed}",
                          *same, *changes, f"train.seed={seed}")
                    for seed in range(arguments.seeds)]  # fmt: skip
            rows.append({"start": start, "epochs": epochs, "top1": mean(each), "each": each})
            save("training_start", float=of_float, rows=rows)
            print(show(COLUMNS, rows[-1:]), flush=True)


if __name__ == "__main__":
    main()
