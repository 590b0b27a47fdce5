"""to_c: the text of NAME.c and NAME.h, from the layers of a Program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dbq.deploy.csource.arena import Memory, plan_within
from dbq.deploy.csource.ctext import comment, identifier, numbers, require_identifier
from dbq.deploy.csource.exact.constants import without_constants
from dbq.deploy.csource.layers import HANDLERS, Emitter, Layer, image_place, tensor_text
from dbq.deploy.csource.scratch import ROW_BYTES
from dbq.deploy.csource.sections import in_order, sections
from dbq.deploy.program import Program
from dbq.errors import LoweringError
from dbq.version import __version__


@dataclass(frozen=True)
class Source:
    """The C text of a program, and what it is made of."""

    name: str
    program: Program
    memory: Memory
    layers: Sequence[Layer]
    sections: Sequence[str]
    code: str
    header: str


def to_c(program: Program, name: str = "", ram: int | None = None) -> Source:
    """The text of NAME.c and NAME.h. The same program gives the same bytes.

    Channels that cannot change an output are left out; `Source.program` is what the text computes.
    With `ram`, an arena of at most as many bytes if there is one, at the price of more instructions.
    """
    require_known(program)
    return to_c_as_it_is(without_constants(program), name, ram)


def to_c_as_it_is(program: Program, name: str = "", ram: int | None = None) -> Source:
    """`to_c` of all channels, dead ones too."""
    name = require_identifier(name) if name else identifier(program.name)
    memory = plan_within(program, ram)
    layers = Emitter(program, memory).layers()
    used = in_order(set().union(*(layer.sections for layer in layers), {"tensor"}))
    header = _header(program, name, memory)
    code = _code(program, name, memory, layers, used)
    return Source(name, program, memory, layers, used, code, header)


def require_known(program: Program) -> None:
    """Raise LoweringError for operations that have no C form, all of them by name."""
    lacking = [f"{op.name} ({op.kind})" for op in program.operations if op.kind not in HANDLERS]
    if lacking:
        raise LoweringError(f"no C form of {', '.join(lacking)}")


def _floats(program: Program) -> list[int]:
    """Where each output begins in the floats that are returned, and their number behind that."""
    sizes = [int(np.prod(program.tensors[out.tensor].shape)) for out in program.outputs]
    return [0, *np.cumsum(sizes).tolist()]


def _header(program: Program, name: str, memory: Memory) -> str:
    channels, height, width = program.input_shape
    big, starts = name.upper(), _floats(program)
    outputs = "".join(
        f"#define {big}_OUTPUT_{i} {start} /* {comment(out.name) or 'the output'}: "
        f"{' x '.join(map(str, program.tensors[out.tensor].shape))} */\n"
        for i, (out, start) in enumerate(zip(program.outputs, starts, strict=False))
    )
    return f"""\
/* {comment(program.name)}: a network as C source, written by dbq {__version__}. */
#ifndef {big}_H
#define {big}_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

#define {big}_HEIGHT {height}
#define {big}_WIDTH {width}
#define {big}_CHANNELS {channels}
#define {big}_OUTPUTS {starts[-1]} /* floats in all; each output begins at: */
{outputs}\
#define {big}_ARENA {memory.bytes} /* bytes of RAM, static, that a run needs */

/* Runs the network: pixels [height][width][channels] in, {big}_OUTPUTS floats out. Returns the number of
 * the largest float of the first output: the class. One run at a time; nothing is allocated. */
int {name}_run(const uint8_t *image, float *out);

/* A place for the image inside of the arena, overwritten by the run: saves a buffer of your own. */
uint8_t *{name}_image(void);

#ifdef __cplusplus
}}
#endif

#endif
"""


def _code(
    program: Program, name: str, memory: Memory, layers: Sequence[Layer], used: Sequence[str]
) -> str:
    big = name.upper()
    starts = dict(zip((out.tensor for out in program.outputs), _floats(program), strict=False))
    places = {**memory.tensors, **starts}
    tensors = "".join(
        tensor_text(program, i, places[i]) for i in range(len(program.tensors)) if i in places
    )
    functions = "\n".join(sections()[section][1] for section in used)
    functions = (
        functions.replace("ROW_PAIRS", numbers(row_pairs()))
        .replace("SPREAD_TRITS", numbers(spread_trits()))
        .replace("IMAGE_PIXELS", "image")
        .replace("NAME_", f"{big}_")
    )
    first = program.tensors[program.output].shape
    simd = "#if defined(__ARM_FEATURE_SIMD32)\n#include <arm_acle.h>\n#endif\n"
    calls = [
        f"    /* {i}: {_describe(program, layer)} */\n"
        + (f"    {layer.call}\n" if layer.call else "")
        + f"    {big}_STEP({i + 1}u);\n"
        for i, layer in enumerate(layers)
    ]
    data = [f"/* {i}: {comment(layer.op.name)} */\n" + "\n".join(layer.data)
            for i, layer in enumerate(layers) if layer.data]  # fmt: skip
    return f"""\
/* {comment(program.name)}: a network as C source, written by dbq {__version__}.
 * C99 and two's complement, arithmetic right shifts of negative numbers, little-endian. Integers only:
 * results are the same bits on every machine, and those of the .dbq file. */
#include "{name}.h"

#include <string.h>
{simd if {"dense", "depthwise", "ternary"} & set(used) else ""}
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "{name}.c needs a little-endian processor"
#endif

/* The RAM of a run. To place it: -D{big}_ARENA_ATTRIBUTE='__attribute__((section(".dtcm")))' */
#ifndef {big}_ARENA_ATTRIBUTE
#define {big}_ARENA_ATTRIBUTE
#endif
#ifndef {big}_ARENA_SIZE
#define {big}_ARENA_SIZE {big}_ARENA
#endif
#if {big}_ARENA_SIZE < {memory.bytes}
#error "{big}_ARENA_SIZE is too small: {name} needs {memory.bytes} bytes"
#endif
#ifndef {big}_STEP
#define {big}_STEP(step) (void)0 /* called at the start and behind each layer, for measurements */
#endif

#if defined(__GNUC__)
#define APART __attribute__((noinline)) /* faster: its registers are its own */
#define OPTIONAL __attribute__((unused)) /* some processors have a faster function */
#else
#define APART
#define OPTIONAL
#endif

static uint32_t arena[{big}_ARENA_SIZE / 4] {big}_ARENA_ATTRIBUTE;
static const uint8_t *image; /* both of the run in progress */
static float *output;

{functions}
/* Tensors: place, elements from channel to channel, channels, height, width. */
{tensors}
{chr(10).join(data)}
uint8_t *{name}_image(void) {{
    return (uint8_t *)arena + {image_place(memory)}u;
}}

int {name}_run(const uint8_t *pixels_in, float *out) {{
    image = pixels_in;
    output = out;
    {big}_STEP(0u);
{"".join(calls)}\
    /* The largest float: their bits, read as integers, are in the same order. */
    int best = 0;
    uint32_t most = 0u;
    for (int i = 0; i < {int(np.prod(first))}; i++) {{
        uint32_t bits;
        (void)memcpy(&bits, &out[i], sizeof bits);
        bits = (bits >> 31) != 0u ? ~bits : bits | 0x80000000u;
        if (bits > most) {{
            most = bits;
            best = i;
        }}
    }}
    return best;
}}
"""


def _describe(program: Program, layer: Layer) -> str:
    op = layer.op
    outputs = ", ".join(
        f"{program.tensors[i].type} {'x'.join(map(str, program.tensors[i].shape))}"
        for i in op.writes
    )
    precision = getattr(op, "precision", "")
    words = [op.name, op.kind, precision, f"-> {outputs};", layer.method]
    return comment(" ".join(word for word in words if word))


def row_pairs() -> npt.NDArray[np.uint32]:
    """Of a byte of five trits: bytes to skip for the row of the first three and of the last two."""
    three, two = ({trits: i for i, trits in enumerate(_row_order(n))} for n in (3, 2))
    trits = [tuple(byte // 3**i % 3 - 1 for i in range(5)) for byte in range(243)]
    pairs = [three[t[:3]] * ROW_BYTES | (27 + two[t[3:]]) * ROW_BYTES << 16 for t in trits]
    return np.array(pairs, np.uint32)


def _row_order(taps: int) -> list[tuple[int, ...]]:
    """The sums of a table in the order of kernels/ternary.c: from each to the next, one tap changes.

    >>> _row_order(2)
    [(1, 1), (0, 1), (-1, 1), (-1, 0), (0, 0), (1, 0), (1, -1), (0, -1), (-1, -1)]
    """
    if taps == 0:
        return [()]
    inner = _row_order(taps - 1)
    return [
        (*trits, last) for last in (1, 0, -1) for trits in (inner[::-1] if last == 0 else inner)
    ]


def spread_trits() -> npt.NDArray[np.uint32]:
    """Of a byte of five trits: each times its power of two, for kernels/ternary.c."""
    byte = np.arange(243, dtype=np.int64)
    trits = (byte // 3**i % 3 - 1 for i in range(5))
    total = sum(trit << shift for trit, shift in zip(trits, (12, 28, 8, 24, 4), strict=True))
    spread: npt.NDArray[np.uint32] = np.asarray(total & 0xFFFFFFFF).astype(np.uint32)
    return spread
