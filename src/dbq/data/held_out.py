"""Training images held out: tested on in place of the test set, so that settings can be chosen.

A learning rate that was chosen by the accuracy on the test set makes that accuracy too good. With
`data.held_out` a run trains on the rest of the training images and never sees the test set.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from dbq.data.split import Batch, Split
from dbq.errors import DataError


class PartOfSplit(Split):
    """Some images of another split, in the order of `chosen`.

    >>> from dbq.data.split import TensorSplit
    >>> five = TensorSplit(torch.zeros(5, 3, 2, 2, dtype=torch.uint8), torch.arange(5), name="train",
    ...                    classes=tuple("abcde"), mean=(0.5,) * 3, std=(0.5,) * 3)
    >>> part = PartOfSplit(five, torch.tensor([4, 2]), "two of them")
    >>> len(part), next(part.batches([torch.tensor([1])])).labels
    (2, tensor([2]))
    """

    def __init__(self, whole: Split, chosen: Tensor, name: str) -> None:
        self.whole, self.chosen, self.name = whole, chosen, name
        self.classes, self.resize_length = whole.classes, whole.resize_length

    def __len__(self) -> int:
        return len(self.chosen)

    def batches(
        self, groups: Sequence[Tensor], draw: int | None = None, *, raw: bool = False
    ) -> Iterator[Batch]:
        of_whole = [self.chosen[group.to(self.chosen.device)] for group in groups]
        return self.whole.batches(of_whole, draw, raw=raw)


def hold_out(train: Split, share: float, seed: int) -> tuple[Split, Split]:
    """The images to train on, and the `share` of them to test on."""
    if not 0 < share < 1:
        raise DataError(f"data.held_out = {share}: expected a share from 0 to 1")
    count = round(share * len(train))
    if not 0 < count < len(train):
        raise DataError(f"data.held_out = {share} of {len(train)} images leaves one part empty")
    order = torch.randperm(len(train), generator=torch.Generator().manual_seed(seed))
    rest, chosen = order[count:].sort().values, order[:count].sort().values
    return (
        PartOfSplit(train, rest, f"{train.name}, the rest"),
        PartOfSplit(train, chosen, f"{share:.3g} of {train.name}, held out"),
    )
