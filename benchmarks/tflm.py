"""MLPerf Tiny's Visual Wake Words network in TensorFlow Lite Micro, weights compressed, against libdbq.

    python benchmarks/tflm.py --photographs DIR [--weights FILE]

Needs tflite_micro. Photographs below DIR, without labels: the first ones, in the order of their names,
quantize the network, and classes are compared on the others. -> results/tflm.json
"""

from __future__ import annotations

import tempfile
from importlib.metadata import version
from pathlib import Path

import numpy as np
from machine import headline, options, save
from tabular import ROOT, show
from tflite_micro.python.tflite_micro import runtime
from wake_words import as_tensor, network, square

import dbq
from dbq.experiments.bridges.tflm import export_tflm, input_codes

PLANS = ("dbq-1t-a8", "dbq-2t-4", "fx8-3")
CALIBRATION, TEST, ARENA = 200, 300, 400_000
COLUMNS = {"plan": "{plan}", "images": "{images}", "different": "{different}",
           "bytes of .tflite": "{tflite:,}", "bytes of .dbq": "{dbq:,}"}  # fmt: skip


def main() -> None:
    arguments = options(
        __doc__, photographs=Path("photographs"),
        weights=ROOT / "data/mobilenet_v1-0.25-vww96.safetensors",
    ).parse_args()  # fmt: skip
    files = sorted(
        p for p in arguments.photographs.rglob("*") if p.suffix.lower() in (".jpg", ".jpeg")
    )
    chosen = files[:: max(len(files) // (CALIBRATION + TEST), 1)][: CALIBRATION + TEST]
    pixels = np.stack([square(file) for file in chosen])
    some, test = pixels[::2][:CALIBRATION], pixels[1::2][:TEST]
    rows = []
    for plan in PLANS:
        model = network(arguments.weights)
        dbq.quantize(model, plan, as_tensor(some), budget="fast")
        program = dbq.lower(model, as_tensor(some[:8]), report=None)
        with tempfile.TemporaryDirectory() as folder:
            small, file = Path(folder, "net.dbq"), Path(folder, "net.tflite")
            dbq.save(program, small)
            export_tflm(program, file, some)
            sizes = {"tflite": file.stat().st_size, "dbq": small.stat().st_size}
            expected = dbq.load(small)(test).argmax(1)
            interpreter = runtime.Interpreter.from_file(str(file), arena_size=ARENA)
        found = []
        for codes in input_codes(program, test):
            interpreter.set_input(codes[None], 0)
            interpreter.invoke()
            found.append(interpreter.get_output(0).argmax())
        different = int((np.array(found) != expected).sum())
        rows.append({"plan": plan, "images": len(test), "different": different,
                     "persons": int(expected.sum()), **sizes})  # fmt: skip
    print(f"Visual Wake Words in TFLM, {headline()}")
    print(show(COLUMNS, rows, left=1))
    print(save("tflm", versions={"tflite_micro": version("tflite_micro")}, rows=rows))


if __name__ == "__main__":
    main()
