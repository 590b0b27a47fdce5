"""train: a recipe becomes a directory with a network, its metrics and its result.

The unit of progress is the step: after any number of them the run can be saved, and a resumed run does
the remaining steps exactly as it would have. An epoch ends with a test of the hard network.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from dbq.costs import cost
from dbq.data import Split, load_data
from dbq.decomposition import branches
from dbq.errors import TrainingError
from dbq.memory import keep_freed_memory
from dbq.recipe import Recipe
from dbq.training import provenance
from dbq.training.build import FINAL, example_image, quantized_network, reestimate, teacher_network
from dbq.training.checkpoint import read_checkpoint, write_checkpoint
from dbq.training.evaluation import evaluate
from dbq.training.guards import dead_kernels, stop_if_not_finite
from dbq.training.interrupt import StopRequest, stop_on_signal
from dbq.training.learner import Learner
from dbq.training.order import derive, epoch_batches, share
from dbq.training.rundir import RunDir
from dbq.training.world import World, joined, was_restarted

LOOK_EVERY = 10  # steps between looks at the loss: each one waits for a GPU to catch up


@dataclass(frozen=True)
class StepReport:
    """Where a run is. `loss` is the epoch's mean so far, `speed` in images a second."""

    epoch: int
    epochs: int
    step: int
    steps: int
    loss: float
    rate: float
    temperature: float | None
    speed: float
    batch: int

    @property
    def seconds_left(self) -> float:
        steps = (self.epochs - self.epoch) * self.steps - self.step
        return steps * self.batch / self.speed


class Watcher(Protocol):
    """Whoever wants to follow a run: a terminal, TensorBoard, a notebook."""

    def message(self, text: str) -> None: ...

    def step(self, report: StepReport) -> None: ...

    def epoch(self, row: dict[str, Any]) -> None: ...


@dataclass
class Position:
    """How far a run has come: whole epochs, steps into the next one, and its sums so far."""

    epoch: int = 0
    step: int = 0
    loss: float = 0.0
    correct: float = 0.0
    images: float = 0.0
    seconds: float = 0.0  # of the whole run
    skipped: list[str] = field(default_factory=list)
    best: float = -1.0
    best_epoch: int = -1

    def begin_epoch(self) -> None:
        self.epoch, self.step = self.epoch + 1, 0
        self.loss = self.correct = self.images = 0.0
        self.skipped = []


def train(
    recipe: Recipe, out: Path, *, resume: bool = False, watchers: tuple[Watcher, ...] = ()
) -> dict[str, Any]:
    """Train by `recipe` into the directory `out`; returns what is also in its result.json.

    With `resume`, go on from the last checkpoint if there is one. Under torchrun every process calls
    this. KeyboardInterrupt is raised, after saving, when the user or the system asks to stop.
    """
    keep_freed_memory()
    files = RunDir(out)
    with joined(recipe.machine.device) as world:
        finished = world.from_first(_look(files, recipe, resume) if world.is_first else None)
        if finished is not None:
            result: dict[str, Any] = finished
            return result
        run = _Run(recipe, files, world, watchers if world.is_first else ())
        with stop_on_signal() as stop:
            run.go(stop)
        return run.finish()


def _look(files: RunDir, recipe: Recipe, resume: bool) -> dict[str, Any] | None:
    """Check the directory before anything is written; the result, if the run is finished."""
    present = files.result_path.exists() or files.last.exists()
    if not present:
        return None
    if not (resume or was_restarted()):
        raise TrainingError(
            f"{files.path} holds a run already: go on with --resume, or choose another --out"
        )
    before = files.recipe()
    if before != recipe:
        raise TrainingError(
            f"{files.path} was begun with another recipe ({_difference(before, recipe)}): "
            "resume with the same one, or choose another --out"
        )
    return files.result() if files.result_path.exists() else None


def _difference(before: Recipe, now: Recipe) -> str:
    lines = zip(before.to_toml().splitlines(), now.to_toml().splitlines(), strict=False)
    return next((f"{old} there, {new} now" for old, new in lines if old != new), "longer")


class _Run:
    """One process's part of a run. What is here is the sequence; the work is done elsewhere."""

    def __init__(
        self, recipe: Recipe, files: RunDir, world: World, watchers: tuple[Watcher, ...]
    ) -> None:
        self.recipe, self.files, self.world, self.watchers = recipe, files, world, watchers
        self.circumstances = provenance.facts(recipe, world)  # of the code that is running
        self.train_split, self.test_split = load_data(recipe.data, world.device)
        resumed = world.from_first(
            read_checkpoint(files.last) if world.is_first and files.last.exists() else None
        )
        classes = len(self.test_split.classes)
        model = quantized_network(recipe, classes, start=resumed is None).to(world.device)
        if resumed is None and recipe.quantize.calibrate:
            wanted, seed = recipe.quantize.calibrate, recipe.train.seed
            reestimate(model, self.train_split, wanted, seed, world.device)
        self.learner = Learner(recipe, model, teacher_network(recipe, classes), world)
        self.at = Position()
        self.rows: list[dict[str, Any]] = []
        if resumed is not None:
            tensors, facts = resumed
            self.learner.load_state(tensors)
            self.at = Position(**facts["position"])
            self.rows = facts["metrics"]
            self._say(f"resumed at epoch {self.at.epoch}, step {self.at.step}")
        elif world.is_first:
            files.start(recipe, self.circumstances)
        self.saved = time.monotonic()

    def go(self, stop: StopRequest) -> None:
        """All remaining epochs."""
        while self.at.epoch < self.recipe.train.epochs:
            self._epoch(stop)
            self._end_of_epoch()
            self.at.begin_epoch()
            self._save()

    def _epoch(self, stop: StopRequest) -> None:
        """The remaining steps of the epoch we are in."""
        train, world, at = self.recipe.train, self.world, self.at
        whole = epoch_batches(len(self.train_split), train.batch, train.seed, at.epoch)
        mine = [share(indices, world.rank, world.size) for indices in whole[at.step :]]
        began, before, seen_before = time.monotonic(), at.seconds, at.images
        self._move(max(at.step - 1, 0), len(whole))
        draw = derive(train.seed, "augmentation", at.epoch)
        for batch in self.train_split.batches(mine, draw):
            if train.every == "step":
                self._move(at.step, len(whole))
            sums = self.learner.step(batch, at.epoch * len(whole) + at.step)
            self._count(sums, stop, batch.skipped)
            at.step += 1
            at.seconds = before + time.monotonic() - began
            if at.step % LOOK_EVERY == 0 or at.step == len(whole):
                speed = (at.images - seen_before) / (at.seconds - before)
                self._report_step(len(whole), speed)
            self._pause(stop, last=at.step == len(whole))

    def _move(self, step: int, steps: int) -> None:
        """Learning rate and temperature for a step of this epoch."""
        if self.recipe.train.every == "step":
            self.learner.move_to(self.at.epoch + step / steps, resolution=1 / steps)
        else:
            self.learner.move_to(self.at.epoch, resolution=1.0)

    def _report_step(self, steps: int, speed: float) -> None:
        at, learner = self.at, self.learner
        stop_if_not_finite(learner.model, at.loss, f"epoch {at.epoch}, step {at.step}")
        train = self.recipe.train
        report = StepReport(
            at.epoch, train.epochs, at.step, steps, at.loss / at.images,
            learner.rate, learner.hotness, speed, train.batch,
        )  # fmt: skip
        for watcher in self.watchers:
            watcher.step(report)

    def _count(self, sums: Tensor, stop: StopRequest, skipped: tuple[str, ...]) -> None:
        """Add a step's sums over all processes; one that was asked to stop stops them all."""
        asked = sums.new_tensor([float(stop.made)])
        loss, correct, images, wishes = self.world.total(torch.cat([sums, asked])).tolist()
        self.at.loss += loss
        self.at.correct += correct
        self.at.images += images
        self.at.skipped += skipped
        stop.made = wishes > 0

    def _pause(self, stop: StopRequest, last: bool) -> None:
        """Save between steps if it is time to, or if we were asked to stop."""
        if stop.made:
            self._save()
            self._say(
                f"stopped at epoch {self.at.epoch}, step {self.at.step}: saved in "
                f"{self.files.path}, go on with --resume"
            )
            self.world.wait()
            raise KeyboardInterrupt
        minutes = (time.monotonic() - self.saved) / 60
        if not last and minutes >= self.recipe.machine.checkpoint_minutes:
            self._save()

    def _save(self) -> None:
        if not self.world.is_first:
            return
        stop_if_not_finite(self.learner.model, self.at.loss, f"epoch {self.at.epoch}")
        facts = {"position": asdict(self.at), "metrics": self.rows}
        write_checkpoint(self.files.last, self.learner.state(), facts)
        self.saved = time.monotonic()

    def _end_of_epoch(self) -> None:
        """Test, note, keep the best."""
        at, learner = self.at, self.learner
        score = self._test(self.test_split)
        layers = branches(learner.network)
        row = {
            "epoch": at.epoch,
            "loss": at.loss / at.images,
            "soft_top1": 100 * at.correct / at.images,
            "top1": score.top1,
            "top5": score.top5,
            "test_loss": score.loss,
            "rate": learner.rate,
            "temperature": learner.hotness,
            "sparsity": {name: layer.sparsity for name, layer in layers.items()},
            "dead_kernels": dead_kernels(layers),
            "seconds": at.seconds,
            "skipped": self.world.union([*at.skipped, *score.skipped]),
        }
        self.rows.append(row)
        if score.top1 > at.best:
            at.best, at.best_epoch = score.top1, at.epoch
            if self.world.is_first:
                self._keep("best.safetensors", at.epoch, score.top1)
        if self.world.is_first:
            self.files.write_metrics(self.rows)
        for watcher in self.watchers:
            watcher.epoch(row)

    def finish(self) -> dict[str, Any]:
        """Re-estimate if asked to, test once more, and write the result."""
        recipe, network, at = self.recipe, self.learner.network, self.at
        if recipe.extra.reestimate:
            wanted, seed = recipe.extra.reestimate, recipe.train.seed
            reestimate(network, self.train_split, wanted, seed, self.world.device)
        score = self._test(self.test_split)
        total = cost(network, example_image(recipe).to(self.world.device)).total
        result = {
            "recipe": recipe.name,
            "about": recipe.about,
            "plan": recipe.plan.name,
            "seed": recipe.train.seed,
            "epochs": recipe.train.epochs,
            "top1": score.top1,
            "top5": score.top5,
            "best_top1": max(at.best, score.top1),
            "best_epoch": at.best_epoch if at.best >= score.top1 else recipe.train.epochs - 1,
            "paper_top1": recipe.paper,
            "test": {"data": recipe.data.name, "split": self.test_split.name,
                     "images": score.images},
            "seconds": at.seconds,
            "cost": asdict(total),
            **self.circumstances,
        }  # fmt: skip
        if self.world.is_first:
            self._keep(FINAL, recipe.train.epochs - 1, score.top1)
            self.files.write_json("result.json", result)
        self.world.wait()
        return result

    def _test(self, split: Split) -> Any:
        channels_last = self.recipe.machine.channels_last
        return evaluate(self.learner.network, split, self.world, channels_last)

    def _keep(self, name: str, epoch: int, top1: float) -> None:
        network = self.learner.network
        self.files.write_network(name, network, self.recipe, epoch=epoch, top1=top1)

    def _say(self, text: str) -> None:
        for watcher in self.watchers:
            watcher.message(text)
