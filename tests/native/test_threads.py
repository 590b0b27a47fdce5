"""One network, many threads: the same bits, whoever helps whom."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from dbq.deploy import reference
from dbq.deploy.engine import Net, load
from dbq.deploy.file.fileformat import write_program
from dbq.errors import EngineError
from tests.disturbances import memory_in_use
from tests.native.handmade import images_for, random_program

pytestmark = pytest.mark.native

PROGRAM = random_program(5, length=10)
IMAGES = images_for(PROGRAM, 7)
EXPECTED = reference.run(PROGRAM, IMAGES)


@pytest.fixture
def net() -> Net:
    return load(write_program(PROGRAM), threads=2)


def test_several_callers_at_once(net: Net) -> None:
    def call(number: int) -> bool:
        count = 1 + number % len(IMAGES)
        return np.array_equal(net(IMAGES[:count]), EXPECTED[:count])

    with ThreadPoolExecutor(5) as callers:
        assert all(callers.map(call, range(300)))


def test_the_number_of_threads_changes_while_others_run(net: Net) -> None:
    stop = threading.Event()

    def change() -> None:
        choose = random.Random(0)
        while not stop.is_set():
            net.threads = choose.randint(1, 6)

    changer = threading.Thread(target=change)
    changer.start()
    try:
        with ThreadPoolExecutor(3) as callers:
            results = callers.map(lambda _: net(IMAGES), range(150))
            assert all(np.array_equal(result, EXPECTED) for result in results)
    finally:
        stop.set()
        changer.join()


def test_loading_and_freeing_while_others_run(net: Net) -> None:
    content = write_program(PROGRAM)

    def life(_: int) -> bool:
        with load(content, threads=3) as own:
            return np.array_equal(own(IMAGES), EXPECTED) and np.array_equal(net(IMAGES), EXPECTED)

    with ThreadPoolExecutor(4) as callers:
        assert all(callers.map(life, range(40)))


def test_errors_belong_to_the_thread_that_made_them(net: Net) -> None:
    def fail(size: int) -> str:
        with pytest.raises(EngineError) as caught:
            net.threads = 1000 + size
        return str(caught.value)

    with ThreadPoolExecutor(4) as callers:
        texts = list(callers.map(fail, range(200)))
    assert texts == [f"{1000 + i} threads, expected 1 to 256" for i in range(200)]


def test_loading_and_freeing_a_thousand_times_takes_no_memory() -> None:
    """A leak of what the small network needs, each time, would be twice the bound."""
    content = write_program(PROGRAM)
    before = 0
    for number in range(1200):
        with load(content, threads=1 + number % 2) as own:
            if number % 100 == 0:
                own(IMAGES)
            size = own.peak_memory
        if number == 200:
            before = memory_in_use()
    assert memory_in_use() - before < 500 * size


def _in_a_child(net: Net, queue: multiprocessing.Queue[bool]) -> None:
    same = np.array_equal(net(IMAGES[:1]), EXPECTED[:1]) and np.array_equal(net(IMAGES), EXPECTED)
    net.close()  # the threads of the parent are not here: there is nothing to wait for
    queue.put(same)


@pytest.mark.filterwarnings("ignore:This process")
def test_a_forked_child_can_run_and_end(net: Net) -> None:
    assert np.array_equal(net(IMAGES), EXPECTED)
    fork = multiprocessing.get_context("fork")
    queue: multiprocessing.Queue[bool] = fork.Queue()
    child = fork.Process(target=_in_a_child, args=(net, queue))
    child.start()
    try:
        assert queue.get(timeout=60)
        child.join(timeout=60)
        assert child.exitcode == 0
    finally:
        child.kill()


@pytest.mark.filterwarnings("ignore:This process")
def test_forked_while_threads_go_to_sleep() -> None:
    """The child has a lock and a condition as the parent's threads left them, half-way."""
    with load(write_program(PROGRAM), threads=8) as net:
        for number in range(100):
            net(IMAGES)
            later = time.perf_counter() + number % 40 * 5e-6  # threads spin for 50 µs, then sleep
            while time.perf_counter() < later:
                pass
            child = os.fork()
            if child == 0:
                signal.alarm(60)  # its default action ends the process
                os._exit(int(not (np.array_equal(net(IMAGES), EXPECTED) and net(IMAGES).any())))
            assert os.waitpid(child, 0)[1] == 0, number
