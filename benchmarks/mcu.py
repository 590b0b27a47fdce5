"""Networks as C source on emulated microcontrollers: instructions, flash, RAM. -> results/mcu.json

    python benchmarks/mcu.py a.dbq b.dbq [--compact] [--machines arm-m0,arm-m4]

Instructions are counted by QEMU and are the same in every run; they are not cycles. MACs are those of
the network as it was trained; channels that are always the same are left out by `to_c`. Files are
networks that `dbq export` wrote. Those of the page are, with --compact and in this order,
mobilenet_v1-vww-1t.dbq and mobilenet_v1-vww-2t.dbq of benchmarks/wake_words.py, and resnet20-2t.dbq,
digits-1t.dbq and digits-2t.dbq of benchmarks/mcu_files.py.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dbq.deploy.csource.boards.machines import MACHINES, machine_of
from dbq.deploy.csource.boards.verify import OPTIMISE, verify
from dbq.deploy.csource.exact.compact import compacted
from dbq.deploy.csource.exact.constants import removed_channels
from dbq.deploy.csource.footprint import footprint_of
from dbq.deploy.csource.source import to_c, to_c_as_it_is
from dbq.deploy.file.fileformat import load_program
from dbq.deploy.operations.convolution import Convolution
from dbq.deploy.window import Window

RESULTS = Path(__file__).parents[1] / "results" / "mcu.json"


DENSE = ("arm-m4", "arm-m0")


def per_mac(instructions: Sequence[int], macs: Sequence[int]) -> float:
    return round(sum(instructions) / max(1, sum(macs)), 3)


def measure(file: Path, machines: list[str], compact: bool) -> dict[str, Any]:
    program = load_program(file)
    program = compacted(program) if compact else program
    source, whole = to_c(program, "net"), to_c_as_it_is(program, "net")
    macs = [program.macs(op) for op in program.operations]
    left = [source.program.macs(op) for op in source.program.operations]
    pointwise = [
        isinstance(op, Convolution) and op.bits is None and op.window == Window((1, 1))
        for op in program.operations
    ]
    rows = []
    for machine in machines:
        found = verify(source, machine_of(machine))
        layers = [
            (op.name, n, m, is_pointwise)
            for op, n, m, is_pointwise in zip(
                program.operations, found.instructions, macs, pointwise, strict=True
            )
        ]
        inside = [(n, m) for _, n, m, is_pointwise in layers if is_pointwise]
        rows.append({
            "machine": machine, "processor": found.processor, "outputs": found.compared,
            "outputs_wrong": found.wrong, "instructions": found.total,
            "instructions_per_mac": round(found.total / sum(macs), 3),
            "pointwise_per_mac": per_mac([n for n, _ in inside], [m for _, m in inside]),
            "flash": found.flash, "ram": found.ram, "stack_bound": found.stack_bound,
            "float_calls": list(found.float_calls),
            "pointwise_per_mac_left": per_mac(
                [n for _, n, _, is_one in layers if is_one],
                [m for m, is_one in zip(left, pointwise, strict=True) if is_one]),
            "layers": {name: [n, m] for name, n, m, _ in layers},
        })  # fmt: skip
        if machine in DENSE:  # nothing left out: what the kernels themselves take
            every = verify(whole, machine_of(machine))
            rows[-1]["all_channels"] = {
                "instructions": every.total, "instructions_per_mac": per_mac(every.instructions, macs),
                "pointwise_per_mac": per_mac(
                    [n for n, is_one in zip(every.instructions, pointwise, strict=True) if is_one],
                    [m for m, is_one in zip(macs, pointwise, strict=True) if is_one]),
                "flash": every.flash, "outputs_wrong": every.wrong,
                "layers": {op.name: n for op, n in zip(
                    program.operations, every.instructions, strict=True)},
            }  # fmt: skip
        print(
            file.name,
            {k: v for k, v in rows[-1].items() if k not in ("layers", "all_channels")},
            flush=True,
        )
    size = footprint_of(source)
    return {"file": file.name, "compact": compact, "macs": sum(macs),
            "macs_left": sum(left),
            "channels_left_out": removed_channels(program, source.program),
            "estimated_flash": size.flash, "arena": size.arena, "machines": rows}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--machines", default=",".join(MACHINES))
    parser.add_argument("--compact", action="store_true")
    options = parser.parse_args()
    networks = [measure(f, options.machines.split(","), options.compact) for f in options.files]
    RESULTS.write_text(
        json.dumps({"flags": " ".join(OPTIMISE), "networks": networks}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
