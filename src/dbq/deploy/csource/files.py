"""export_c: the files of a network as C source. NAME.c, NAME.h, a test of every output, a README."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dbq.deploy import reference
from dbq.deploy.csource.ctext import bits, numbers
from dbq.deploy.csource.exact.compact import compacted
from dbq.deploy.csource.footprint import Footprint, footprint_of
from dbq.deploy.csource.layouts import arranged
from dbq.deploy.csource.source import Source, require_known, to_c
from dbq.deploy.file.fileformat import write_program
from dbq.deploy.program import Program
from dbq.support.atomic import write_atomically

CASES = 2


@dataclass(frozen=True)
class ExportedC:
    """What `export_c` wrote. Prints as a table of flash and RAM, layer by layer."""

    source: Source
    footprint: Footprint
    files: tuple[Path, ...]

    def __str__(self) -> str:
        return str(self.footprint)


def export_c(
    program: Program,
    directory: str | os.PathLike[str],
    name: str = "",
    *,
    compact: bool = False,
    flash: int | None = None,
    ram: int | None = None,
    layout: str = "",
) -> ExportedC:
    """Write `program` as C99 source that needs no library, no floats and no allocation.

    NAME.c and NAME.h are the network, NAME_test.c compares every output with the reference. Results
    are the bits of the program. With `compact`, scales are shortened first: the network is then another
    one, NAME.dbq, and its files are written beside it. `flash` and `ram` are budgets in bytes;
    a network that exceeds one is refused before anything is written. `layout` is arduino, zephyr or
    cmsis-pack: the C files are then in src/, beside what makes them a library there.

    >>> import dbq, tempfile, torch
    >>> model = dbq.create_model("resnet20").eval()
    >>> images = torch.rand(2, 3, 32, 32)
    >>> _ = dbq.prepare(model, "resnet-2t-a8", images), dbq.calibrate(model, [images])
    >>> program = dbq.lower(model, images, report=None)
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     [file.name for file in dbq.export_c(program, directory, "net").files]
    ['net.c', 'net.h', 'net_test.c', 'README.md']
    """
    require_known(program)
    program = compacted(program) if compact else program
    source = to_c(program, name, ram)
    size = footprint_of(source)
    size.require(flash, ram)
    plain = {f"{source.name}.c": source.code, f"{source.name}.h": source.header}
    texts = {
        **(arranged(source, layout) if layout else plain),
        f"{'test/' if layout else ''}{source.name}_test.c": comparison_text(program, source.name),
        "README.md": readme_text(source, size),
    }
    contents = {file: text.encode() for file, text in texts.items()}
    if compact:
        contents[f"{source.name}.dbq"] = write_program(program)
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    for file, content in contents.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / file, content)
    return ExportedC(source, size, tuple(folder / file for file in contents))


def readme_text(source: Source, size: Footprint) -> str:
    name, big = source.name, source.name.upper()
    channels, height, width = source.program.input_shape
    return f"""\
# {name}

A network as C source, written by dbq. About {size.flash:,} bytes of flash, {size.arena:,} bytes of
static RAM (`{big}_ARENA`), less than 2 kB of stack. C99 with memcpy and memset; no float library, no
malloc.

```c
#include "{name}.h"

uint8_t *image = {name}_image();   /* {height} x {width} x {channels} bytes inside of the arena */
float out[{big}_OUTPUTS];
int best = {name}_run(image, out); /* the number of the largest output */
```

Add {name}.c and {name}.h to your project and compile with -O2. {name}_test.c is a program of its own: it
returns 0 if every output of {CASES} images has the expected bits.

| macro | meaning |
|---|---|
| `{big}_ARENA_ATTRIBUTE` | where the arena is placed, such as `__attribute__((section(".dtcm")))` |
| `{big}_ARENA_SIZE` | bytes of the arena; less than needed is an error of the compiler |
| `{big}_NO_MULTIPLIER` | multiply by shifts and additions; RISC-V without M does so by itself |
| `{big}_STEP(n)` | called at the start (0) and behind each layer, for measurements |
"""


def images_of(program: Program, cases: int = CASES) -> npt.NDArray[np.uint8]:
    """Noise on slopes: the images that the C test makes for itself."""
    channels, height, width = program.input_shape
    i = np.arange(height * width * channels, dtype=np.uint64)
    x, y = i // channels % width, i // channels // width
    images = []
    for case in range(cases):
        state = (i + 1) * 2654435761 + np.uint64(case * 40503) & 0xFFFFFFFF
        state = (state ^ state >> 15) * 2246822519 & 0xFFFFFFFF
        noise = (state ^ state >> 13) >> np.uint64(24 if case % 2 == 0 else 27)
        slope = (x * (case % 4) + y * (case // 2 % 4)) * np.uint64(case % 2)
        images.append((noise + slope & 255).astype(np.uint8).reshape(height, width, channels))
    return np.stack(images)


def expected_outputs(program: Program, images: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """All outputs of each image, one behind the other, by the specification."""
    found = reference.run(program, images)
    outputs = list(found.values()) if isinstance(found, dict) else [found]
    return np.concatenate([output.reshape(len(images), -1) for output in outputs], axis=1)


def comparison_text(program: Program, name: str, cases: int = CASES) -> str:
    expected = bits(expected_outputs(program, images_of(program, cases)))
    big = name.upper()
    return f"""\
/* Every output of {name} on {cases} images, bit for bit: main returns 0 if all is well. */
#include "{name}.h"

#include <string.h>

int {name}_test(void);

static const uint32_t expected[{expected.size}] = {{
{numbers(expected)}
}};

static void fill(uint8_t *image, uint32_t n) {{
    for (uint32_t i = 0u; i < {big}_HEIGHT * {big}_WIDTH * {big}_CHANNELS; i++) {{
        const uint32_t x = i / {big}_CHANNELS % {big}_WIDTH;
        const uint32_t y = i / {big}_CHANNELS / {big}_WIDTH;
        uint32_t state = (i + 1u) * 2654435761u + n * 40503u;
        state = (state ^ (state >> 15)) * 2246822519u;
        state = (state ^ (state >> 13)) >> (n % 2u == 0u ? 24u : 27u);
        image[i] = (uint8_t)((state + (x * (n % 4u) + y * (n / 2u % 4u)) * (n % 2u)) & 255u);
    }}
}}

/* How many of the {expected.size} floats differ. */
int {name}_test(void) {{
    static float out[{big}_OUTPUTS];
    int wrong = 0;
    for (uint32_t n = 0u; n < {cases}u; n++) {{
        fill({name}_image(), n);
        (void){name}_run({name}_image(), out);
        for (uint32_t i = 0u; i < {big}_OUTPUTS; i++) {{
            wrong += memcmp(&out[i], &expected[n * {big}_OUTPUTS + i], sizeof out[i]) != 0 ? 1 : 0;
        }}
    }}
    return wrong;
}}

#ifndef {big}_NO_MAIN
int main(void) {{
    return {name}_test() == 0 ? 0 : 1;
}}
#endif
"""
