"""A prepared model under DistributedDataParallel: two processes, one batch between them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.multiprocessing.spawn import spawn
from torch.nn.parallel import DistributedDataParallel

import dbq

pytestmark = pytest.mark.process

IMAGES = torch.randn(8, 3, 8, 8, generator=torch.Generator().manual_seed(4))


def network() -> nn.Sequential:
    torch.manual_seed(5)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 1), nn.ReLU(),
                        nn.Flatten(), nn.Linear(288, 4))  # fmt: skip
    dbq.prepare(net, "dbq-2t-1", IMAGES[:1])
    return net.train()


def step(model: nn.Module, images: torch.Tensor) -> None:
    model(images).square().mean().backward()


def worker(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    store = f"file://{folder}/store"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
    net = network()
    step(DistributedDataParallel(net), IMAGES[rank * 4 : rank * 4 + 4])
    torch.save({n: p.grad for n, p in net.named_parameters()}, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


def test_gradients_are_those_of_one_process(tmp_path: Path) -> None:
    spawn(worker, args=(str(tmp_path),), nprocs=2)
    net = network()
    step(net, IMAGES)
    first, second = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in (0, 1))
    assert any("weight_quantizer.alpha" in name for name in first)
    for name, parameter in net.named_parameters():
        assert torch.equal(first[name], second[name]), name
        # the mean of two halves against the whole: float32 sums of 8 images in another order
        scale = float(parameter.grad.abs().max())
        assert (first[name] - parameter.grad).abs().max() <= 1e-5 * scale + 1e-9, name
