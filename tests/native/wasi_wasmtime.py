"""Runs a test program for WASI in wasmtime: python wasi_wasmtime.py PROGRAM.wasm [ARGUMENT ...]."""

from __future__ import annotations

import sys
from typing import Any

from wasmtime import Engine, ExitTrap, Linker, Module, Store, WasiConfig


def main(arguments: list[str]) -> int:
    engine = Engine()
    store, linker = Store(engine), Linker(engine)
    linker.define_wasi()
    wasi = WasiConfig()
    wasi.argv = arguments
    wasi.inherit_stdout()
    wasi.inherit_stderr()
    wasi.preopen_dir("/", "/")
    store.set_wasi(wasi)
    instance = linker.instantiate(store, Module.from_file(engine, arguments[0]))
    start: Any = instance.exports(store)["_start"]
    try:
        start(store)
    except ExitTrap as trap:
        return int(trap.code)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
