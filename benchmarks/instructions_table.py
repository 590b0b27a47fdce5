"""The table of inner loops in docs/engine.md, from results/instructions.json."""

from __future__ import annotations

from collections.abc import Callable

from tabular import result, table


def instructions() -> str:
    loops = result("instructions")["loops"]
    cpus = list(loops[0]["multiply_adds_a_cycle"])
    heads = ["inner loop", "vector arithmetic a multiply-add", "with vector loads", "all instructions",
             *[f"modelled: {cpu}" for cpu in cpus]]  # fmt: skip
    rows = []
    for loop in loops:
        macs, work = loop["multiply_adds"], loop["vector_instructions"]
        counts = (work, work + loop["vector_loads"], loop["instructions"])
        cycles = loop["multiply_adds_a_cycle"]
        rows.append([loop["what"], *[f"1/{macs / count:.1f}" for count in counts],
                     *[f"{cycles[cpu]:.1f}" if cpu in cycles else "" for cpu in cpus]])  # fmt: skip
    return table(heads, rows)


def origin() -> str:
    """Not of a machine: nothing was timed."""
    found = result("instructions")
    versions = found["versions"]
    return (
        "[`results/instructions.json`](../results/instructions.json), "
        f"`{found['command']}`, {found['date']}: "
        f"{versions['compiler']}, XNNPACK {versions['XNNPACK']}, llvm-mca 14."
    )


TABLES: dict[str, Callable[[], str]] = {
    "instructions": instructions,
    "counted instructions": origin,
}
