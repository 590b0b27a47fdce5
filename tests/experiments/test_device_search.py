"""`dbq search --flash --ram`: the plan's network, as C source, keeps both; what cannot is refused."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from dbq.errors import LoweringError, PlanError
from dbq.experiments import search
from dbq.posttraining.search import Found
from dbq.training.recipe import load_recipe

CHOICES = ["1T", "2T"]


@pytest.fixture
def recipe(monkeypatch: pytest.MonkeyPatch) -> object:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 64, 1), nn.ReLU(), nn.Conv2d(64, 64, 1),
        nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip
    images = torch.rand(16, 3, 8, 8)
    monkeypatch.setattr(search, "_network", lambda recipe, count: (net.eval(), images))
    return load_recipe("digits-fp")


def bytes_by_choice(found: Found) -> int:
    return sum({"1T": 1, "2T": 2}[choice] for choice in found.chosen.values())


def test_both_budgets_are_kept(recipe: object) -> None:
    rich, large = search.search_device(recipe, 16, 40_000, None, "dbq-2t-4", CHOICES)  # type: ignore[arg-type]
    least = large.flash - 500
    poor, small = search.search_device(recipe, 16, least, 32_000, "dbq-2t-4", CHOICES)  # type: ignore[arg-type]
    assert large.flash <= 40_000
    assert small.flash <= least
    assert small.arena <= 32_000
    assert bytes_by_choice(poor) < bytes_by_choice(rich)
    assert set(rich.chosen) == {"0", "2", "4", "8"}  # the last linear layer is searched too


def test_what_does_not_fit_is_refused(recipe: object) -> None:
    with pytest.raises((PlanError, LoweringError), match="budget"):
        search.search_device(recipe, 16, 3000, None, "dbq-2t-4", CHOICES)  # type: ignore[arg-type]
    with pytest.raises(LoweringError, match="RAM"):
        search.search_device(recipe, 16, 40_000, 300, "dbq-2t-4", CHOICES)  # type: ignore[arg-type]
