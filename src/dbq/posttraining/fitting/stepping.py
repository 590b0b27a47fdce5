"""A forward pass that stops in front of chosen modules, so that they can be changed before they run.

Fitting a layer needs the inputs it gets once all layers before it are quantized. Running the
network from the start for each layer would take as many passes as there are layers. Here each
batch is a pass of its own that waits at the layer until it is fitted; all layers together take one pass.

A pass is a thread, because only a thread can wait inside a user's `forward`. One thread runs at a time:
the caller and its passes hand over to each other, so nothing depends on timing.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from dbq.errors import LayerError
from dbq.support.interrupt import uninterrupted


class _Abandoned(BaseException):
    """Ends a pass that nobody will continue."""


class Pass:
    """The forward pass of one batch, in eval mode and without gradients.

    `advance` runs it to the next stop: `name` is then the module it waits at and `input` what the module
    is about to get. At the end `name` is None and `output` is the network's. Of modules in `keep`,
    the input is in `kept` until the module has run.
    """

    def __init__(
        self, model: nn.Module, batch: Tensor, stops: Iterable[str], keep: Iterable[str] = ()
    ) -> None:
        self.name: str | None = None
        self.input = batch
        self.output: Any = None
        self._error: BaseException | None = None
        self._abandoned = False
        self._mine, self._callers = threading.Semaphore(0), threading.Semaphore(0)
        self._threads = torch.get_num_threads()
        replica = sharing_copy(model)
        for stop in stops:
            module = replica.get_submodule(stop)
            module.register_forward_pre_hook(self._stop_at(stop), with_kwargs=True)
        self.kept: dict[str, Tensor] = {}
        for name in keep:
            module = replica.get_submodule(name)
            module.register_forward_pre_hook(self._keep(name))
            module.register_forward_hook(self._forget(name))
        self._thread = threading.Thread(target=self._run, args=(replica, batch), daemon=True)
        self._started = False

    def advance(self) -> bool:
        """Run to the next stop; False if there was none and the pass is over.

        Ctrl-C waits for the stop. Inside of `Thread.start` it would leave a thread that runs, but
        that `is_alive` and `join` do not know of yet; inside of a semaphore, a lock that nobody opens.
        """
        with uninterrupted():
            if self._started:
                self._mine.release()
            else:
                self._started = True
                self._thread.start()
            self._callers.acquire()
        if self._error is not None:
            raise self._error
        return self.name is not None

    def abandon(self) -> None:
        """End the pass where it is."""
        with uninterrupted():
            if self._started and self._thread.is_alive():
                self._abandoned = True
                self._mine.release()
                self._thread.join()

    def _run(self, model: nn.Module, batch: Tensor) -> None:
        try:
            torch.set_num_threads(self._threads)  # a new thread would take all cores
            with torch.no_grad():
                self.output = model(batch)
        except _Abandoned:
            pass
        except BaseException as error:
            self._error = error
        self.name = None
        self._callers.release()

    def _keep(self, name: str) -> Any:
        def hook(module: nn.Module, args: tuple[Any, ...]) -> None:
            self.kept[name] = args[0]

        return hook

    def _forget(self, name: str) -> Any:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            self.kept.pop(name, None)

        return hook

    def _stop_at(self, name: str) -> Any:
        def wait(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            given = args[0] if args else next(iter(kwargs.values()), None)
            if not isinstance(given, Tensor):
                raise LayerError(
                    f"layer {name}: its input is a {type(given).__name__}, not a tensor"
                )
            self.name, self.input = name, given
            self._callers.release()
            self._mine.acquire()
            if self._abandoned:
                raise _Abandoned

        return wait


def sharing_copy(model: nn.Module) -> nn.Module:
    """A copy of the modules that shares all parameters and buffers.

    Passes wait in the middle of `forward`: what a module keeps in its attributes meanwhile must not be
    another pass's.
    """
    shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    return copy.deepcopy(model, dict(shared))
