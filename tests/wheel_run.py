"""A wheel on another processor; run by wheels.sh: python -m tests.wheel_run ISA, that must be chosen."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import dbq
from dbq.deploy.engine import available_isas
from dbq.deploy.page.page import can_write_pages
from dbq.deploy.reference import run
from tests.native.handmade import images_for, small_program


def main(isa: str) -> None:
    program = small_program()
    images = images_for(program, 4)
    expected = run(program, images)
    with TemporaryDirectory() as directory:
        path = Path(directory) / "net.dbq"
        dbq.save(program, path)
        for forced in ("", *available_isas()):
            os.environ["DBQ_ISA"] = forced
            with dbq.load(path) as net:
                assert net.isa == (forced or isa), net.isa
                kernels = {
                    layer.kernel.split()[-1] for layer in net.describe().layers if layer.kernel
                }
                assert kernels <= {net.isa, "scalar"}, kernels
                assert net.isa in kernels, kernels
                found = net(images)
                assert all(np.array_equal(found[name], expected[name]) for name in expected)
    assert can_write_pages()
    print(f"{platform.machine()}: {isa} of {' '.join(available_isas())}, numpy {np.__version__}")


if __name__ == "__main__":
    main(sys.argv[1])
