"""train: a recipe becomes a directory with a network, its metrics and its result.

The unit of progress is the step: a run can be saved after any step, and a resumed run computes the
remaining ones exactly as it would have. An epoch ends with a test of the hard network.
"""

from __future__ import annotations

import errno
import math
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from dbq.costs.rules import cost
from dbq.data.table import load_data
from dbq.errors import TrainingError
from dbq.model.decomposition import branches
from dbq.support import toml
from dbq.support.workers import dead_workers_named
from dbq.training.evaluation import Score, evaluate
from dbq.training.guards import dead_kernels, stop_if_broken
from dbq.training.learner import Learner
from dbq.training.networks import (
    empty_network,
    example_image,
    images_to_fit,
    quantized_network,
    reestimate,
    teacher_network,
)
from dbq.training.order import derive, epoch_batches, share
from dbq.training.processes.interrupt import StopRequest, stop_on_signal
from dbq.training.processes.memory import keep_freed_memory
from dbq.training.processes.world import World, joined
from dbq.training.recipe import Recipe
from dbq.training.record.checkpoint import write_checkpoint
from dbq.training.record.provenance import Provenance
from dbq.training.record.result import EvaluationSet, Result
from dbq.training.record.rundir import RunDir, write_network
from dbq.training.watchers.watching import StepReport, Watcher


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

    @classmethod
    def read(cls, metadata: Mapping[str, Any], epochs: int, steps: int, source: Path) -> Position:
        """The position in a checkpoint's metadata, if a run of so many epochs and steps can be there."""
        at = toml.build(cls, metadata["position"], f"{source}: position", TrainingError)
        rows = metadata.get("metrics")
        if not (
            0 <= at.epoch <= epochs
            and 0 <= at.step <= (steps if at.epoch < epochs else 0)
            and all(map(math.isfinite, (at.loss, at.correct, at.seconds, at.best)))
            and (at.step == 0 or 0 < at.images < math.inf)
            and isinstance(rows, list)
            and len(rows) == at.epoch
            and all(isinstance(row, dict) for row in rows)
        ):
            raise TrainingError(
                f"{source}: a run of {epochs} epochs of {steps} steps is never at epoch {at.epoch}, "
                f"step {at.step} with these sums and metrics; delete it, or train again"
            )
        return at

    def begin_epoch(self) -> None:
        self.epoch, self.step = self.epoch + 1, 0
        self.loss = self.correct = self.images = 0.0
        self.skipped = []


def train(
    recipe: Recipe, out: Path, *, resume: bool = False, watchers: tuple[Watcher, ...] = ()
) -> Result:
    """Train by `recipe` into the directory `out`; returns the result, which is also stored there.

    With `resume`, continue from the last checkpoint if there is one. Under torchrun every process
    calls this. KeyboardInterrupt is raised, after saving, when the user or the system asks to stop;
    LockedError if another process is training in `out`.
    """
    keep_freed_memory()
    files = RunDir(out)
    with dead_workers_named(), joined(recipe.machine.device) as world, ExitStack() as held:
        world.from_first(lambda: held.enter_context(files.lock()))
        finished = world.from_first(lambda: files.look(recipe, resume))
        if finished is not None:
            return finished
        run = _Run(recipe, files, world, watchers if world.is_first else ())
        with stop_on_signal() as request:
            run.go(request)
        return run.finish()


class _Run:
    """One process's part of a run: the sequence of events; other modules do the work."""

    def __init__(
        self, recipe: Recipe, files: RunDir, world: World, watchers: tuple[Watcher, ...]
    ) -> None:
        self.recipe, self.files, self.world, self.watchers = recipe, files, world, watchers
        self.provenance = Provenance.of(recipe, world)  # now: the code on disk may change later
        self.train_split, self.test_split = load_data(recipe.data, world.device)
        resumed = world.from_first(files.checkpoint)
        classes = len(self.test_split.classes)
        if resumed is None:
            images = images_to_fit(recipe, self.train_split)
            model = quantized_network(recipe, classes, images).to(world.device)
        else:
            model = empty_network(recipe, classes).to(world.device)
        if resumed is None and recipe.quantize.calibrate:
            wanted, seed = recipe.quantize.calibrate, recipe.train.seed
            reestimate(model, self.train_split, wanted, seed, world.device)
        self.learner = Learner(recipe, model, teacher_network(recipe, classes), world)
        self.at = Position()
        self.rows: list[dict[str, Any]] = []
        self.score: Score | None = None  # of the network as it is after an epoch
        if resumed is not None:
            tensors, metadata = resumed
            steps = -(-len(self.train_split) // recipe.train.batch)
            self.at = Position.read(metadata, recipe.train.epochs, steps, files.last)
            self.rows = metadata["metrics"]
            self.learner.load_state(tensors)
            self._say(f"resumed at epoch {self.at.epoch + 1}, step {self.at.step}")
        elif world.is_first:
            files.start(recipe, self.provenance)
        self.saved = time.monotonic()
        self.pending = torch.zeros(3, dtype=torch.double, device=world.device)
        # Reading the sums waits until a GPU has caught up; a CPU is never behind.
        self.look_every = 1 if world.device.type == "cpu" else 10

    def go(self, request: StopRequest) -> None:
        """All remaining epochs."""
        while self.at.epoch < self.recipe.train.epochs:
            self._epoch(request)
            self._end_of_epoch()
            self.at.begin_epoch()
            self._save()
            if self._asked_to_stop(request):
                self._stop()

    def _epoch(self, request: StopRequest) -> None:
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
            self.pending += self.learner.step(batch, at.epoch * len(whole) + at.step)
            at.skipped += batch.skipped
            at.step += 1
            at.seconds = before + time.monotonic() - began
            last = at.step == len(whole)
            if at.step % self.look_every and not last:
                continue
            stopping = self._asked_to_stop(request)
            speed = (at.images - seen_before) / (at.seconds - before)
            if stopping or (not last and self._time_to_save()):
                self._save()
            self._report_step(len(whole), speed)
            if stopping:
                self._stop()

    def _move(self, step: int, steps: int) -> None:
        """Learning rate and temperature for a step of this epoch."""
        if self.recipe.train.every == "step":
            self.learner.move_to(self.at.epoch + step / steps, resolution=1 / steps)
        else:
            self.learner.move_to(self.at.epoch, resolution=1.0)

    def _asked_to_stop(self, request: StopRequest) -> bool:
        """Add up what all processes did since the last call; if one was asked to stop, all stop."""
        asked = self.pending.new_tensor([float(request.made)])
        sums = self.world.total(torch.cat([self.pending, asked]))
        loss, correct, images, wishes = sums.tolist()
        self.pending.zero_()
        self.at.loss += loss
        self.at.correct += correct
        self.at.images += images
        return bool(wishes > 0)

    def _report_step(self, steps: int, speed: float) -> None:
        at, learner, train = self.at, self.learner, self.recipe.train
        report = StepReport(
            at.epoch, train.epochs, at.step, steps, at.loss / at.images,
            learner.rate, learner.temperature, speed, train.batch,
        )  # fmt: skip
        self._tell(lambda watcher: watcher.step(report))

    def _stop(self) -> None:
        self._say(
            f"stopped at epoch {self.at.epoch + 1}, step {self.at.step}: saved in "
            f"{self.files.path}, continue with --resume"
        )
        self.world.wait()
        raise KeyboardInterrupt

    def _time_to_save(self) -> bool:
        minutes = (time.monotonic() - self.saved) / 60
        return minutes >= self.recipe.machine.checkpoint_minutes

    def _save(self) -> None:
        """Write a checkpoint, unless the network is broken: then the one before must survive."""
        stop_if_broken(self.learner.model, f"epoch {self.at.epoch + 1}, step {self.at.step}")
        if self.world.is_first:
            metadata = {"position": asdict(self.at), "metrics": self.rows}
            write_checkpoint(self.files.last, self.learner.state(), metadata)
        self.saved = time.monotonic()

    def _end_of_epoch(self) -> None:
        """Test the network, record the epoch, keep the best."""
        at, learner = self.at, self.learner
        stop_if_broken(learner.model, f"the end of epoch {at.epoch + 1}")
        self.score = score = self._test()
        layers = branches(learner.network)
        row = {
            "epoch": at.epoch,
            "loss": at.loss / at.images,
            "soft_top1": 100 * at.correct / at.images,
            "top1": score.top1,
            "top5": score.top5,
            "test_loss": score.loss,
            "rate": learner.rate,
            "temperature": learner.temperature,
            "sparsity": {name: layer.sparsity for name, layer in layers.items()},
            "dead_kernels": dead_kernels(layers),
            "seconds": at.seconds,
            "skipped": self.world.union([*at.skipped, *score.skipped]),
        }
        self.rows.append(row)
        if score.top1 > at.best:
            self._keep_best(at.epoch, score.top1)
        if self.world.is_first:
            self.files.write_metrics(self.rows)
        self._tell(lambda watcher: watcher.epoch(row))

    def finish(self) -> Result:
        """Re-estimate if asked to, test once more, and write the result."""
        recipe, network, at = self.recipe, self.learner.network, self.at
        if recipe.extra.reestimate:
            wanted, seed = recipe.extra.reestimate, recipe.train.seed
            reestimate(network, self.train_split, wanted, seed, self.world.device)
            self.score = None
        score, last = self.score or self._test(), recipe.train.epochs - 1
        if score.top1 > at.best:
            self._keep_best(last, score.top1)
        self._write_network(self.files.final, last, score.top1)
        total = cost(network, example_image(recipe).to(self.world.device)).total
        result = Result(
            recipe=recipe.name,
            about=recipe.about,
            plan=recipe.plan.name,
            seed=recipe.train.seed,
            epochs=recipe.train.epochs,
            top1=score.top1,
            top5=score.top5,
            best_top1=at.best,
            best_epoch=at.best_epoch,
            paper_top1=recipe.paper,
            test=EvaluationSet(recipe.data.name, self.test_split.name, score.images),
            seconds=at.seconds,
            cost=total,
            provenance=self.provenance,
        )
        if self.world.is_first:
            self.files.write_result(result)
        self.world.wait()
        return result

    def _test(self) -> Score:
        """Test the first process's network in all of them: its statistics are the ones kept."""
        network = self.learner.network
        self.world.spread_from_first(network.buffers())
        return evaluate(network, self.test_split, self.world, self.recipe.machine.channels_last)

    def _keep_best(self, epoch: int, top1: float) -> None:
        self.at.best, self.at.best_epoch = top1, epoch
        self._write_network(self.files.best, epoch, top1)

    def _write_network(self, path: Path, epoch: int, top1: float) -> None:
        if self.world.is_first:
            names = list(self.test_split.classes)
            metadata = {"epoch": epoch, "top1": top1, "classes": len(names), "class_names": names}
            write_network(path, self.learner.network, self.recipe, **metadata)

    def _say(self, text: str) -> None:
        self._tell(lambda watcher: watcher.message(text))

    def _tell(self, event: Callable[[Watcher], None]) -> None:
        """Tell all watchers; a terminal that has been closed must not end the run."""
        for watcher in self.watchers:
            try:
                event(watcher)
            except OSError as error:
                if error.errno not in (errno.EIO, errno.EPIPE):
                    raise
