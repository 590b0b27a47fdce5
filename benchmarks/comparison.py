"""The methods of the paper's tables side by side on CIFAR-10: results/comparison_*.json, *.svg.

python benchmarks/comparison.py NAME --data DIR --weights FILE [--only METHODS | --finished] [--rounds N]

NAME is resnet20 (weights only, as in the paper's Table 2) or mobilenet_v1 (pointwise layers; 8 bits
elsewhere). Finished runs below --runs are kept and interrupted ones resumed, so two of these may train
different methods side by side with --only; without it, the script then writes the results. --finished
trains nothing more. --rounds is how many training steps are timed; it needs an idle machine.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

from cifar10 import MEAN, STD
from machine import options, save
from tabular import RESULTS, result

from dbq.experiments.comparison.comparison import compare, parse_all
from dbq.experiments.comparison.figure import draw_comparison
from dbq.training.recipe import Recipe, load_recipe
from dbq.training.record.rundir import RunDir
from dbq.training.run import train


@dataclass(frozen=True)
class Case:
    """A recipe, the methods, and the recipe of the float network they start from (else --weights)."""

    recipe: str
    methods: str
    float_recipe: tuple[str, ...] = ()


CASES = {
    "resnet20": Case(
        "resnet20-compare",
        "float,xnor,twn,ttq,qnet:1T,lqnet:1B,lqnet:2B,lqnet:3B,abcnet:3B,lsq:2b,lsq:4b,uniq:4b,"
        "dbq:1T,dbq:2T",
    ),
    "mobilenet_v1": Case(
        "mobilenet_v1-cifar10-compare",
        "float,twn,ttq,lqnet:2B,lsq:2b,dbq:1T,dbq:2T",
        ("mobilenet_v1-cifar10-fp", "model.width=0.5", "train.epochs=4"),
    ),
}


def recipe_of(case: Case, arguments: argparse.Namespace) -> Recipe:
    """The recipe with its data and weights; the weights are trained first where there is a recipe."""
    data = f"data.directory={arguments.data}"
    if not case.float_recipe:
        return load_recipe(case.recipe, [data, f"model.weights={arguments.weights}", MEAN, STD])
    name, *overrides = case.float_recipe
    out = arguments.runs / name
    train(load_recipe(name, [data, *overrides]), out, resume=True)
    return load_recipe(case.recipe, [data, f"model.weights={out}"])


def start_top1(case: Case, runs: Path) -> float:
    """Accuracy of the float network that all methods start from."""
    if case.float_recipe:
        return RunDir(runs / case.float_recipe[0]).result().top1
    return float(next(r["top1"] for r in result("calibration")["rows"] if r["plan"] == "fp"))


def main() -> None:
    weights, runs = "data/resnet20-cifar10-fp.safetensors", Path("runs/comparison")
    parser = options(
        __doc__, data="data", weights=weights, runs=runs, only="", finished=False, rounds=0
    )
    parser.add_argument("name", choices=CASES)
    arguments = parser.parse_args()
    case, out = CASES[arguments.name], arguments.runs / arguments.name
    base = recipe_of(case, arguments)
    methods = list(parse_all(arguments.only or case.methods))
    missing = [m.name for m in methods if not RunDir(out / m.name).is_finished]
    if arguments.finished:
        methods = [method for method in methods if method.name not in missing]
    found = compare(base, methods, out, rounds=arguments.rounds)
    print(found)
    if arguments.only:
        return
    facts = found.to_json()
    del facts["machine"]  # `save` adds it
    facts["missing"] = missing if arguments.finished else []
    facts["start_top1"] = start_top1(case, arguments.runs)
    command = f"python benchmarks/comparison.py {arguments.name}"
    path = save(f"comparison_{arguments.name}", command, methods=case.methods, **facts)
    print(path, draw_comparison(found, RESULTS / f"comparison_{arguments.name}.svg"))
    if found.failed:
        sys.exit(1)


if __name__ == "__main__":
    main()
