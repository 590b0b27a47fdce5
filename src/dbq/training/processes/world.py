"""World: the processes that train together, as started by torchrun; without it, a world of one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import PrefixStore, rendezvous  # type: ignore[attr-defined]

from dbq.errors import DbqError, RecipeError, TrainingError

Value = TypeVar("Value")
PEER_IS_GONE = ("Connection closed by peer", "Connection reset by peer")  # gloo's words


@dataclass(frozen=True)
class World:
    """This process among the others. Only the first one writes."""

    rank: int
    size: int
    device: torch.device

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    @property
    def is_shared(self) -> bool:
        return self.size > 1

    def total(self, values: Tensor) -> Tensor:
        """The sum of `values` over all processes, in place."""
        if self.is_shared:
            dist.all_reduce(values)
        return values

    def from_first(self, make: Callable[[], Value]) -> Value:
        """What the first process makes, in all of them: they need not share a disk.

        If it raises a DbqError, all raise it; none waits for it, or takes it for dead.
        """
        if not self.is_shared:
            return make()
        box: list[Any] = [None]
        if self.is_first:
            try:
                box = [make()]
            except DbqError as error:
                box = [error]
        dist.broadcast_object_list(box, src=0, device=self.device)
        if isinstance(box[0], DbqError):
            raise box[0]
        made: Value = box[0]
        return made

    def spread_from_first(self, tensors: Iterable[Tensor]) -> None:
        """Overwrite tensors of all processes with the first one's, in place."""
        for tensor in tensors if self.is_shared else ():
            dist.broadcast(tensor, src=0)

    def union(self, items: list[str]) -> list[str]:
        """The items of all processes, sorted and without repetition."""
        gathered = [items]
        if self.is_shared:
            gathered = [[] for _ in range(self.size)]
            dist.all_gather_object(gathered, items)
        return sorted({item for part in gathered for item in part})

    def wait(self) -> None:
        if self.is_shared:
            dist.barrier()


@contextmanager
def joined(device: str = "auto") -> Iterator[World]:
    """Join torchrun's process group, if there is one; nccl on GPUs, gloo on CPUs."""
    rank, size, local = (int(os.environ.get(name, default)) for name, default in (
        ("RANK", 0), ("WORLD_SIZE", 1), ("LOCAL_RANK", 0),
    ))  # fmt: skip
    chosen = choose_device(device, local)
    if size == 1:
        yield World(0, 1, chosen)
        return
    if chosen.type == "cuda":
        torch.cuda.set_device(chosen)
    backend = "nccl" if chosen.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=_meeting_place(), rank=rank, world_size=size)
    try:
        yield World(rank, size, chosen)
    except RuntimeError as error:
        if not any(phrase in str(error) for phrase in PEER_IS_GONE):
            raise
        raise TrainingError(
            "another process of the group has died; torchrun --max-restarts=N restarts the group "
            "from the last checkpoint"
        ) from None
    finally:
        dist.destroy_process_group()


def _meeting_place() -> Any:
    """The store in which processes rendezvous: after a restart, under a prefix for each attempt.

    On one machine torchrun keeps its store over a restart, with the addresses of dead processes in
    it. Several machines may count restarts differently, so they share one prefix; for them torchrun
    makes a new store each time.
    """
    store, _, size = next(rendezvous("env://"))
    if int(os.environ.get("LOCAL_WORLD_SIZE", 0)) != size:
        return store
    return PrefixStore(f"attempt {_restarts()}", store)


def choose_device(device: str, local_rank: int = 0) -> torch.device:
    """ "auto" is a GPU if there is one; each process of a machine gets its own.

    >>> choose_device("cpu")
    device(type='cpu')
    """
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    kind, _, number = device.partition(":")
    if kind not in ("cpu", "cuda") or not (number.isdigit() or device == kind):
        raise RecipeError(f"machine.device = {device!r}; expected auto, cpu, cuda or cuda:N")
    chosen = torch.device(device)
    if chosen.type == "cuda" and (chosen.index or local_rank) >= torch.cuda.device_count():
        raise RecipeError(
            f"machine.device = {device!r}, but torch sees {torch.cuda.device_count()} GPUs here: "
            "use auto or cpu, or start fewer processes"
        )
    if chosen.type == "cuda" and chosen.index is None:
        return torch.device("cuda", local_rank)
    return chosen


def restarted_launch() -> str | None:
    """The id of torchrun's launch if it has restarted its processes, else None."""
    return launch() if _restarts() > 0 else None


def launch() -> str | None:
    """The id that torchrun gave this launch."""
    return os.environ.get("TORCHELASTIC_RUN_ID")


def _restarts() -> int:
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0))
