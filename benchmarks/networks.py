"""How far networks come that others wrote: prepare, calibrate, train, count, lower, run, export.

    python benchmarks/networks.py [--only PATTERN] [--resume] [--limit SECONDS] [--jobs N]

Each network of networks_catalogue.py has random weights and a process of its own, which is ended after
--limit seconds of processor time. Times are processor time, so that a busy machine does not spoil them.
The results are written after every network. --resume keeps those that are there, --only
measures the networks whose names match a regular expression and keeps the others. It needs:

    pip install --no-deps timm==1.0.31 torchvision==0.28.0 segmentation_models_pytorch==0.6.0 \\
        efficientnet_lite_pytorch==0.1.0 pytorchcv==0.0.67 'huggingface_hub<1' tqdm pyyaml requests
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from signal import SIGXCPU
from tempfile import TemporaryDirectory
from typing import Any

from machine import headline, options, save
from networks_catalogue import BUILDERS, CATALOGUE
from networks_tables import outcome
from tabular import RESULTS, Row, result

HANGS = 10  # times the limit, by the clock
STAGES = Path(__file__).with_name("networks_stages.py")


def versions() -> dict[str, str]:
    try:
        return {package: version(package) for package in (*BUILDERS, "onnxruntime")}
    except PackageNotFoundError as error:
        sys.exit(f"{error}; {__doc__ and __doc__[__doc__.index('It needs') :]}")


def measure(name: str, limit: int) -> Row:
    """One network, in a process that may use `limit` seconds of processor time."""
    with TemporaryDirectory() as directory:
        lines, errors = Path(directory, "stages"), Path(directory, "errors")
        lines.touch()
        with errors.open("wb") as stderr:
            command = [sys.executable, str(STAGES), name, str(lines), str(limit)]
            environment = {**os.environ, "OMP_NUM_THREADS": "1"}
            process = subprocess.Popen(command, stderr=stderr, env=environment)
            try:
                status = process.wait(HANGS * limit)
                ended = f"{limit} s are over" if -status == SIGXCPU else f"exit status {status}"
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                ended = f"hangs, or had no processor for {HANGS * limit} s"
        events = [json.loads(line) for line in lines.read_text(encoding="utf-8").splitlines()]
        last = (errors.read_text(errors="replace").strip().splitlines() or [""])[-1]
    return collect(name, events, f"{ended} {last}".strip(), process.returncode == 0)


def collect(name: str, events: list[dict[str, Any]], ended: str, finished: bool) -> Row:
    """The lines that networks_stages.py wrote as one row."""
    row: Row = {"network": name, "seconds": {}, "failures": []}
    for event in (event for event in events if "stage" in event):
        stage = event.pop("stage")
        row["seconds"][stage] = round(event.pop("seconds"), 2)
        if failure := event.pop("failure", None):
            row["failures"].append({"stage": stage, **failure})
        row |= event
    if not finished:
        begun = next((event["begins"] for event in reversed(events) if "begins" in event), "build")
        failure = {"error": "ProcessError", "message": ended, "named": False, "at": ""}
        row["failures"].append({"stage": begun, **failure})
    return row


def chosen(only: str, resume: bool) -> tuple[list[str], dict[str, Row]]:
    """The networks to measure, and the rows to keep."""
    kept: dict[str, Row] = {}
    if (resume or only) and (RESULTS / "networks.json").exists():
        kept = {row["network"]: row for row in result("networks")["rows"]}
        kept = {name: kept[name] for name in CATALOGUE if name in kept}
    wanted = [name for name in CATALOGUE if re.search(only, name)]
    if resume:
        wanted = [name for name in wanted if name not in kept]
    return wanted, kept


def main() -> None:
    parser = options(__doc__, only="", resume=False, limit=120, jobs=1)
    arguments = parser.parse_args()
    packages = versions()
    wanted, rows = chosen(arguments.only, arguments.resume)
    print(f"{len(wanted)} networks, {headline()}", flush=True)
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for row in pool.map(lambda name: measure(name, arguments.limit), wanted):
            rows[row["network"]] = row
            ordered = [rows[name] for name in CATALOGUE if name in rows]
            path = save("networks", versions=packages, rows=ordered)
            seconds = sum(row["seconds"].values())
            print(f"{row['network']}: {seconds:.1f} s, {outcome(row)}", flush=True)
            for failure in row["failures"]:
                print("  {stage}: {error}: {message}".format(**failure), flush=True)
    if wanted:
        print(Counter(outcome(row) for row in rows.values()), path)


if __name__ == "__main__":
    main()
