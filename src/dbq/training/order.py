"""Which process sees which sample in which step: pure functions of the seed.

The order of an epoch is drawn once for all processes and cut into global batches; each process takes
its slice of every batch. So the gradient of a step does not depend on the number of processes, and a run
can be resumed with a different number of them.
"""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

from dbq.errors import RecipeError


def derive(seed: int, *what: object) -> int:
    """A separate seed for each purpose, from one seed.

    >>> derive(0, "order", 1) == derive(0, "order", 1) != derive(0, "order", 2)
    True
    """
    text = "/".join(map(str, (seed, *what)))
    digest = hashlib.blake2b(text.encode(), digest_size=7).digest()  # 56 bits fit any generator
    return int.from_bytes(digest, "big")


def epoch_batches(count: int, batch: int, seed: int, epoch: int) -> list[Tensor]:
    """Indices of the whole batches of an epoch, over all processes; a remainder is left out.

    >>> [len(indices) for indices in epoch_batches(10, batch=4, seed=0, epoch=0)]
    [4, 4]
    """
    if count < batch:
        raise RecipeError(
            f"train.batch = {batch}, but there are only {count} training images: lower it"
        )
    generator = torch.Generator().manual_seed(derive(seed, "order", epoch))
    order = torch.randperm(count, generator=generator)
    return list(torch.split(order[: count - count % batch], batch))


def share(indices: Tensor, rank: int, processes: int) -> Tensor:
    """The part of a global batch that one process computes.

    >>> share(torch.arange(6), rank=1, processes=3)
    tensor([2, 3])
    """
    if len(indices) % processes:
        raise RecipeError(
            f"train.batch = {len(indices)} cannot be shared by {processes} processes: "
            f"use a multiple of {processes}"
        )
    part: Tensor = indices.chunk(processes)[rank]
    return part
