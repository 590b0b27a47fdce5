"""Learner: a network, its optimizer, and one step of training.

It knows how a step is computed (processes, precision, accumulation, distillation, averaging) and what
must be saved so that the next step is the same, bit for bit. It knows nothing about epochs, files or the
terminal. All randomness of a step comes from (seed, step, rank), so there is no generator to save.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from dbq.data.split import Batch
from dbq.errors import RecipeError, TrainingError
from dbq.model.param_groups import param_groups
from dbq.model.penalty import size_penalty
from dbq.model.schedule import (
    TemperatureSchedule,
    cosine_rate,
    soft_quantizers,
    tell_progress,
    weight_quantizers,
)
from dbq.networks.weights import put_state
from dbq.posttraining.agreement import relative_errors
from dbq.posttraining.distillation import features
from dbq.posttraining.fitting.residuals import blocks
from dbq.quantizers.contract import BatchNorm
from dbq.training.guards import explain_loss
from dbq.training.order import derive
from dbq.training.processes.sync_bn import synchronise_batch_norms
from dbq.training.processes.world import World
from dbq.training.recipe import Recipe

HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Learner:
    """Call `move_to(epoch)`, then `step(batch, number)`; `network` is the result."""

    def __init__(
        self, recipe: Recipe, model: nn.Module, teacher: nn.Module | None, world: World
    ) -> None:
        train, machine = recipe.train, recipe.machine
        self.recipe, self.world, self.model, self.teacher = recipe, world, model, teacher
        for network in filter(None, (model, teacher)):
            network.to(world.device)
            if machine.channels_last:
                network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if machine.sync_bn:
            synchronise_batch_norms(model)
        self.checks_loss = (
            world.device.type == "cpu"
        )  # on a GPU, looking at it would stall every step
        self.average = _moving_average(model, recipe.extra.ema) if recipe.extra.ema else None
        if recipe.extra.size:
            self._oversize()  # raises if there is nothing to limit
        if recipe.extra.features and machine.compile:
            raise RecipeError(
                "extra.features reads the outputs of blocks, which torch.compile would compile anew in "
                "every step: switch off machine.compile, or leave it out"
            )
        groups = param_groups(model, train.weight_decay)
        self.optimizer = torch.optim.SGD(groups, lr=train.rate, momentum=train.momentum)
        self.scaler = torch.amp.GradScaler(world.device.type, enabled=machine.precision == "fp16")
        self.schedule = _temperatures(recipe, model) if soft_quantizers(model) else None
        self.blocks = blocks(model) if recipe.extra.features else []
        self.norms = [m for m in model.modules() if isinstance(m, BatchNorm)]
        self.progress = 0.0  # of the run, 0 to 1
        gpus = [world.device.index] if world.device.type == "cuda" else None
        self.quantizers = weight_quantizers(model)
        unused = any(quantizer.skips_gradients for quantizer in self.quantizers)
        self.parallel = (
            DistributedDataParallel(model, device_ids=gpus, find_unused_parameters=unused)
            if world.is_shared
            else None
        )
        called = self.parallel or model
        self.forward = torch.compile(called) if machine.compile else called

    @property
    def network(self) -> nn.Module:
        """What is tested and kept: the moving average if there is one, else the model."""
        if self.average is None:
            return self.model
        averaged: nn.Module = self.average.module
        return averaged

    @property
    def rate(self) -> float:
        return float(self.optimizer.param_groups[0]["lr"])

    @property
    def temperature(self) -> float | None:
        """The temperature of the soft quantizers; None if there are none."""
        return self.schedule.temperature if self.schedule else None

    def move_to(self, epoch: float, resolution: float) -> None:
        """Set learning rate, temperature and progress for a point in the run; see `cosine_rate`."""
        train = self.recipe.train
        rate = cosine_rate(epoch, train.epochs, train.rate, train.warmup, resolution)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        if self.schedule:
            self.schedule.move_to(epoch)
        self.progress = epoch / train.epochs
        tell_progress(self.quantizers, self.progress)

    def step(self, batch: Batch, number: int) -> Tensor:
        """Train on this process's part of a batch; returns [loss summed, correct, images]."""
        torch.manual_seed(derive(self.recipe.train.seed, "step", number, self.world.rank))
        self.model.train()
        if self.progress >= 1 - self.recipe.extra.still_norms:
            for norm in self.norms:
                norm.eval()
        images, labels = self._on_device(batch)
        count = min(self.recipe.train.accumulate, len(labels))  # an empty part has no mean
        parts = list(zip(
            images.tensor_split(count),
            labels.tensor_split(count),
            strict=True,
        ))  # fmt: skip
        sums = torch.zeros(3, dtype=torch.double, device=images.device)
        for i, (x, y) in enumerate(parts):
            with self._gradients_stay_here(unless=i + 1 == len(parts)):
                loss, logits = self._loss(x, y)
                if self.checks_loss and not torch.isfinite(loss):
                    raise explain_loss(self.model, x, float(loss.detach()))
                self.scaler.scale(loss * (len(y) / len(labels))).backward()  # type: ignore[no-untyped-call]
            right = (logits.argmax(1) == y).sum()
            sums += torch.stack([loss.detach().double() * len(y), right, right.new_tensor(len(y))])
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()
        if self.average is not None:
            self.average.update_parameters(self.model)
        return sums

    def _on_device(self, batch: Batch) -> tuple[Tensor, Tensor]:
        images = batch.images.to(self.world.device, non_blocking=True)
        if self.recipe.machine.channels_last:
            images = images.contiguous(memory_format=torch.channels_last)
        return images, batch.labels.to(self.world.device, non_blocking=True)

    def _loss(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        extra, half = self.recipe.extra, HALF.get(self.recipe.machine.precision)
        with torch.autocast(self.world.device.type, dtype=half, enabled=half is not None):
            if self.teacher is not None:
                with torch.no_grad(), features(self.teacher, self.blocks) as wanted:
                    teacher_logits = self.teacher(x)
            with features(self.model, self.blocks) as got:
                logits = self._forward(x).float()
        loss = F.cross_entropy(logits, y, label_smoothing=extra.label_smoothing)
        if self.teacher is not None:
            T = extra.distill_temperature
            soft_labels = (teacher_logits.float() / T).softmax(1)
            # times T^2: gradients of the two terms then have the same size (Hinton 2015)
            distillation = F.cross_entropy(logits / T, soft_labels) * T**2
            loss = (1 - extra.distill) * loss + extra.distill * distillation
            if extra.features:
                loss = loss + extra.features * torch.stack(list(relative_errors(got, wanted))).sum()
        if extra.size:
            loss = loss + extra.size_penalty * self._oversize()
        return loss, logits

    def _oversize(self) -> Tensor:
        penalty = size_penalty(self.model, self.recipe.extra.size)
        if penalty is None:
            raise RecipeError(
                "extra.size limits layers whose precision is learned, and there are none: choose the "
                "method mixed, or leave it out"
            )
        return penalty

    def _forward(self, x: Tensor) -> Tensor:
        try:
            logits: Tensor = self.forward(x)
        except ValueError as error:
            if "more than 1 value per channel" not in str(error):
                raise
            raise RecipeError(
                f"batch norm cannot train on {len(x)} image at a time: raise train.batch, or lower "
                "train.accumulate or the number of processes"
            ) from None
        if not isinstance(logits, Tensor):
            raise TrainingError(
                f"{self.recipe.model.name} gives a {type(logits).__name__} while it trains; expected a "
                "tensor of logits: switch off its auxiliary outputs in model.options"
            )
        return logits

    def _gradients_stay_here(self, unless: bool) -> AbstractContextManager[Any]:
        """Gradients of an accumulated batch are exchanged once, with its last part."""
        return nullcontext() if unless or self.parallel is None else self.parallel.no_sync()

    def state(self) -> dict[str, Tensor]:
        """All tensors that the next step depends on."""
        tensors = {f"model.{key}": value for key, value in self.model.state_dict().items()}
        for name, parameter in self.model.named_parameters():
            momentum = self.optimizer.state.get(parameter, {}).get("momentum_buffer")
            if momentum is not None:
                tensors[f"momentum.{name}"] = momentum
        if self.average is not None:
            average = self.average.state_dict()
            tensors |= {f"average.{key}": value for key, value in average.items()}
        for key, value in self.scaler.state_dict().items():
            whole = isinstance(value, int)  # torch insists on getting the same type back
            tensors[f"scaler.{key}"] = torch.tensor(value, dtype=None if whole else torch.double)
        return tensors

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """Continue from what `state` returned."""
        put_state(self.model, _under("model.", tensors), "the checkpoint")
        if self.average is not None:
            put_state(self.average, _under("average.", tensors), "the checkpoint")
        momenta = _under("momentum.", tensors)
        for name, parameter in self.model.named_parameters():
            if name in momenta:
                if momenta[name].shape != parameter.shape:
                    raise TrainingError(f"the checkpoint does not fit: momentum.{name}")
                momentum = torch.empty_like(parameter).copy_(momenta[name])
                self.optimizer.state[parameter] = {"momentum_buffer": momentum}
        try:
            scaler = {key: value.item() for key, value in _under("scaler.", tensors).items()}
            if scaler:
                self.scaler.load_state_dict(scaler)
        except (RuntimeError, KeyError) as error:
            raise TrainingError(f"the checkpoint does not fit: scaler ({error})") from None


def _temperatures(recipe: Recipe, model: nn.Module) -> TemperatureSchedule:
    options = recipe.temperature
    if options.end:
        epochs = recipe.train.epochs
        return TemperatureSchedule(model, options.start, end=options.end, epochs=epochs)
    return TemperatureSchedule(model, options.start, options.increment)


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def _moving_average(model: nn.Module, decay: float) -> AveragedModel:
    """An exponential average of the parameters; statistics are copied, not averaged."""
    average = get_ema_multi_avg_fn(decay)  # type: ignore[no-untyped-call]
    return AveragedModel(model, multi_avg_fn=average)
