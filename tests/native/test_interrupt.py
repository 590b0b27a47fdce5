"""Small files with hours of work: refused beyond a limit, and ended by a cancellation or by Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from dbq.deploy.bench import measure
from dbq.deploy.engine import Net, available_isas, load
from dbq.deploy.file.fileformat import load_program, save, write_program
from dbq.deploy.operations.convolution import Convolution
from dbq.deploy.operations.lookup import Lookup
from dbq.deploy.program import Output, Program
from dbq.deploy.tensors import Result, Shape, Tensor
from dbq.deploy.window import Window
from dbq.errors import EngineError, FileFormatError
from tests.native.handmade import images_for, small_program

pytestmark = pytest.mark.native

LONG = 60  # seconds: far more than ending a call takes, far less than the call


def absurd(side: int, kernels: int, branches: int, groups: int = 1) -> Program:
    """One convolution with kernels of 255 x 255 for every pixel of a large image."""
    window = Window((255, 255), (1, 1), (127, 127))
    codes = np.ones((branches, kernels, 1, 255, 255), np.int8)
    scales = np.ones((kernels, branches), np.float32)
    shape = Shape(groups, side, side)
    tensors = (Tensor("u8", shape, 1.0), Tensor("f32", shape._replace(channels=kernels), 1.0))
    result = Result(1, 0, 0, scales, scales[:, 0])
    convolution = Convolution("absurd", (result,), 0, window, groups, codes, None)
    lookup = Lookup("image", 0, np.ones((groups, 256), np.uint8))
    return Program("absurd", tensors, (lookup, convolution), (Output(1),))


DENSE = absurd(4096, kernels=2, branches=3)


def cancelled(net: Net) -> list[BaseException]:
    """What running `net` raises if somebody cancels it."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            net(np.zeros(net.input_shape, np.uint8))
        except EngineError as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    time.sleep(0.2)
    end = time.monotonic() + LONG
    while thread.is_alive() and time.monotonic() < end:
        net._library.dbq_cancel(net._open)
        thread.join(0.02)
    assert not thread.is_alive()
    return errors


@pytest.mark.parametrize("isa", available_isas())
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    "program",
    [DENSE, absurd(2048, 11, 3), absurd(4096, 2, 3, groups=2)],
    ids=["dense", "table", "depthwise"],
)
def test_a_call_in_progress_can_be_cancelled(
    program: Program, threads: int, isa: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DBQ_ISA", isa)
    with load(write_program(program), threads) as net:
        (error,) = cancelled(net)
    assert "dbq_cancel" in str(error)


def test_later_calls_are_not_affected() -> None:
    program = small_program()
    images = images_for(program, 3)
    with load(write_program(program)) as net:
        expected = net(images)
        net._library.dbq_cancel(net._open)
        found = net(images)
        for name, logits in expected.items():
            np.testing.assert_array_equal(found[name], logits)


SCRIPT = """
import signal, sys
import numpy as np
from dbq.deploy.engine import load
signal.signal(signal.SIGINT, signal.default_int_handler)
with load(sys.argv[1], threads=2) as net:
    image = np.zeros(net.input_shape, np.uint8)
    print("ready", flush=True)
    try:
        net.profile(image) if sys.argv[2] == "profile" else net(image)
    except KeyboardInterrupt:
        print("interrupted")
"""


@pytest.mark.process
@pytest.mark.parametrize("what", ["run", "profile"])
def test_ctrl_c(what: str, tmp_path: Path) -> None:
    save(DENSE, tmp_path / "absurd.dbq")
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "absurd.dbq"), what]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            assert process.stdout.readline() == "ready\n"
            time.sleep(0.3)
            process.send_signal(signal.SIGINT)
            output, _ = process.communicate(timeout=LONG)
        finally:
            process.kill()
    assert output == "interrupted\n"
    assert process.returncode == 0


def test_limits() -> None:
    content = write_program(absurd(4096, kernels=11, branches=3))
    with pytest.raises(EngineError, match="10000000000000 steps"):
        load(content)
    load(content, max_work=10**14).close()
    small = write_program(small_program())
    with load(small) as net:
        work, memory = net.work, net.peak_memory
    load(small, max_work=work, max_memory=2**20).close()
    for limits in ({"max_work": work - 1}, {"max_memory": memory - 1}):
        with pytest.raises(EngineError, match="raise the limit"):
            load(small, **limits)


@pytest.mark.parametrize("odd", ["2", 2**64, -1, 1.5, None])
def test_limits_that_are_none(odd: int) -> None:
    with pytest.raises(EngineError, match="expected 0 to"):
        load(b"", max_work=odd)


@pytest.mark.parametrize("seconds", [float("inf"), float("nan"), -1.0, 1e9])
def test_measuring_forever(seconds: float) -> None:
    with (
        load(write_program(small_program())) as net,
        pytest.raises(EngineError, match=f"{seconds} seconds"),
    ):
        measure(net, seconds)


def test_paths_at_which_reading_would_wait_or_end_early(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.dbq")
    save(small_program(), tmp_path / "net.dbq")
    for path in (tmp_path / "pipe.dbq", f"{tmp_path}/net.dbq\0.png"):
        with pytest.raises(FileFormatError, match="cannot"):
            load(path)
        with pytest.raises(FileFormatError, match="cannot"):
            load_program(path)
