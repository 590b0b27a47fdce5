"""CMSIS-NN's int8 layers on the shapes of the Visual Wake Words network. -> results/mcu_peer.json

    python benchmarks/mcu_peer.py --cmsis-nn DIR [--machine arm-m4]

DIR is a copy of ARM-software/CMSIS-NN. Built with the compiler and flags of our networks, and counted
in the same way: instructions of QEMU, which are not cycles.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import tempfile
from importlib.resources import files
from pathlib import Path

from dbq.deploy.csource.boards.machines import machine_of
from dbq.deploy.csource.boards.verify import ICOUNT, OPTIMISE, SPIN_INSTRUCTIONS, _link_script

RESULTS = Path(__file__).parents[1] / "results" / "mcu_peer.json"
# Side of the input, channels, kernels (0: depthwise, 3x3 with padding), stride.
SHAPES = [
    (48, 8, 0, 1), (48, 8, 16, 1), (48, 16, 0, 2), (24, 16, 32, 1), (24, 32, 0, 1), (24, 32, 32, 1),
    (24, 32, 0, 2), (12, 32, 64, 1), (12, 64, 0, 1), (12, 64, 64, 1), (12, 64, 0, 2), (6, 64, 128, 1),
    (6, 128, 0, 1), (6, 128, 128, 1), (6, 128, 0, 2), (3, 128, 256, 1), (3, 256, 0, 1), (3, 256, 256, 1),
]  # fmt: skip
SOURCES = (
    "ConvolutionFunctions/arm_convolve_1x1_s8_fast.c",
    "ConvolutionFunctions/arm_depthwise_conv_wrapper_s8.c",
    "ConvolutionFunctions/arm_depthwise_conv_s8.c",
    "ConvolutionFunctions/arm_depthwise_conv_s8_opt.c",
    "ConvolutionFunctions/arm_depthwise_conv_3x3_s8.c",
    "ConvolutionFunctions/arm_depthwise_conv_get_buffer_sizes_s8.c",
)
CODE = """\
#include "arm_nnfunctions.h"
#include "board.h"
int peer_test(void);
void board_step(uint32_t step);
static int8_t in[40000], out[40000], weights[70000];
static int32_t bias[256], shifts[256], multipliers[256], buffer[8000];

static void pointwise(int32_t side, int32_t channels, int32_t kernels) {
    const cmsis_nn_conv_params p = {0, 0, {1, 1}, {0, 0}, {1, 1}, {-128, 127}};
    const cmsis_nn_per_channel_quant_params q = {multipliers, shifts};
    const cmsis_nn_context c = {buffer, sizeof buffer};
    const cmsis_nn_dims i = {1, side, side, channels}, f = {kernels, 1, 1, channels};
    const cmsis_nn_dims b = {1, 1, 1, kernels};
    const cmsis_nn_dims o = {1, side, side, kernels};
    (void)arm_convolve_1x1_s8_fast(&c, &p, &q, &i, in, &f, weights, &b, bias, &o, out);
}

static void depthwise(int32_t side, int32_t channels, int32_t stride) {
    const int32_t pad = stride == 1;
    const cmsis_nn_dw_conv_params p = {0, 0, 1, {stride, stride}, {pad, pad}, {1, 1}, {-128, 127}};
    const cmsis_nn_per_channel_quant_params q = {multipliers, shifts};
    const cmsis_nn_context c = {buffer, sizeof buffer};
    const cmsis_nn_dims i = {1, side, side, channels}, f = {1, 3, 3, channels}, b = {1, 1, 1, channels};
    const cmsis_nn_dims o = {1, side / stride, side / stride, channels};
    (void)arm_depthwise_conv_wrapper_s8(&c, &p, &q, &i, in, &f, weights, &b, bias, &o, out);
}

int peer_test(void) {
    for (int32_t i = 0; i < 256; i++) {
        shifts[i] = -8;
        multipliers[i] = 1500000000;
    }
    for (int32_t i = 0; i < 70000; i++) {
        weights[i] = (int8_t)(i * 37);
        in[i % 40000] = (int8_t)(i * 11);
    }
    board_step(0);
CALLS
    return 0;
}
"""


def call(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (command, done.stderr[-2000:], done.stdout[-500:])
    return done.stdout + done.stderr


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--cmsis-nn", type=Path, required=True)
    parser.add_argument("--commit", default="", help="of that copy, if it is no git repository")
    parser.add_argument("--machine", default="arm-m4")
    options = parser.parse_args()
    machine, root = machine_of(options.machine), options.cmsis_nn.resolve()
    calls = "".join(
        f"    {'pointwise' if kernels else 'depthwise'}({side}, {channels}, {kernels or stride});\n"
        f"    board_step({i + 1});\n"
        for i, (side, channels, kernels, stride) in enumerate(SHAPES)
    )
    with tempfile.TemporaryDirectory() as directory:
        folder, boards = Path(directory), files("dbq.deploy.csource.boards")
        for file in ("board.h", "main.c", machine.board):
            text = (boards / file).read_text(encoding="utf-8").replace("NAME_", "peer_")
            (folder / file).write_text(text, encoding="utf-8")
        (folder / "link.ld").write_text(_link_script(boards, machine), encoding="utf-8")
        (folder / "peer.c").write_text(CODE.replace("CALLS", calls), encoding="utf-8")
        support = [str(path) for path in (root / "Source" / "NNSupportFunctions").glob("*s8*.c")]
        support += [str(path) for path in (root / "Source" / "NNSupportFunctions").glob("*q7*.c")]
        sources = [str(root / "Source" / name) for name in SOURCES]
        call([machine.compiler, *machine.flags, *machine.link, *OPTIMISE, f"-I{root / 'Include'}",
              "-ffunction-sections", "-Wl,--gc-sections", "-nostartfiles", "-T", "link.ld",
              "peer.c", "main.c",
              machine.board, *sources, *sorted(set(support)), "-o", "a.elf"], folder)  # fmt: skip
        printed = call([*machine.emulator, "-display", "none", "-monitor", "none", "-serial", "none",
                        "-icount", ICOUNT, "-semihosting-config", "enable=on,target=native",
                        "-kernel", "a.elf"], folder)  # fmt: skip
    numbers = [(word, int(n)) for word, n in re.findall(r"^(\w+) (\d+)$", printed, re.M)]
    per_tick = SPIN_INSTRUCTIONS / dict(numbers)["spin"]
    counts = [round(n * per_tick) for word, n in numbers if word == "step"]
    rows = []
    for (side, channels, kernels, stride), count in zip(SHAPES, counts, strict=True):
        macs = (side // stride) ** 2 * channels * (kernels or 9)
        kind = (
            f"pointwise {channels} to {kernels}"
            if kernels
            else f"depthwise {channels}, stride {stride}"
        )
        rows.append({"layer": f"{kind}, {side} x {side}", "macs": macs, "instructions": count,
                     "per_mac": round(count / macs, 3)})  # fmt: skip
        print(rows[-1])
    commit = options.commit or call(["git", "-C", str(root), "rev-parse", "HEAD"], Path()).strip()
    content = {
        "machine": machine.name,
        "flags": " ".join(OPTIMISE),
        "cmsis_nn": commit,
        "layers": rows,
    }
    RESULTS.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
