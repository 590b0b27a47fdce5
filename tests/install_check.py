"""What the base package does with numpy alone; run by install_check.sh in a fresh environment.

usage: python -m tests.install_check NET, where a small .dbq file is written
"""

from __future__ import annotations

import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import dbq
from dbq.deploy.inspection import describe
from dbq.deploy.reference import run
from dbq.support.extras import EXTRAS
from tests.native.handmade import images_for, small_program


def main(path: Path) -> None:
    assert "site-packages" in dbq.__file__, f"{dbq.__file__} is not the installed package"
    present = [package for package in EXTRAS if find_spec(package)]
    assert not present, f"not a base install: {present}"
    program = small_program()
    program = replace(program, outputs=program.outputs[:1])  # one, as classifiers have
    dbq.save(program, path)
    images = images_for(program, 4)
    with dbq.load(path, threads=2) as net:
        assert np.array_equal(net(images), run(program, images)), "load and run"
        assert len(net.profile(images[0])) == len(net.describe().layers), "bench"
        print(net.describe())
    print(describe(dbq.load_program(path)))
    print(f"base: loaded, run, inspected and timed {path.name} with numpy {np.__version__} alone")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
