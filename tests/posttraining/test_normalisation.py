"""Images scaled otherwise than in training are noticed; images that are merely different are not."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from dbq.errors import DataError
from dbq.posttraining.normalisation import check_normalised
from dbq.posttraining.quantize import quantize
from tests.posttraining.test_quantize import Small, assert_same_state, images, state_of


@pytest.mark.parametrize("factor", [57.0, 1 / 57])
def test_pixels_of_another_range_are_refused(factor: float) -> None:
    net = Small()
    before = state_of(net)
    with pytest.raises(DataError, match=r"batch norm stem.1: are they normalised"):
        quantize(net, "dbq-2t-4", factor * images(40))
    assert_same_state(net, before)


@pytest.mark.parametrize("factor", [4.0, 0.225])
def test_doubtful_ones_are_noted(factor: float) -> None:
    """0.225 is what is missing if pixels from 0 to 1 are not divided by their deviation."""
    summary = quantize(Small(), "dbq-2t-4", factor * images(40))
    assert "normalised" in summary.notes[-1]
    assert "normalised" in str(summary)


def test_nothing_is_said_without_a_reason() -> None:
    assert check_normalised(Small(), images(40, seed=8)) == ()
    assert check_normalised(Small(), images(8, seed=8)) == ()
    untrained = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)).eval()
    assert check_normalised(untrained, 1000 * images(8)) == ()
    assert check_normalised(nn.Sequential(nn.Conv2d(3, 8, 3)), 1000 * images(8)) == ()
    with torch.no_grad():
        constant = Small()
        constant.stem[0].weight[:4] = 0  # dead channels, fewer than half
    assert check_normalised(constant, images(8)) == ()
