"""Passes that wait in the middle of forward."""

from __future__ import annotations

import os
import signal
import threading

import pytest
import torch
from torch import Tensor, nn

from dbq.posttraining.fitting.stepping import Pass


class Keeper(nn.Module):
    """Keeps something in an attribute between two layers, as many networks do."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 2)
        self.kept: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        self.kept = x
        x = self.first(x)
        assert self.kept is not None
        output: Tensor = self.second(x + self.kept)
        return output


def finish(each: Pass) -> Tensor:
    while each.advance():
        pass
    assert isinstance(each.output, Tensor)
    return each.output


def test_interleaved_passes_give_what_the_network_gives() -> None:
    model = Keeper().eval()
    batches = [torch.randn(2, 3), torch.randn(4, 3)]
    passes = [Pass(model, batch, ["first", "second"]) for batch in batches]
    for stop in ("first", "second"):
        for each in passes:
            assert each.advance()
            assert each.name == stop
    for each, batch in zip(passes, batches, strict=True):
        assert torch.equal(finish(each), model(batch))
    assert model.kept is not None
    assert len(model.kept) == 4  # ours, from the line above


def test_a_change_at_a_stop_is_seen_behind_it() -> None:
    model = Keeper().eval()
    each = Pass(model, torch.ones(1, 3), ["second"])
    each.advance()
    with torch.no_grad():
        model.second.weight.zero_()
        model.second.bias.fill_(7.0)
    assert torch.equal(finish(each), torch.full((1, 2), 7.0))


def test_an_error_in_the_network_arrives_here() -> None:
    each = Pass(Keeper().eval(), torch.ones(1, 5), ["second"])
    with pytest.raises(RuntimeError):
        each.advance()


def test_abandoned_passes_leave_no_thread() -> None:
    before = set(threading.enumerate())
    passes = [Pass(Keeper().eval(), torch.ones(1, 3), ["first"]) for _ in range(3)]
    for each in passes[:2]:
        each.advance()
    for each in passes:
        each.abandon()
    assert not set(threading.enumerate()) - before


def test_ctrl_c_while_a_pass_begins(monkeypatch: pytest.MonkeyPatch, heard: None) -> None:
    """`Thread.start` waits for the thread's first sign of life: the signal comes just before it."""
    before, wait = set(threading.enumerate()), threading.Event.wait

    def interrupted(self: threading.Event, timeout: float | None = None) -> bool:
        os.kill(os.getpid(), signal.SIGINT)
        return wait(self, timeout)

    each = Pass(Keeper().eval(), torch.ones(1, 3), ["first"])
    with monkeypatch.context() as patch:
        patch.setattr(threading.Event, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            each.advance()
    each.abandon()
    assert not set(threading.enumerate()) - before
