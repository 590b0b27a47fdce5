"""Top-1 and top-5 of the hard network on a whole split."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from dbq.data.split import Split
from dbq.model.modes import evaluating
from dbq.training.processes.world import World

BATCH = 250


@dataclass(frozen=True)
class Score:
    """Accuracies in percent. `skipped` names images that could not be read."""

    top1: float
    top5: float
    loss: float
    images: int
    skipped: tuple[str, ...] = ()


def evaluate(
    model: nn.Module, split: Split, world: World, channels_last: bool = False, raw: bool = False
) -> Score:
    """Run every image of `split` once, shared by all processes; none is counted twice.

    The model gets normalised images, or uint8 pixels if `raw`.
    """
    mine = torch.arange(world.rank, len(split), world.size)
    sums = torch.zeros(4, dtype=torch.double, device=world.device)  # top-1, top-5, loss, images
    skipped: list[str] = []
    with evaluating(model), torch.inference_mode():
        for batch in split.batches(torch.split(mine, BATCH), raw=raw):
            images, labels = batch.images.to(world.device), batch.labels.to(world.device)
            if channels_last:
                images = images.contiguous(memory_format=torch.channels_last)
            sums += _counts(model(images), labels)
            skipped += batch.skipped
    top1, top5, loss, count = world.total(sums).tolist()
    return Score(100 * top1 / count, 100 * top5 / count, loss / count, int(count), tuple(skipped))


def _counts(logits: Tensor, labels: Tensor) -> Tensor:
    ranked = logits.topk(min(5, logits.shape[1])).indices == labels[:, None]
    loss = nn.functional.cross_entropy(logits.double(), labels, reduction="sum")
    return torch.stack([ranked[:, 0].sum(), ranked.sum(), loss, loss.new_tensor(len(labels))])
