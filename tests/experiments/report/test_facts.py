"""What a report says, against the run it says it of."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path

import pytest
import torch

import dbq
from dbq.costs.rules import Totals
from dbq.errors import DbqError, TrainingError
from dbq.experiments.report.facts import RunFacts, read_run
from dbq.experiments.report.page import run_names, write_report
from dbq.experiments.report.pareto import front
from dbq.training.networks import example_image
from dbq.training.record.saved import saved_network


@pytest.fixture(scope="module")
def facts(two_branches: Path) -> RunFacts:
    return read_run(two_branches, "mine")[0]


def test_layers_are_those_of_the_network(facts: RunFacts, two_branches: Path) -> None:
    model, recipe, _ = saved_network(two_branches)
    rows = {row["layer"]: row for row in facts.layers}
    hard = dbq.branches(model)
    for name, layer in hard.items():
        weight = model.get_submodule(name).weight.detach()
        error = (layer.weight - weight).norm() / weight.norm()
        assert rows[name]["error"] == pytest.approx(float(error), rel=1e-5)
        assert rows[name]["zeros"] == pytest.approx(sum(layer.sparsity) / 2, rel=1e-5)
        assert rows[name]["weights"] == "2T"
    total = dbq.cost(model, example_image(recipe))
    layers = [row for row in total.to_json()["rows"] if "macs" in row]
    for metric in Totals.METRICS:
        by_hand = {row["name"]: row[metric] / getattr(total.total, metric) for row in layers}
        assert {name: row[metric] for name, row in rows.items()} == pytest.approx(by_hand)


def test_kernels_have_their_weights_levels_and_thresholds(
    facts: RunFacts, two_branches: Path
) -> None:
    model, _, _ = saved_network(two_branches)
    for name, layer in dbq.branches(model).items():
        for kernel in facts.kernels[name]:
            k = kernel["kernel"]
            weights = model.get_parameter(f"{name}.weight")[k].flatten()
            assert sum(kernel["counts"]) == weights.numel()
            levels, counts = torch.unique(layer.weight[k], return_counts=True)
            assert [level["level"] for level in kernel["levels"]] == levels.tolist()
            assert [level["count"] for level in kernel["levels"]] == counts.tolist()
            # a weight's level is the number of thresholds below it
            below = torch.tensor(kernel["thresholds"])[:, None] < weights
            places = below.sum(0)
            order = layer.weight[k].flatten()[places.argsort()]
            assert (order.diff() >= 0).all(), "levels rise with the thresholds passed"


def test_ratios_are_those_of_the_branches(facts: RunFacts, two_branches: Path) -> None:
    model, _, _ = saved_network(two_branches)
    by_hand = torch.cat([layer.ratios.flatten() for layer in dbq.branches(model).values()])
    assert facts.ratios == pytest.approx(by_hand[by_hand.isfinite()].tolist())


def test_curves_are_the_metrics(facts: RunFacts, two_branches: Path) -> None:
    lines = (two_branches / "metrics.jsonl").read_text().splitlines()
    assert [row["top1"] for row in facts.metrics] == [json.loads(line)["top1"] for line in lines]
    assert facts.result.top1 == facts.metrics[-1]["top1"]


def test_front_against_all_pairs() -> None:
    generator = random.Random(4)
    for _ in range(50):
        points = {str(i): (float(generator.randint(1, 6)), float(generator.randint(1, 6)))
                  for i in range(generator.randint(1, 9))}  # fmt: skip

        def beaten(name: str) -> bool:
            cost, accuracy = points[name]  # noqa: B023
            return any(
                c <= cost and a >= accuracy and (c, a) != (cost, accuracy)
                for c, a in points.values()  # noqa: B023
            )

        assert sorted(front(points)) == sorted(name for name in points if not beaten(name))
        costs = [points[name][0] for name in front(points)]
        assert all(a <= b for a, b in itertools.pairwise(costs))


def test_names_tell_runs_apart() -> None:
    assert run_names([Path("/a/x/1"), Path("/a/y/1"), Path("/a/y/2")]) == ["x/1", "y/1", "y/2"]
    with pytest.raises(DbqError, match="twice"):
        run_names([Path("/a/x"), Path("/a/x")])


def test_what_is_no_finished_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"result\.json"):
        write_report([tmp_path], tmp_path / "page.html")
    (tmp_path / "result.json").write_text("{")
    with pytest.raises(TrainingError, match=r"result\.json"):
        write_report([tmp_path], tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()
    with pytest.raises(DbqError, match="run"):
        write_report([], tmp_path / "page.html")
