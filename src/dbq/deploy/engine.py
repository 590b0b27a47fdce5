"""The native engine: .dbq files run by libdbq, one C call for each batch.

    net = load("net.dbq", threads=2)
    logits = net(images)  # uint8 [N, H, W, C] -> float32 [N, classes]

A Net may be used by several Python threads at once: the calls release the GIL. Ctrl-C ends them.
"""

from __future__ import annotations

import ctypes
import json
import os
import threading
from collections.abc import Callable
from ctypes import POINTER, c_char_p, c_double, c_int, c_size_t, c_uint64, c_void_p
from functools import cache, partial
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dbq.deploy.inspection import NetDescription, NetLayer
from dbq.errors import DbqError, EngineError, FileFormatError
from dbq.support.interrupt import interruptible
from dbq.support.regular import why_unreadable

if TYPE_CHECKING:
    from dbq.deploy.pictures.classification import Guess

LIBRARY = Path(__file__).parents[1] / "libdbq.so"

Images = npt.NDArray[np.uint8]
Outputs = Any  # an array, or a dict of arrays where there are several outputs

TEXTS = ("name", "kind", "precision", "kernel", "type")  # of a layer
MAX_THREADS, MAX_WORK, MAX_MEMORY = 256, 10**13, 2**31  # the last two unless the caller raises them
# Steps that take far less than a second, with plain loops and with vector kernels.
QUICK, QUICK_VECTORS = 2 * 10**8, 4 * 10**9
BAD_FILE = (1, 2, 3)  # dbq_status: DBQ_CANNOT_READ, DBQ_BAD_FILE, DBQ_BAD_VERSION


class _Layer(ctypes.Structure):
    """dbq_layer of native/dbq.h."""

    _fields_ = (
        *((name, c_char_p) for name in TEXTS),
        *((name, c_int) for name in ("channels", "height", "width")),
        ("weight_bytes", c_size_t),
        ("macs", c_uint64),
    )


class _Limits(ctypes.Structure):
    """dbq_limits of native/dbq.h."""

    _fields_ = (("work", c_uint64), ("memory", c_uint64))


# name: (result, arguments), as in native/dbq.h
_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "dbq_last_error": (c_char_p, []),
    "dbq_last_status": (c_int, []),
    "dbq_load_limited": (c_void_p, [c_char_p, POINTER(_Limits)]),
    "dbq_load_memory_limited": (c_void_p, [c_char_p, c_size_t, POINTER(_Limits)]),
    "dbq_free": (None, [c_void_p]),
    "dbq_run": (c_int, [c_void_p, c_void_p, c_size_t, c_void_p]),
    "dbq_profile": (c_int, [c_void_p, c_void_p, POINTER(c_double)]),
    "dbq_cancel": (None, [c_void_p]),
    "dbq_set_threads": (c_int, [c_void_p, c_int]),
    "dbq_threads": (c_int, [c_void_p]),
    "dbq_input_shape": (None, [c_void_p, *[POINTER(c_int)] * 3]),
    "dbq_outputs": (c_int, [c_void_p]),
    "dbq_output_name": (c_char_p, [c_void_p, c_int]),
    "dbq_output_shape": (None, [c_void_p, c_int, POINTER(c_int)]),
    "dbq_name": (c_char_p, [c_void_p]),
    "dbq_metadata": (c_char_p, [c_void_p]),
    "dbq_isa": (c_char_p, [c_void_p]),
    "dbq_work": (c_uint64, [c_void_p]),
    "dbq_peak_memory": (c_size_t, [c_void_p]),
    "dbq_load_milliseconds": (c_double, [c_void_p]),
    "dbq_layers": (c_int, [c_void_p]),
    "dbq_layer_info": (c_int, [c_void_p, c_int, POINTER(_Layer)]),
    "dbq_version": (c_char_p, []),
    "dbq_available_isas": (c_char_p, []),
}


@cache
def library() -> ctypes.CDLL:
    """libdbq, with the types of its functions."""
    try:
        engine = ctypes.CDLL(str(LIBRARY))
    except OSError as error:
        reason = str(error).splitlines()[0]
        raise EngineError(
            f"the native engine does not load ({reason}); reinstall dbq (from source, this needs a "
            "C++ compiler)"
        ) from None
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(engine, name)
        function.restype, function.argtypes = result, arguments
    return engine


def available_isas() -> list[str]:
    """The instruction sets this processor has kernels for, best last; DBQ_ISA chooses one."""
    return str(library().dbq_available_isas().decode()).split()


def load(
    source: str | os.PathLike[str] | bytes,
    threads: int = 1,
    max_work: int = MAX_WORK,
    max_memory: int = MAX_MEMORY,
) -> Net:
    """The network in a .dbq file, given by path or as its bytes.

    A small file may describe a network that runs for hours: one that takes more than `max_work` steps
    (multiply-adds, mostly) or `max_memory` bytes for an image is an EngineError.

    >>> import dbq, torch
    >>> from dbq.deploy.file.fileformat import write_program
    >>> model = dbq.create_model("resnet20")
    >>> images = torch.rand(2, 3, 32, 32)
    >>> _ = dbq.prepare(model, "resnet-2t-a8", images), dbq.calibrate(model, [images])
    >>> net = load(write_program(dbq.lower(model, images, report=None)), threads=2)
    >>> net(np.zeros((5, 32, 32, 3), np.uint8)).shape
    (5, 10)
    """
    return Net(source, threads, max_work, max_memory)


class Net:
    """A network ready to run. `with load(...) as net:` frees its memory at the end, or `close()`."""

    def __init__(
        self,
        source: str | os.PathLike[str] | bytes,
        threads: int = 1,
        max_work: int = MAX_WORK,
        max_memory: int = MAX_MEMORY,
    ) -> None:
        self._handle: int | None = None
        self._library = library()
        limits = _Limits(whole(max_work, "steps"), whole(max_memory, "bytes of memory"))
        if isinstance(source, bytes):
            handle = self._library.dbq_load_memory_limited(source, len(source), limits)
        elif reason := why_unreadable(source):
            raise FileFormatError(f"cannot read {os.fspath(source)}: {reason}")
        else:
            handle = self._library.dbq_load_limited(os.fsencode(source), limits)
        if not handle:
            raise self._error()
        self._handle = handle
        self.input_shape = self._input_shape()  # height, width, channels
        self.outputs = self._outputs()  # name: (channels, height, width)
        if threads != 1:
            self.threads = threads

    def __call__(self, images: npt.ArrayLike) -> Outputs:
        """Logits [N, classes] of images [N, H, W, C] or [H, W, C]; [N, K, H, W] if they have pixels.

        Of a network with several outputs: all of them, by name.
        """
        batch = self._batch(images)
        sizes = [prod(shape) for shape in self.outputs.values()]
        floats = np.empty((len(batch), sum(sizes)), np.float32)
        data = batch.ctypes.data, len(batch), floats.ctypes.data
        self._run(partial(self._library.dbq_run, self._open, *data), len(batch))
        parts = np.split(floats, np.cumsum(sizes[:-1]), axis=1) if len(sizes) > 1 else [floats]
        found = {
            name: part.reshape(len(batch), *(shape[:1] if shape[1:] == (1, 1) else shape))
            for (name, shape), part in zip(self.outputs.items(), parts, strict=True)
        }
        return found if len(found) > 1 else next(iter(found.values()))

    def classify(self, image: str | os.PathLike[str] | npt.ArrayLike, top: int = 5) -> list[Guess]:
        """The `top` classes of an image, best first: a file of any format, or uint8 pixels [H, W, C].

        Its shorter side becomes as long as the network's file states (the fact `resize_length`) and the
        centre is cropped, as in the test of the data set; if it states none, the image is scaled to just
        cover the network's size. Pixels of that size stay as they are. Classes may have numbers only.
        """
        from dbq.deploy.pictures.classification import classify  # which needs this module

        return classify(self, image, top)

    def profile(self, image: npt.ArrayLike) -> list[float]:
        """Microseconds of each layer for one image, in the order of `describe().layers`."""
        batch = self._batch(image)
        if len(batch) != 1:
            raise EngineError(f"profile takes one image, got {len(batch)}")
        times = (c_double * self._library.dbq_layers(self._open))()
        self._run(partial(self._library.dbq_profile, self._open, batch.ctypes.data, times), 1)
        return list(times)

    @property
    def threads(self) -> int:
        return int(self._library.dbq_threads(self._open))

    @threads.setter
    def threads(self, count: int) -> None:
        count = whole(count, "threads", 1, MAX_THREADS)
        self._check(self._library.dbq_set_threads(self._open, count))

    @property
    def output_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of the (first) output."""
        return next(iter(self.outputs.values()))

    @property
    def name(self) -> str:
        return str(self._library.dbq_name(self._open).decode())

    @property
    def facts(self) -> dict[str, Any]:
        """What the exporter wrote about the network; no computation depends on it."""
        facts: dict[str, Any] = json.loads(self._library.dbq_metadata(self._open))
        return facts

    @property
    def isa(self) -> str:
        """The instruction set of the kernels."""
        return str(self._library.dbq_isa(self._open).decode())

    @property
    def work(self) -> int:
        """Steps for one image: multiply-adds, mostly."""
        return int(self._library.dbq_work(self._open))

    @property
    def peak_memory(self) -> int:
        """Bytes for running one image: weights, arena, scratch space."""
        return int(self._library.dbq_peak_memory(self._open))

    @property
    def load_milliseconds(self) -> float:
        return float(self._library.dbq_load_milliseconds(self._open))

    def describe(self) -> NetDescription:
        """What runs, layer by layer; prints as a table."""
        layers = tuple(map(self._layer, range(self._library.dbq_layers(self._open))))
        memory, load = self.peak_memory, self.load_milliseconds
        return NetDescription(self.name, self.isa, self.threads, memory, load, layers)

    def close(self) -> None:
        """Free its memory, at a time when no thread is running it. It cannot run any more."""
        if self._handle is not None:
            self._library.dbq_free(self._handle)
        self._handle = None

    def __enter__(self) -> Net:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self.close()

    def __repr__(self) -> str:
        if self._handle is None:
            return "Net(closed)"
        shape = "x".join(map(str, self.input_shape))
        return f"Net({self.name!r}, image {shape}, {self.isa}, {self.threads} threads)"

    @property
    def _open(self) -> int:
        if self._handle is None:
            raise EngineError("this network was closed; load it again")
        return self._handle

    def _batch(self, images: npt.ArrayLike) -> Images:
        given = np.asarray(images)
        batch = given[None] if given.ndim == 3 else given
        if batch.dtype != np.uint8 or batch.ndim != 4 or batch.shape[1:] != self.input_shape:
            expected = ", ".join(map(str, self.input_shape))
            raise EngineError(
                f"images are {given.dtype} {list(given.shape)}, {self.name} expects "
                f"uint8 [N, {expected}]: resize or convert them"
            )
        return np.ascontiguousarray(batch)

    def _input_shape(self) -> tuple[int, int, int]:
        height, width, channels = c_int(), c_int(), c_int()
        self._library.dbq_input_shape(self._open, height, width, channels)
        return height.value, width.value, channels.value

    def _outputs(self) -> dict[str, tuple[int, int, int]]:
        found, shape = {}, (c_int * 3)()
        for index in range(self._library.dbq_outputs(self._open)):
            self._library.dbq_output_shape(self._open, index, shape)
            name = self._library.dbq_output_name(self._open, index).decode()
            found[name] = shape[0], shape[1], shape[2]
        return found

    def _layer(self, index: int) -> NetLayer:
        layer = _Layer()
        self._check(self._library.dbq_layer_info(self._open, index, layer))
        texts = {name: getattr(layer, name).decode() for name in TEXTS}
        shape = layer.channels, layer.height, layer.width
        return NetLayer(shape=shape, weight_bytes=layer.weight_bytes, macs=layer.macs, **texts)

    def _run(self, call: Callable[[], int], images: int) -> None:
        """Make a call that runs `images` images. One that takes long can be interrupted."""

        def checked() -> None:  # the engine keeps the last error of each thread
            self._check(call())

        is_main = threading.current_thread() is threading.main_thread()
        quick = QUICK if self.isa == "scalar" else QUICK_VECTORS
        if is_main and images * self.work > quick:
            interruptible(checked, partial(self._library.dbq_cancel, self._open))
        else:
            checked()

    def _check(self, status: int) -> None:
        if status:
            raise self._error()

    def _error(self) -> DbqError:
        text = self._library.dbq_last_error().decode(errors="replace")
        bad_file = self._library.dbq_last_status() in BAD_FILE
        return (FileFormatError if bad_file else EngineError)(text)


def whole(number: int, what: str, low: int = 0, high: int = 2**64 - 1) -> int:
    """`number`, if it is one that C can take; ctypes would cut it off."""
    if not isinstance(number, int | np.integer) or not low <= number <= high:
        raise EngineError(f"{number!r} {what}, expected {low} to {high}")
    return int(number)
