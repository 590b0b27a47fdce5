"""Try to break dbq: kills, full disks, jumping clocks, mutated files, hostile input, threads.

    python benchmarks/torture.py [--minutes 30] [--seed 0] [--only NAME]

Half of the time goes to trainings, half to readers and the engine. Every attack is struck again and
again, with dice of its own (a repeated seed makes the same changes; when a kill arrives is up to the
machine), in a process of its own: a crash, a hang, a wrong result or an unbounded amount of memory is
a finding. The table at the end, which Ctrl-C brings forward, counts what was done; with a finding, the
exit code is 1.

results/torture.json is written by a full campaign only (no --only); `pages.py` puts it into
docs/reliability.md.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[1]))  # for tests/
os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: processes are forked

import torture_files
import torture_runs
from machine import headline, options, save
from tabular import Row, plain
from torture_files import Attack
from torture_table import HEADS, cells

from tests.disturbances import NotHereError

HANG = 900  # seconds: no strike takes a tenth of that
MOST_MEMORY = 3 * 2**29  # bytes: the largest image that is read takes a gigabyte


@dataclass
class Record:
    """What became of one attack."""

    attack: Attack
    share: float  # of the time
    seconds: float = 0.0
    strikes: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)
    skipped: str = ""

    @property
    def name(self) -> str:
        return self.attack.__name__.replace("_", " ")


def strike(record: Record, seed: str, base: Path) -> None:
    """One strike in a child; what it counted, or what was found."""
    ours, theirs = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(
        target=_in_child, args=(record.attack, seed, base, theirs)
    )
    begin = time.monotonic()
    child.start()
    theirs.close()
    said = None
    if ours.poll(HANG):
        try:
            said = ours.recv()
        except EOFError:  # it died
            child.join()
    else:
        os.killpg(child.pid or 0, signal.SIGKILL)
        said = f"hangs: nothing after {HANG} seconds"
    child.join()
    record.seconds += time.monotonic() - begin
    record.strikes += 1
    match said:
        case Counter():
            record.counts += said
        case NotHereError():
            record.skipped = str(said)
        case _:
            finding = said or f"died with {child.exitcode}"
            print(f"{record.name}, seed {seed}: {finding}", flush=True)
            record.findings.append(finding)


def _in_child(attack: Attack, seed: str, base: Path, pipe: Connection) -> None:
    os.setpgrp()
    with tempfile.TemporaryDirectory() as work:
        try:
            counts = attack(Random(seed), Path(work), base)
            memory = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            assert memory < MOST_MEMORY, f"{memory} bytes of memory"
            pipe.send(counts)
        except NotHereError as error:
            pipe.send(error)
        except BaseException:
            pipe.send(traceback.format_exc())


def campaign(records: list[Record], minutes: float, seed: int, base: Path) -> None:
    """Strike with whoever has had the least of its share of the time, until the time is over.

    After Ctrl-C the strike at work is the last: it has disks to unmount and files to remove.
    """
    end = time.monotonic() + 60 * minutes
    asked: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: asked.append(number))
    while time.monotonic() < end and not asked:
        open_ = [record for record in records if not record.skipped]
        record = min(open_, key=lambda record: record.seconds / record.share)
        strike(record, f"{seed}/{record.name}/{record.strikes}", base)


def rows(records: list[Record]) -> list[Row]:
    return [
        {
            "attack": record.name,
            "strikes": record.strikes,
            "counts": dict(record.counts),
            "skipped": record.skipped,
            "findings": len(record.findings),
        }
        for record in records
    ]


def main() -> None:
    arguments = options(__doc__, minutes=30.0, seed=0, only="").parse_args()
    records = [
        Record(attack, 0.5 / len(attacks))
        for attacks in (torture_runs.ATTACKS, torture_files.ATTACKS)
        for attack in attacks
        if arguments.only in ("", attack.__name__)
    ]
    print(headline(), flush=True)
    with tempfile.TemporaryDirectory() as base:
        torture_runs.prepare(Path(base))
        begin = time.monotonic()
        campaign(records, arguments.minutes, arguments.seed, Path(base))
        minutes = (time.monotonic() - begin) / 60
    print(plain(HEADS, map(cells, rows(records)), left=2))
    if not arguments.only:
        command = f"python benchmarks/torture.py --minutes {arguments.minutes:g}"
        command += f" --seed {arguments.seed}" if arguments.seed else ""
        save("torture", command, minutes=round(minutes, 1), rows=rows(records))
    sys.exit(any(record.findings for record in records))


if __name__ == "__main__":
    main()
