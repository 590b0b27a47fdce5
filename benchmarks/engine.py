"""The native engine against onnxruntime and openvino: latency, throughput, memory, size, layer by layer.

    python benchmarks/engine.py [--networks NAME ...] [--threads 1 2] [--quick] [--prepare] [--files DIR]

Contenders take turns in one process for many rounds. A time is the median over rounds, a ratio the
median over rounds of (peer / ours in that round). A turn starts once the threads of all others sleep.
Peers get normalised float planes; ours takes uint8 images and normalises them itself. A peer counts only
if its 8-bit kernels agree with a float emulation of its quantized network. Networks are made once, in
--files; --prepare stops there. --quick takes few rounds and saves nothing. Weights are random: speed
depends on the share of zeros, which is shown. Results go to results/engine-ISA.json, by the best
instruction set of this machine.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from engine_files import NETWORKS, Network, inputs, make, say, zeros
from engine_runtimes import RUNTIMES, Run
from engine_tables import contender_cells, layer_cells
from machine import headline, options, save
from tabular import RESULTS, ROOT, Row, plain, result

import dbq
from dbq.deploy.engine import available_isas

ROUNDS, QUICK_ROUNDS = 21, 5
TURN = 0.03  # seconds of timed runs in a turn, roughly
BATCH = 16
# If other processes keep more processors than this busy, the numbers of a network are not saved.
QUIET = 0.1
CHECKED_IMAGES = 8


@dataclass(frozen=True)
class Contender:
    label: str
    runtime: str
    file: Path
    kind: str  # "ours", "int8", "float32"


def contenders(name: str, files: Path) -> list[Contender]:
    field = [(f"dbq {plan}", f"{plan}.dbq", "ours") for plan in NETWORKS[name].plans] + [
        ("onnxruntime int8", "int8.onnx", "int8"),
        ("openvino int8 (NNCF)", "nncf.xml", "int8"),
        ("openvino int8 (QDQ)", "int8.onnx", "int8"),
        ("onnxruntime float32", "float32.onnx", "float32"),
        ("openvino float32", "float32.onnx", "float32"),
    ]
    return [
        Contender(label, label.partition(" ")[0], files / f"{name}-{file}", kind)
        for label, file, kind in field
    ]


def start(contender: Contender, network: Network, threads: int, batch: int) -> Run:
    images, floats = inputs(network, batch)
    return RUNTIMES[contender.runtime](contender.file, threads, images, floats)


def wait_for_quiet() -> None:
    """Wait until this process uses no processor time: threads spin for a while after their last work."""
    for _ in range(100):
        before = time.process_time()
        time.sleep(0.002)
        if time.process_time() - before < 0.0004:
            return


def turn(run: Run, seconds: float) -> float:
    """Milliseconds of one run: the median of those that fit into `seconds`, after a warm-up."""
    wait_for_quiet()
    run()
    times: list[float] = []
    while not times or (sum(times) < seconds and len(times) < 50):
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return 1e3 * statistics.median(times)


def interleave(runs: dict[Any, Run], rounds: int, seconds: float = TURN) -> dict[Any, list[float]]:
    """Milliseconds by contender and round."""
    times: dict[Any, list[float]] = {key: [] for key in runs}
    for number in range(rounds):
        for key in runs if number % 2 else reversed(runs):
            times[key].append(turn(runs[key], seconds))
    return times


def correlation(contender: Contender, network: Network) -> float:
    """Correlation of logits with their float emulation, each class centred over the images."""
    images, floats = inputs(network, CHECKED_IMAGES)
    centred = []
    for emulate in (False, True):
        run = RUNTIMES[contender.runtime](contender.file, 1, images, floats, emulate=emulate)
        logits = np.array(run(), np.float64)
        centred.append((logits - logits.mean(axis=0)).ravel())
    return float(np.corrcoef(*centred)[0, 1])


def footprint(contender: Contender, network: Network) -> dict[str, float]:
    script = str(Path(__file__).with_name("engine_runtimes.py"))
    words = [script, contender.runtime, str(contender.file), "1", str(network.pixels)]
    output = subprocess.check_output([sys.executable, *words], text=True)
    found: dict[str, float] = json.loads(output)
    return found


def size(contender: Contender) -> int:
    """Bytes of the network on disk."""
    weights = [contender.file.with_suffix(".bin")] if contender.file.suffix == ".xml" else []
    return sum(file.stat().st_size for file in (contender.file, *weights))


def processor_seconds() -> float:
    """Used by all processes so far, including time stolen by other virtual machines."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    user, nice, system, _idle, _iowait, irq, softirq, stolen, *_ = map(int, fields)
    return (user + nice + system + irq + softirq + stolen) / os.sysconf("SC_CLK_TCK")


class Disturbance:
    """How many processors other processes kept busy since this was made."""

    def __init__(self) -> None:
        self.start = time.perf_counter(), processor_seconds(), time.process_time()

    def __call__(self) -> float:
        now = time.perf_counter(), processor_seconds(), time.process_time()
        seconds, everybody, own = (b - a for a, b in zip(self.start, now, strict=True))
        return max(0.0, (everybody - own) / seconds)


def measure(name: str, files: Path, threads: list[int], rounds: int) -> dict[str, Any]:
    network, field = NETWORKS[name], contenders(name, files)
    say(f"{name}: checking peers")
    close = {c.label: correlation(c, network) for c in field if c.kind == "int8"}
    say(f"{name}: batch 1, {rounds} rounds")
    runs = {(c.label, t): start(c, network, t, 1) for c in field for t in threads}
    disturbance = Disturbance()
    times = interleave(runs, rounds)
    busy = disturbance()
    runs.clear()
    say(f"{name}: batch {BATCH}")
    most = max(threads)
    batched = {c.label: start(c, network, most, BATCH) for c in field}
    batches = interleave(batched, max(3, rounds // 4), 0.0)
    say(f"{name}: memory")
    rows = [
        {"contender": c.label, "kind": c.kind,
         "ms": {str(t): statistics.median(times[c.label, t]) for t in threads},
         "images_per_second": 1e3 * BATCH / statistics.median(batches[c.label]),
         "correlation": close.get(c.label), "bytes": size(c), **footprint(c, network)}
        for c in field
    ]  # fmt: skip
    best = best_peers(rows, threads, network.least_correlation)
    for row in rows:
        pairs = {t: (times[best[t], t], times[row["contender"], t]) for t in threads}
        row["ratio"] = {str(t): median_ratio(*pair) for t, pair in pairs.items()}
    ours = {plan: files / f"{name}-{plan}.dbq" for plan in network.plans}
    return {
        "pixels": network.pixels, "rounds": rounds, "busy_processors_of_others": busy,
        "least_correlation": network.least_correlation, "batch_threads": most,
        "best_int8_peer": {str(t): best[t] for t in threads}, "contenders": rows,
        "zeros": {plan: zeros(path) for plan, path in ours.items()},
        "layers": {plan: layers(path, network) for plan, path in ours.items()},
    }  # fmt: skip


def median_ratio(above: list[float], below: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(above, below, strict=True))


def best_peers(rows: list[Row], threads: list[int], least: float) -> dict[int, str]:
    """The fastest correct int8 peer for each number of threads."""
    fair = [row for row in rows if row["kind"] == "int8" and row["correlation"] >= least]
    if not fair:
        sys.exit(f"no int8 peer is correct: {[(r['contender'], r['correlation']) for r in rows]}")
    return {t: min(fair, key=lambda row: row["ms"][str(t)])["contender"] for t in threads}


def layers(path: Path, network: Network, repeats: int = 15) -> list[Row]:
    """Each of our layers on one thread: microseconds and multiply-accumulates per second."""
    image = inputs(network, 1)[0]
    wait_for_quiet()
    with dbq.load(path) as net:
        profiles = [net.profile(image) for _ in range(repeats)]
        described = net.describe().layers
    medians = [statistics.median(times) for times in zip(*profiles, strict=True)]
    return [
        {"layer": layer.name, "kind": layer.kind, "precision": layer.precision,
         "kernel": layer.kernel, "us": us,
         "gmacs": layer.macs / us / 1e3 if us and layer.macs else None}
        for layer, us in zip(described, medians, strict=True)
    ]  # fmt: skip


CLOCK_SOURCE = """
#include <stdio.h>
#include <time.h>
int main(void) {
    struct timespec a, b; unsigned long x = 0, n = 200000000;
    clock_gettime(CLOCK_MONOTONIC, &a);
    for (unsigned long i = 0; i < n; i += 8)
        __asm__ volatile("add $1,%0\\nadd $1,%0\\nadd $1,%0\\nadd $1,%0\\n"
                         "add $1,%0\\nadd $1,%0\\nadd $1,%0\\nadd $1,%0" : "+r"(x));
    clock_gettime(CLOCK_MONOTONIC, &b);
    printf("%f", n / ((b.tv_sec - a.tv_sec) * 1e9 + (b.tv_nsec - a.tv_nsec)));
}
"""


def clock() -> float | None:
    """GHz, by a chain of additions that take a cycle each; None without an x86 compiler.

    In a virtual machine the clock that the system reports is not the processor's.
    """
    with tempfile.TemporaryDirectory() as directory:
        source, program = Path(directory, "clock.c"), Path(directory, "clock")
        source.write_text(CLOCK_SOURCE)
        try:
            subprocess.run(["cc", "-O1", "-o", program, source], check=True, capture_output=True)
            runs = [subprocess.run([program], check=True, capture_output=True) for _ in range(7)]
        except (OSError, subprocess.CalledProcessError):
            return None
    return max(float(run.stdout) for run in runs)


def file_of_this_machine() -> str:
    """One file for each kind of machine: numbers of two kinds are never mixed."""
    return f"engine-{available_isas()[-1]}"


def earlier(name: str) -> Row:
    """Networks already in results/NAME.json, of which only those measured now are replaced."""
    return dict(result(name)["networks"]) if (RESULTS / f"{name}.json").exists() else {}


def main() -> None:
    parser = options(__doc__, quick=False, prepare=False, files=ROOT / "build" / "engine")
    parser.add_argument("--networks", nargs="+", choices=list(NETWORKS), default=list(NETWORKS))
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    arguments = parser.parse_args()
    for name in arguments.networks:
        make(name, arguments.files)
    if arguments.prepare:
        return
    ghz = clock()
    versions = {p: version(p) for p in ("onnxruntime", "openvino", "nncf")}
    said = ", ".join(f"{package} {number}" for package, number in versions.items())
    print(f"inference, {headline()}, {said}, {ghz or 0:.2f} GHz, {os.cpu_count()} cores")
    rounds = QUICK_ROUNDS if arguments.quick else ROUNDS
    results = {}
    for name in arguments.networks:
        results[name] = found = measure(name, arguments.files, arguments.threads, rounds)
        busy = found["busy_processors_of_others"]
        print(f"{name}: other processes kept {busy:.2f} processors busy")
        print(plain(*contender_cells(found)), flush=True)
        for plan, rows in found["layers"].items():
            print(f"{name}, {plan}, one thread")
            print(plain(*layer_cells(rows, ghz), left=3), flush=True)
    if not arguments.quick:
        disturbed = [n for n, r in results.items() if r["busy_processors_of_others"] > QUIET]
        for name in disturbed:
            print(f"{name}: not saved, other processes were running: --networks {name} again")
        file = file_of_this_machine()
        merged = {**earlier(file), **{n: r for n, r in results.items() if n not in disturbed}}
        ordered = {name: merged[name] for name in NETWORKS if name in merged}
        command = "python benchmarks/engine.py"
        print(save(file, command, versions=versions, ghz=ghz, networks=ordered))


if __name__ == "__main__":
    main()
