"""Comparing methods: one recipe, the same budget.

All contestants share the recipe's network, data, starting weights and epochs; only the quantizer of the
layers that the recipe's plan makes ternary differs, and the learning rate where there are rates to
choose from. Each is a run of its own, so a comparison can be stopped and resumed, and several processes
can train different methods.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

from dbq.costs.rules import Totals
from dbq.data.table import load_data
from dbq.errors import DbqError, RecipeError, closest
from dbq.experiments.comparison.methods import precisions
from dbq.experiments.comparison.rates import TRIALS, Watch, with_best_rate
from dbq.experiments.paper.printed import resnet20_top1
from dbq.quantizers.table import QUANTIZERS
from dbq.support.atomic import write_atomically
from dbq.support.text import as_text, counted, plain_table, short
from dbq.training.learner import Learner
from dbq.training.networks import quantized_network
from dbq.training.order import derive, epoch_batches
from dbq.training.processes.memory import keep_freed_memory
from dbq.training.processes.world import joined
from dbq.training.recipe import QuantizeOptions, Recipe
from dbq.training.record.provenance import machine
from dbq.training.run import train

FLOAT = "float"
RECORD = "comparison.json"


@dataclass(frozen=True)
class Contestant:
    """A method at a precision, or the float network, fine-tuned.

    >>> Contestant.parse("lqnet:2B").name, Contestant.parse("twn").name
    ('lqnet-2B', 'twn-1T')
    """

    method: str
    precision: str = ""

    @property
    def name(self) -> str:
        return f"{self.method}-{self.precision}" if self.precision else self.method

    @classmethod
    def parse(cls, text: str) -> Self:
        """`float`, `method:precision`, or only the method if it has just one precision."""
        method, _, precision = text.partition(":")
        if method == FLOAT and not precision:
            return cls(FLOAT)
        if method not in QUANTIZERS:
            raise RecipeError(f"no method {method!r}; {closest(method, [FLOAT, *QUANTIZERS])}")
        known = precisions(method)
        if not precision and len(known) == 1:
            return cls(method, known[0])
        if precision not in known:
            choices = " or ".join(f"{method}:{choice}" for choice in known)
            raise RecipeError(f"method {text!r}: expected {choices}")
        return cls(method, precision)

    def recipe(self, base: Recipe) -> Recipe:
        """The recipe of this contestant's run."""
        name = f"{base.name} {self.name}"
        if self.method == FLOAT:
            calibrate = base.quantize.calibrate
            return replace(base, name=name, quantize=QuantizeOptions(calibrate=calibrate))
        if not base.quantize.plan.has_weights("ternary"):
            raise RecipeError(
                f"plan {base.quantize.plan.name} of recipe {base.name} has no ternary layer, so "
                "there is nothing to compare methods on"
            )
        own = self.method == (base.quantize.method or "dbq")
        options = base.quantize.options if own else {}
        wanted = replace(
            base.quantize, method=self.method, precision=self.precision, options=options
        )
        return replace(base, name=name, quantize=wanted)


@dataclass(frozen=True)
class Entry:
    """A line of the comparison. Accuracies in percent, of the hard network on the whole test set."""

    name: str
    top1: float
    best_top1: float
    cost: Totals
    seconds: float
    rate: float
    step_ratio: float | None = None  # time of a training step against the float network's
    paper_top1: float | None = None


@dataclass(frozen=True)
class Comparison:
    """The results and their conditions; `failed` says why a contestant has no entry."""

    recipe: str
    network: str
    data: str
    epochs: int
    seed: int
    rates: tuple[float, ...]  # that each contestant could choose from
    machine: dict[str, Any]
    entries: tuple[Entry, ...]
    failed: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        """Plain data; entries are under "entries", their costs under "cost"."""
        return asdict(self)

    def __str__(self) -> str:
        table = plain_table(["method", "top-1", "best", "rate", *Totals.METRICS, "step", "paper"])
        for e in self.entries:
            step = "" if e.step_ratio is None else f"{e.step_ratio:.2f}x"
            paper = "" if e.paper_top1 is None else f"{e.paper_top1:.2f}"
            costs = map(short, e.cost.metrics.values())
            accuracy = f"{e.top1:.2f}", f"{e.best_top1:.2f}"
            table.add_row(e.name, *accuracy, f"{e.rate:g}", *costs, step, paper)
        epochs = counted(self.epochs, "epoch")
        return as_text(
            f"{self.network} on {self.data}, {epochs} each, seed {self.seed} (recipe {self.recipe})",
            table,
            *(f"{name} failed: {why}" for name, why in self.failed.items()),
        )


def compare(
    recipe: Recipe,
    contestants: Sequence[Contestant],
    out: Path,
    *,
    rates: Sequence[float] = (),
    rounds: int = 0,
    watch: Watch = lambda name: (),
) -> Comparison:
    """Train every contestant into a directory below `out`, and write `out`/comparison.json.

    With `rates`, each contestant takes the best one (`with_best_rate`); without, all have the recipe's.
    Finished runs are kept and unfinished ones resumed. A run that fails is reported, and the others
    continue. `rounds` > 0 also times training steps, the contestants taking turns; otherwise step
    times of an earlier call are kept.
    """
    recipes = {contestant.name: contestant.recipe(recipe) for contestant in contestants}
    results, failed = {}, {}
    for name, own in recipes.items():
        try:
            recipes[name] = own = with_best_rate(own, rates, out / TRIALS / name, watch)
            results[name] = train(own, out / name, resume=True, watchers=watch(name))
        except DbqError as error:
            failed[name] = str(error)
    trained = [contestant for contestant in contestants if contestant.name in results]
    ratios = step_ratios(recipe, trained, rounds) if rounds else known_ratios(out)
    network_and_data, rules = (recipe.model.name, recipe.data.name), recipe.plan.rules
    # The paper's accuracies are those of ResNet-20 with float activations.
    in_paper = network_and_data == ("resnet20", "cifar10") and all(r.input.is_float for r in rules)
    entries = tuple(
        Entry(name, result.top1, result.best_top1, result.cost, result.seconds,
              recipes[name].train.rate, ratios.get(name),
              resnet20_top1(name) if in_paper else None)
        for name, result in results.items()
    )  # fmt: skip
    found = Comparison(recipe.name, recipe.model.label, recipe.data.name, recipe.train.epochs,
                       recipe.train.seed, tuple(rates), machine(), entries, failed)  # fmt: skip
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / RECORD, (json.dumps(found.to_json(), indent=1) + "\n").encode())
    return found


def step_ratios(recipe: Recipe, contestants: Sequence[Contestant], rounds: int) -> dict[str, float]:
    """Median over rounds of each contestant's step time against the float network's in that round.

    All take turns on the same batches. Freed memory is kept in the process: the time of page faults
    varies more than what is measured.
    """
    keep_freed_memory()
    with joined(recipe.machine.device) as world:
        train_split, test_split = load_data(recipe.data, world.device)
        classes = len(test_split.classes)
        everyone = list(dict.fromkeys([Contestant(FLOAT), *contestants]))
        learners: dict[str, Learner] = {}
        for contestant in everyone:
            own = contestant.recipe(recipe)
            learner = Learner(own, quantized_network(own, classes), None, world)
            learner.move_to(0.0, resolution=1.0)
            learners[contestant.name] = learner
        times: dict[str, list[float]] = {name: [] for name in learners}
        batches = epoch_batches(len(train_split), recipe.train.batch, recipe.train.seed, 0)
        batches = batches[: rounds + 1]  # the first is for warming up
        draw = derive(recipe.train.seed, "augmentation", 0)
        for turn, batch in enumerate(train_split.batches(batches, draw)):
            for name in learners if turn % 2 else reversed(learners):
                start = time.perf_counter()
                learners[name].step(batch, turn)
                times[name].append(time.perf_counter() - start)
    return {
        name: statistics.median(t / f for t, f in zip(taken[1:], times[FLOAT][1:], strict=True))
        for name, taken in times.items()
    }


def known_ratios(out: Path) -> dict[str, float]:
    """Step times of the comparison that `out` holds already."""
    try:
        record = json.loads((out / RECORD).read_text())
    except (OSError, json.JSONDecodeError):
        return {}
    return {e["name"]: e["step_ratio"] for e in record["entries"] if e["step_ratio"] is not None}


def parse_all(text: str) -> Iterator[Contestant]:
    """Contestants from a list with commas."""
    for part in text.split(","):
        yield Contestant.parse(part.strip())
